#include "provider_recipe.h"

#include "alloc.h"
#include "cleanup.h"

#include <string.h>

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define DIGITS "0123456789"

/* A name of a package with its version, as apt, pip and npm write them: nothing that a shell or an option could be made of. */
static bool is_package(const char *word, size_t size)
{
    return size > 0 && size <= 256 && strchr(LETTERS DIGITS "@", word[0]) && word[0] &&
           strspn(word, LETTERS DIGITS "._@/+=<>~![],:-") >= size;
}

/* 'a' 'b' of "a b". */
static int put_packages(struct buf *out, const char *list, struct error *err)
{
    for (const char *at = list + strspn(list, " "); *at; at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");

        if (!is_package(at, size))
            return fail(err, INVALID, "\"%.*s\" is not the name of a package", size < 60 ? (int)size : 60, at);
        if (buf_append_format(out, err, " '%.*s'", (int)size, at) < 0)
            return -1;
        at += size;
    }
    return 0;
}

static int put_install(struct buf *out, const char *list, const char *before, const char *after, struct error *err)
{
    if (!list || list[strspn(list, " ")] == '\0')
        return 0;
    return buf_append_str(out, before, err) < 0 || put_packages(out, list, err) < 0 ||
                   buf_append_str(out, after, err) < 0
               ? -1
               : 0;
}

static int put_env(struct buf *out, const char *line, size_t size, struct error *err)
{
    size_t name = strspn(line, LETTERS DIGITS "_");

    if (name == 0 || name >= size || line[name] != '=' || strchr(DIGITS, line[0]))
        return fail(err, INVALID, "\"%.*s\" is not NAME=value of an environment", size < 60 ? (int)size : 60, line);
    if (buf_append_format(out, err, "ENV %.*s=\"", (int)name, line) < 0)
        return -1;
    for (size_t i = name + 1; i < size; i++)
        if ((strchr("\"\\$", line[i]) && buf_append_str(out, "\\", err) < 0) || buf_append(out, line + i, 1, err) < 0)
            return -1;
    return buf_append_str(out, "\"\n", err);
}

static int put_setup(struct buf *out, const char *line, size_t size, struct error *err)
{
    if (size == 0)
        return 0;
    if (line[size - 1] == '\\')
        return fail(err, INVALID, "a setup command ends with a backslash");
    return buf_append_format(out, err, "RUN %.*s\n", (int)size, line);
}

static int each_line(struct buf *out, const char *lines,
                     int (*put)(struct buf *out, const char *line, size_t size, struct error *err), struct error *err)
{
    for (const char *at = lines ? lines : ""; *at;) {
        size_t size = strcspn(at, "\n");

        if (size > 0 && put(out, at, size, err) < 0)
            return -1;
        at += size + (at[size] == '\n');
    }
    return 0;
}

int recipe_dockerfile(const struct provider_recipe *recipe, struct buf *out, struct error *err)
{
    if (!recipe->base_image || !recipe->base_image[0] || strpbrk(recipe->base_image, " \t\r\n\"\\$"))
        return fail(err, INVALID, "it has no image to build on");
    return buf_append_format(out, err, "FROM %s\n", recipe->base_image) < 0 ||
                   each_line(out, recipe->setup, put_setup, err) < 0 ||
                   put_install(out, recipe->apt,
                               "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y "
                               "--no-install-recommends",
                               " && rm -rf /var/lib/apt/lists/*\n", err) < 0 ||
                   put_install(out, recipe->pip,
                               "RUN PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install "
                               "--no-cache-dir",
                               "\n", err) < 0 ||
                   put_install(out, recipe->npm,
                               "ENV NODE_PATH=/usr/local/lib/node_modules\nRUN npm install -g --prefix /usr/local",
                               " && npm cache clean --force\n", err) < 0 ||
                   each_line(out, recipe->env, put_env, err) < 0
               ? -1
               : 0;
}
