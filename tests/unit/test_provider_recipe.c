/* What an image is built of: the Dockerfile of packages, and contexts that are the same as long as what goes into them is. */
#include "cleanup.h"
#include "fd.h"
#include "provider_recipe.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

Test(provider_recipe, writes_a_dockerfile)
{
    const struct provider_recipe recipe = {
        .alias = "a",
        .base_image = "debian:12",
        .setup = "echo one && echo two\ntrue",
        .apt = "git  ripgrep=13.0-1",
        .pip = "pandas>=2,<3 uvicorn[standard]",
        .npm = "@types/react",
        .env = "A=x \"y\" $z \\\nB=",
    };
    auto_buf struct buf text = BUF_INIT(RECIPE_TEXT_MAX);
    struct error err = ERROR_INIT;

    cr_assert(eq(int, recipe_dockerfile(&recipe, &text, &err), 0), "%s", err.text);
    cr_assert(
        eq(str, (char *)buf_str(&text),
           "FROM debian:12\n"
           "RUN echo one && echo two\n"
           "RUN true\n"
           "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends 'git' "
           "'ripgrep=13.0-1' && rm -rf /var/lib/apt/lists/*\n"
           "RUN PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --no-cache-dir "
           "'pandas>=2,<3' 'uvicorn[standard]'\n"
           "ENV NODE_PATH=/usr/local/lib/node_modules\n"
           "RUN npm install -g --prefix /usr/local '@types/react' && npm cache clean --force\n"
           "ENV A=\"x \\\"y\\\" \\$z \\\\\"\n"
           "ENV B=\"\"\n"));
}

static const struct provider_recipe wrong[] = {
    {.alias = "a"},
    {.alias = "a", .base_image = "x\nRUN y"},
    {.alias = "a", .base_image = "x", .apt = "--option"},
    {.alias = "a", .base_image = "x", .apt = "git;reboot"},
    {.alias = "a", .base_image = "x", .pip = "a'b"},
    {.alias = "a", .base_image = "x", .npm = "$HOME"},
    {.alias = "a", .base_image = "x", .setup = "true \\"},
    {.alias = "a", .base_image = "x", .env = "1A=x"},
    {.alias = "a", .base_image = "x", .env = "A"},
};

Test(provider_recipe, refuses_words_that_cannot_stand_in_one)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        auto_buf struct buf text = BUF_INIT(RECIPE_TEXT_MAX);
        struct error err = ERROR_INIT;

        cr_assert(eq(int, recipe_dockerfile(&wrong[i], &text, &err), -1), "case %zu", i);
        cr_assert(eq(int, (int)err.code, ERROR_INVALID), "case %zu", i);
    }
}

static char dir[] = "/tmp/berth-unit-XXXXXX";

static void put(const char *name, const char *content, mode_t mode)
{
    char path[200];
    int fd;
    struct error err = ERROR_INIT;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    (void)unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    cr_assert(ge(int, fd, 0));
    cr_assert(eq(int, fd_write_all(fd, content, strlen(content), &err), 0));
    cr_assert(eq(int, fchmod(fd, mode), 0));
    (void)close(fd);
}

/* The tag of the folder's context; fails the test where there is none. */
static void tag_of(char tag[RECIPE_TAG_BYTES])
{
    const struct provider_recipe recipe = {.alias = "a", .dockerfile_dir = dir};
    struct error err = ERROR_INIT;
    auto_close int fd = -1;
    int64_t size;

    cr_assert(eq(int, recipe_context(&recipe, "/tmp", &fd, &size, tag, &err), 0), "%s", err.text);
    cr_assert(gt(i64, size, 0));
    cr_assert(eq(sz, strlen(tag), RECIPE_TAG_BYTES - 1));
}

Test(provider_recipe, a_context_is_named_by_what_goes_into_it)
{
    char first[RECIPE_TAG_BYTES], again[RECIPE_TAG_BYTES], below[250];
    const struct provider_recipe recipe = {.alias = "a", .dockerfile_dir = dir};
    struct error err = ERROR_INIT;
    auto_close int fd = -1;
    int64_t size;

    cr_assert(mkdtemp(dir) != NULL);
    cr_assert(eq(int, recipe_context(&recipe, "/tmp", &fd, &size, first, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_INVALID)); /* no Dockerfile */
    put("Dockerfile", "FROM x\nCOPY f d /\n", 0644);
    put("f", "one", 0644);
    (void)snprintf(below, sizeof below, "%s/d", dir);
    cr_assert(eq(int, mkdir(below, 0755), 0));
    put("d/g", "", 0755);
    (void)snprintf(below, sizeof below, "%s/link", dir);
    cr_assert(eq(int, symlink("../outside", below), 0)); /* as it is: never followed */
    tag_of(first);
    put("f", "one", 0644); /* another inode, another time */
    tag_of(again);
    cr_assert(eq(str, first, again));
    put("f", "two", 0644);
    tag_of(again);
    cr_assert(ne(str, first, again));
    put("f", "one", 0755);
    tag_of(again);
    cr_assert(ne(str, first, again));
    put("f", "one", 0644);
    tag_of(again);
    cr_assert(eq(str, first, again));
    (void)snprintf(below, sizeof below, "%s/fifo", dir);
    cr_assert(eq(int, mkfifo(below, 0600), 0));
    error_clear(&err);
    cr_assert(eq(int, recipe_context(&recipe, "/tmp", &fd, &size, again, &err), -1));
    cr_assert(eq(int, (int)err.code, ERROR_INVALID));
}
