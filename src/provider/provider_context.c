/* Build contexts, as tars. */
#include "alloc.h"
#include "cleanup.h"
#include "fd.h"
#include "provider_recipe.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 64, PIECE_BYTES = 64 * 1024 };

DEFINE_CLEANUP(archive, struct archive *, archive_write_free)
DEFINE_CLEANUP(entry, struct archive_entry *, archive_entry_free)

struct packing {
    struct archive *tar;
    int64_t bytes; /* of contents */
    int entries;
};

static int refused(struct packing *packing, const char *name, struct error *err)
{
    return fail(err, INTERNAL, "%.100s: %.100s", name, archive_error_string(packing->tar));
}

static int put_header(struct packing *packing, const char *name, mode_t mode, int64_t size, const char *link,
                      struct error *err)
{
    auto_cleanup(cleanup_entry) struct archive_entry *entry = archive_entry_new();

    if (++packing->entries > RECIPE_ENTRIES_MAX)
        return fail(err, TOO_LARGE, "the folder holds more than %d files", RECIPE_ENTRIES_MAX);
    archive_entry_set_pathname(entry, name);
    archive_entry_set_mode(entry, mode);
    archive_entry_set_size(entry, size);
    archive_entry_set_mtime(entry, 0, 0);
    if (link)
        archive_entry_set_symlink(entry, link);
    return archive_write_header(packing->tar, entry) == ARCHIVE_OK ? 0 : refused(packing, name, err);
}

static int put_data(struct packing *packing, const char *name, const void *data, size_t size, struct error *err)
{
    packing->bytes += (int64_t)size;
    if (packing->bytes > RECIPE_CONTEXT_MAX_BYTES)
        return fail(err, TOO_LARGE, "the folder holds more than %lld bytes", (long long)RECIPE_CONTEXT_MAX_BYTES);
    return archive_write_data(packing->tar, data, size) == (la_ssize_t)size ? 0 : refused(packing, name, err);
}

static int put_file(struct packing *packing, int dir, const char *base, const char *name, const struct stat *status,
                    struct error *err)
{
    auto_close int fd = openat(dir, base, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    auto_free char *piece = alloc_zero(PIECE_BYTES);

    if (fd < 0)
        return fail_errno(err, "%.100s", name);
    if (put_header(packing, name, S_IFREG | (status->st_mode & 0777), status->st_size, NULL, err) < 0)
        return -1;
    for (int64_t at = 0; at < status->st_size;) {
        int64_t left = status->st_size - at;
        ssize_t got = fd_pread_full(fd, piece, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES, at, err);

        if (got < 0)
            return -1;
        if (got == 0)
            return fail(err, INVALID, "%.100s changed while it was read", name);
        if (put_data(packing, name, piece, (size_t)got, err) < 0)
            return -1;
        at += got;
    }
    return 0;
}

static int put_link(struct packing *packing, int dir, const char *base, const char *name, struct error *err)
{
    char target[PATH_MAX];
    ssize_t size = readlinkat(dir, base, target, sizeof target - 1);

    if (size < 0)
        return fail_errno(err, "%.100s", name);
    target[size] = '\0';
    return put_header(packing, name, S_IFLNK | 0777, 0, target, err);
}

struct names {
    char **list;
    size_t count;
};

static void names_done(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int read_names(int fd, const char *name, struct names *names, struct error *err)
{
    auto_dir DIR *dir = fdopendir(fd);
    struct dirent *item;

    if (!dir) {
        (void)close(fd);
        return fail_errno(err, "%.100s", name);
    }
    while ((errno = 0, item = readdir(dir)) != NULL) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
            continue;
        if (names->count >= RECIPE_ENTRIES_MAX)
            return fail(err, TOO_LARGE, "the folder holds more than %d files", RECIPE_ENTRIES_MAX);
        names->list = alloc_grow(names->list, names->count + 1, sizeof *names->list);
        names->list[names->count++] = alloc_str(item->d_name);
    }
    if (errno != 0)
        return fail_errno(err, "%.100s", name);
    qsort(names->list, names->count, sizeof *names->list, by_name);
    return 0;
}

/* The folder `dir`, whose entries get `prefix` in front. */
static int put_folder(struct packing *packing, int dir, const char *prefix, int depth, struct error *err)
{
    auto_cleanup(names_done) struct names names = {NULL, 0};
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return fail_errno(err, "%.100s", prefix);
    if (depth > DEPTH_MAX)
        return fail(err, TOO_LARGE, "%.100s: more than %d folders deep", prefix, DEPTH_MAX);
    if (read_names(fd, prefix, &names, err) < 0)
        return -1;
    for (size_t i = 0; i < names.count; i++) {
        const char *base = names.list[i];
        auto_free char *name = alloc_format("%s%s", prefix, base);
        struct stat status;
        int result;

        if (fstatat(dir, base, &status, AT_SYMLINK_NOFOLLOW) < 0)
            return fail_errno(err, "%.100s", name);
        if (S_ISREG(status.st_mode)) {
            result = put_file(packing, dir, base, name, &status, err);
        } else if (S_ISLNK(status.st_mode)) {
            result = put_link(packing, dir, base, name, err);
        } else if (S_ISDIR(status.st_mode)) {
            auto_close int below = openat(dir, base, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
            auto_free char *inside = alloc_format("%s/", name);

            result = below < 0 ? fail_errno(err, "%.100s", name)
                               : put_header(packing, inside, S_IFDIR | (status.st_mode & 0777), 0, NULL, err);
            if (result == 0)
                result = put_folder(packing, below, inside, depth + 1, err);
        } else {
            result = fail(err, INVALID, "%.100s is neither file, folder nor link", name);
        }
        if (result < 0)
            return -1;
    }
    return 0;
}

static int put_recipe(struct packing *packing, const struct provider_recipe *recipe, struct error *err)
{
    auto_buf struct buf text = BUF_INIT(RECIPE_TEXT_MAX);
    struct stat status;
    auto_close int dir = -1;

    if (!recipe->dockerfile_dir)
        return recipe_dockerfile(recipe, &text, err) < 0 ||
                       put_header(packing, "Dockerfile", S_IFREG | 0644, (int64_t)text.size, NULL, err) < 0 ||
                       put_data(packing, "Dockerfile", text.data, text.size, err) < 0
                   ? -1
                   : 0;
    dir = open(recipe->dockerfile_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return fail_errno(err, "%.100s", recipe->dockerfile_dir);
    if (fstatat(dir, "Dockerfile", &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(status.st_mode))
        return fail(err, INVALID, "%.100s has no Dockerfile", recipe->dockerfile_dir);
    return put_folder(packing, dir, "", 0, err);
}

static int digest(int fd, int64_t *ret_size_bytes, char ret_tag[RECIPE_TAG_BYTES], struct error *err)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    auto_free char *piece = alloc_zero(PIECE_BYTES);
    crypto_hash_sha256_state state;
    ssize_t got;

    crypto_hash_sha256_init(&state);
    *ret_size_bytes = 0;
    while ((got = fd_pread_full(fd, piece, PIECE_BYTES, *ret_size_bytes, err)) > 0) {
        crypto_hash_sha256_update(&state, (const unsigned char *)piece, (unsigned long long)got);
        *ret_size_bytes += got;
    }
    crypto_hash_sha256_final(&state, hash);
    (void)sodium_bin2hex(ret_tag, RECIPE_TAG_BYTES, hash, (RECIPE_TAG_BYTES - 1) / 2);
    return got < 0 ? -1 : 0;
}

int recipe_context(const struct provider_recipe *recipe, const char *spool_dir, int *ret_fd, int64_t *ret_size_bytes,
                   char ret_tag[RECIPE_TAG_BYTES], struct error *err)
{
    auto_close int fd = open(spool_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    auto_cleanup(cleanup_archive) struct archive *tar = archive_write_new();
    struct packing packing = {.tar = tar};

    if (fd < 0)
        return fail_errno(err, "%.100s", spool_dir);
    if (archive_write_set_format_pax_restricted(tar) != ARCHIVE_OK || archive_write_open_fd(tar, fd) != ARCHIVE_OK)
        return refused(&packing, "tar", err);
    if (put_recipe(&packing, recipe, err) < 0)
        return -1;
    if (archive_write_close(tar) != ARCHIVE_OK)
        return refused(&packing, "tar", err);
    if (digest(fd, ret_size_bytes, ret_tag, err) < 0)
        return -1;
    *ret_fd = take_fd(&fd);
    return 0;
}
