/* Making archives. */
#include "alloc.h"
#include "log.h"
#include "map.h"
#include "pack_private.h"
#include "walk.h"
#include "workspace_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

enum { READ_BYTES = 64 * 1024, NAMES_MAX_BYTES = 900, KNOWN_MAX_BYTES = 16 * 1024 * 1024, CANCEL_EVERY = 64 };

static const struct {
    const char *name;
    const char *suffix;
    const char *type;
} formats[] = {
    [PACK_TAR] = {"tar", ".tar", "application/x-tar"},
    [PACK_TAR_GZ] = {"tar.gz", ".tar.gz", "application/gzip"},
    [PACK_TAR_ZST] = {"tar.zst", ".tar.zst", "application/zstd"},
    [PACK_ZIP] = {"zip", ".zip", "application/zip"},
};

enum pack_format pack_format_of(const char *name)
{
    for (int i = PACK_TAR; i < PACK_UNKNOWN; i++)
        if (strcmp(name, formats[i].name) == 0)
            return (enum pack_format)i;
    return strcmp(name, "tgz") == 0 ? PACK_TAR_GZ : PACK_UNKNOWN;
}

const char *pack_format_suffix(enum pack_format format)
{
    return formats[format].suffix;
}

const char *pack_format_type(enum pack_format format)
{
    return formats[format].type;
}

/* -- the locale -- */

static locale_t utf8_locale;

static void make_locale(void)
{
    utf8_locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

locale_t pack_locale_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, make_locale);
    return uselocale(utf8_locale); /* 0, where there is none: asks only */
}

/* -- making -- */

struct pack {
    struct workspace *workspace;
    struct walk *walk;
    struct archive *archive;
    struct archive *compressor; /* takes what `archive` makes; NULL: nothing does */
    bool refuses;               /* at an early end: what is written fails … */
    bool discards;              /* … or is thrown away */
    struct archive_entry *entry;
    bool has_links; /* the format knows hard links */
    bool closed;
    struct buf out; /* made and not yet taken, from `taken` on */
    size_t taken;
    int file; /* being read; -1 */
    uint64_t left;
    bool filling; /* with zeros: it has come to its end too early */
    char *file_path;
    struct map links; /* "dev:inode" of files with several names -> the first one's path */
    size_t links_bytes;
    unsigned long steps;
    struct pack_report report;
    struct buf names;
    char block[READ_BYTES];
};

static la_ssize_t write_out(struct archive *archive, void *context, const void *data, size_t size)
{
    struct pack *pack = context;
    struct error err = ERROR_INIT;

    if (pack->refuses)
        return -1;
    if (pack->discards)
        return (la_ssize_t)size;

    if (buf_append(&pack->out, data, size, &err) == 0)
        return (la_ssize_t)size;
    archive_set_error(archive, ENOMEM, "more than a step may make");
    return -1;
}

/* What was archived, to be compressed. */
static la_ssize_t write_compressed(struct archive *archive, void *context, const void *data, size_t size)
{
    struct pack *pack = context;
    la_ssize_t written = pack->refuses ? -1 : archive_write_data(pack->compressor, data, size);

    if (written < 0 && !pack->refuses)
        archive_set_error(archive, EIO, "%s", archive_error_string(pack->compressor));
    return written;
}

/* A writer of its own, not a filter of the archive's: an archive that ends early must be told so at once, not after it has compressed
 * the zeros that it fills an unfinished file up with (libarchive forgets memory otherwise). */
static int set_compressor(struct pack *pack, enum pack_format format, struct error *err)
{
    struct archive *compressor = pack->compressor = archive_write_new();
    bool set;

    if (!compressor)
        abort();
    set = archive_write_set_format_raw(compressor) == ARCHIVE_OK &&
          archive_write_set_bytes_per_block(compressor, 0) == ARCHIVE_OK;
    if (format == PACK_TAR_GZ)
        set = set && archive_write_add_filter_gzip(compressor) == ARCHIVE_OK &&
              archive_write_set_options(compressor, "gzip:compression-level=4") == ARCHIVE_OK;
    else
        set = set && archive_write_add_filter_zstd(compressor) == ARCHIVE_OK;
    archive_entry_set_filetype(pack->entry, AE_IFREG);
    archive_entry_unset_size(pack->entry);
    set = set && archive_write_open(compressor, pack, NULL, write_out, NULL) == ARCHIVE_OK &&
          archive_write_header(compressor, pack->entry) == ARCHIVE_OK;
    return set ? 0 : fail(err, INTERNAL, "libarchive: %s", archive_error_string(compressor));
}

static int set_format(struct pack *pack, enum pack_format format, struct error *err)
{
    struct archive *archive = pack->archive;
    bool set = (format == PACK_ZIP ? archive_write_set_format_zip(archive) : archive_write_set_format_pax(archive)) ==
                   ARCHIVE_OK &&
               archive_write_set_bytes_per_block(archive, 0) == ARCHIVE_OK &&
               archive_write_set_options(archive, format == PACK_ZIP ? "hdrcharset=UTF-8,experimental"
                                                                     : "hdrcharset=BINARY") == ARCHIVE_OK;

    if ((format == PACK_TAR_GZ || format == PACK_TAR_ZST) && set_compressor(pack, format, err) < 0)
        return -1;
    set = set &&
          archive_write_open(archive, pack, NULL, pack->compressor ? write_compressed : write_out, NULL) == ARCHIVE_OK;
    return set ? 0 : fail(err, INTERNAL, "libarchive: %s", archive_error_string(archive));
}

int pack_new(struct workspace *workspace, const char *path, enum pack_format format, struct pack **ret,
             struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    auto_pack_locale locale_t before = pack_locale_enter();
    struct pack *pack;
    struct walk *walk;

    (void)before;
    if (workspace_identity_enter(workspace, &guard, err) < 0 || walk_new(workspace, path, &walk, err) < 0)
        return -1;
    pack = alloc_zero(sizeof *pack);
    pack->workspace = workspace_ref(workspace);
    pack->walk = walk;
    pack->file = -1;
    pack->has_links = format != PACK_ZIP;
    pack->out.max = 64u * 1024 * 1024;
    pack->names.max = NAMES_MAX_BYTES;
    pack->archive = archive_write_new();
    pack->entry = archive_entry_new();
    if (!pack->archive || !pack->entry)
        abort();
    if (set_format(pack, format, err) < 0) {
        pack_free(pack);
        return -1;
    }
    *ret = pack;
    return 0;
}

static void free_path(void *value, void *context)
{
    free(value);
}

void pack_free(struct pack *pack)
{
    if (!pack)
        return;
    /* libarchive lets go of what it has for an unfinished file only when that is finished: of a tar with as many zeros as are left,
     * so that is refused; of a zip with a few bytes. */
    pack->discards = true;
    pack->refuses = pack->has_links;
    if (pack->file >= 0)
        (void)archive_write_finish_entry(pack->archive);
    pack->refuses = false;
    cleanup_fd(&pack->file);
    archive_write_free(pack->archive);
    archive_write_free(pack->compressor);
    archive_entry_free(pack->entry);
    walk_free(pack->walk);
    buf_done(&pack->out);
    buf_done(&pack->names);
    map_each(&pack->links, free_path, NULL);
    map_done(&pack->links);
    free(pack->file_path);
    workspace_unref(pack->workspace);
    free(pack);
}

/* Keeps the first names for the report. */
static void note(struct pack *pack, const char *path)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
    struct error err = ERROR_INIT;
    size_t size = pack->names.size;

    if (size && buf_append_str(&pack->names, " ", &err) < 0)
        return;
    for (; *path && err.code == ERROR_NONE; path++)
        if (strchr(plain, *path))
            (void)buf_append(&pack->names, path, 1, &err);
        else
            (void)buf_append_format(&pack->names, &err, "%%%02X", (unsigned char)*path);
    if (err.code != ERROR_NONE) {
        pack->names.size = size; /* half a name is none */
        if (pack->names.data)
            pack->names.data[size] = '\0';
    }
}

static void skip(struct pack *pack, const char *path)
{
    pack->report.skipped++;
    note(pack, path);
}

/* The first path of a file with several names; NULL: this is it. */
static const char *first_name(struct pack *pack, const struct stat *status, const char *path)
{
    char key[48];
    const char *first;
    size_t size = strlen(path) + sizeof key + 64;

    if (!pack->has_links || !S_ISREG(status->st_mode) || status->st_nlink < 2)
        return NULL;
    (void)snprintf(key, sizeof key, "%llx:%llx", (unsigned long long)status->st_dev,
                   (unsigned long long)status->st_ino);
    first = map_get(&pack->links, key);
    if (first || pack->links_bytes + size > KNOWN_MAX_BYTES)
        return first; /* beyond what is kept in mind it is stored once more */
    (void)map_put(&pack->links, key, alloc_str(path));
    pack->links_bytes += size;
    return NULL;
}

static int put_header(struct pack *pack, const char *path, const struct stat *status, const char *link,
                      const char *hard_link, struct error *err)
{
    struct archive_entry *entry = archive_entry_clear(pack->entry);
    int result;

    archive_entry_copy_pathname(entry, path);
    archive_entry_set_mode(entry, status->st_mode);
    archive_entry_set_uid(entry, status->st_uid);
    archive_entry_set_gid(entry, status->st_gid);
    archive_entry_set_mtime(entry, status->st_mtim.tv_sec, status->st_mtim.tv_nsec);
    archive_entry_set_size(entry, S_ISREG(status->st_mode) && !hard_link ? status->st_size : 0);
    if (link)
        archive_entry_copy_symlink(entry, link);
    if (hard_link)
        archive_entry_copy_hardlink(entry, hard_link);
    result = archive_write_header(pack->archive, entry);
    if (result == ARCHIVE_FATAL)
        return fail(err, INTERNAL, "libarchive: %s", archive_error_string(pack->archive));
    if (result < ARCHIVE_WARN) { /* this one cannot be told in this format */
        skip(pack, path);
        return 1;
    }
    pack->report.entries++;
    return 0;
}

static int put_link(struct pack *pack, const struct walk_entry *entry, struct error *err)
{
    auto_close int fd = openat(entry->dir_fd, entry->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    char target[PATH_MAX];
    struct stat status;
    ssize_t size;

    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISLNK(status.st_mode) ||
        (size = readlinkat(fd, "", target, sizeof target - 1)) < 0) {
        skip(pack, entry->path);
        return 0;
    }
    target[size] = '\0';
    return put_header(pack, entry->path, &status, target, NULL, err) < 0 ? -1 : 0;
}

static int put_directory(struct pack *pack, const struct walk_entry *entry, struct error *err)
{
    struct stat status;

    if (fstatat(entry->dir_fd, entry->name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(status.st_mode)) {
        skip(pack, entry->path);
        walk_prune(pack->walk);
        return 0;
    }
    return put_header(pack, entry->path, &status, NULL, NULL, err) < 0 ? -1 : 0;
}

static int put_file(struct pack *pack, const struct walk_entry *entry, struct error *err)
{
    auto_close int fd = openat(entry->dir_fd, entry->name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
    const char *first;
    struct stat status;
    int result;

    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        skip(pack, entry->path);
        return 0;
    }
    first = first_name(pack, &status, entry->path);
    result = put_header(pack, entry->path, &status, NULL, first, err);
    if (result != 0 || first)
        return result < 0 ? -1 : 0;
    pack->file = take_fd(&fd);
    pack->left = (uint64_t)status.st_size;
    free(pack->file_path);
    pack->file_path = alloc_str(entry->path);
    return 0;
}

/* The next piece of the file that is being read. */
static int put_data(struct pack *pack, struct error *err)
{
    size_t wanted = pack->left < READ_BYTES ? (size_t)pack->left : READ_BYTES;
    ssize_t got = wanted && !pack->filling ? read(pack->file, pack->block, wanted) : 0;

    if (got < 0 && errno == EINTR)
        return 0;
    if (got > 0) {
        pack->left -= (uint64_t)got;
        if (archive_write_data(pack->archive, pack->block, (size_t)got) < 0)
            return fail(err, INTERNAL, "libarchive: %s", archive_error_string(pack->archive));
        if (pack->left > 0)
            return 0;
    }
    if (pack->left > 0) { /* it has become shorter, or cannot be read on: zeros up to the size that was told */
        if (!pack->filling) {
            pack->report.changed++;
            note(pack, pack->file_path);
            pack->filling = true;
        }
        memset(pack->block, 0, sizeof pack->block);
        pack->left -= wanted;
        if (archive_write_data(pack->archive, pack->block, wanted) < 0)
            return fail(err, INTERNAL, "libarchive: %s", archive_error_string(pack->archive));
        if (pack->left > 0)
            return 0;
    }
    pack->filling = false;
    cleanup_fd(&pack->file);
    pack->file = -1;
    return archive_write_finish_entry(pack->archive) < ARCHIVE_WARN
               ? fail(err, INTERNAL, "libarchive: %s", archive_error_string(pack->archive))
               : 0;
}

static int put_entry(struct pack *pack, const struct walk_entry *entry, struct error *err)
{
    if (entry->trouble) {
        if (entry->trouble != ENOENT) /* it is gone: as if it had never been */
            skip(pack, entry->path);
        return 0;
    }
    switch (entry->type) {
    case DT_DIR:
        return put_directory(pack, entry, err);
    case DT_LNK:
        return put_link(pack, entry, err);
    case DT_REG:
        return put_file(pack, entry, err);
    default:
        skip(pack, entry->path);
        return 0;
    }
}

static int step(struct pack *pack, struct error *err)
{
    struct walk_entry entry;

    if (pack->file >= 0)
        return put_data(pack, err);
    if (walk_next(pack->walk, &entry))
        return put_entry(pack, &entry, err);
    pack->closed = true;
    if (archive_write_close(pack->archive) < ARCHIVE_WARN)
        return fail(err, INTERNAL, "libarchive: %s", archive_error_string(pack->archive));
    if (pack->compressor && archive_write_close(pack->compressor) < ARCHIVE_WARN)
        return fail(err, INTERNAL, "libarchive: %s", archive_error_string(pack->compressor));
    return 0;
}

int64_t pack_next(struct pack *pack, const struct cancel *cancel, char *out, size_t max, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    auto_pack_locale locale_t before = pack_locale_enter();
    size_t size;

    (void)before;
    if (workspace_identity_enter(pack->workspace, &guard, err) < 0)
        return -1;
    while (pack->out.size - pack->taken < max && !pack->closed)
        if ((pack->steps++ % CANCEL_EVERY == 0 && cancel_check(cancel, err) < 0) || step(pack, err) < 0)
            return -1;
    size = pack->out.size - pack->taken < max ? pack->out.size - pack->taken : max;
    memcpy(out, buf_str(&pack->out) + pack->taken, size);
    pack->taken += size;
    if (pack->taken == pack->out.size) {
        buf_clear(&pack->out);
        pack->taken = 0;
    } else if (pack->taken > READ_BYTES) {
        buf_consume(&pack->out, pack->taken);
        pack->taken = 0;
    }
    return (int64_t)size;
}

void pack_report(const struct pack *pack, struct pack_report *ret)
{
    *ret = pack->report;
    ret->names = buf_str(&pack->names);
}
