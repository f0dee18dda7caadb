/* Making archives. */
#include "alloc.h"
#include "pack_private.h"
#include "pack_read.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

enum { ZERO_BYTES = 64 * 1024, CONSUME_BYTES = 64 * 1024, NAMES_MAX_BYTES = 900, CANCEL_EVERY = 64 };

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
    struct pack_reader *reader;
    struct archive *archive;
    struct archive *compressor; /* takes what `archive` makes; NULL: nothing does */
    bool refuses;               /* at an early end: what is written fails … */
    bool discards;              /* … or is thrown away */
    struct archive_entry *entry;
    bool has_links; /* the format knows hard links */
    bool closed;
    struct buf out; /* made and not yet taken, from `taken` on */
    size_t taken;
    bool in_file;     /* its header is written, its end is not */
    uint64_t to_fill; /* with zeros: it came to its end too early */
    unsigned long steps;
    struct pack_report report;
    struct buf names;
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
    bool set =
        (format == PACK_ZIP ? archive_write_set_format_zip(archive) : archive_write_set_format_pax(archive)) ==
            ARCHIVE_OK &&
        archive_write_set_bytes_per_block(archive, 0) == ARCHIVE_OK &&
        (format != PACK_ZIP || archive_write_set_options(archive, "hdrcharset=UTF-8,experimental") == ARCHIVE_OK);

    if ((format == PACK_TAR_GZ || format == PACK_TAR_ZST) && set_compressor(pack, format, err) < 0)
        return -1;
    set = set &&
          archive_write_open(archive, pack, NULL, pack->compressor ? write_compressed : write_out, NULL) == ARCHIVE_OK;
    return set ? 0 : fail(err, INTERNAL, "libarchive: %s", archive_error_string(archive));
}

int pack_new(struct workspace *workspace, const char *path, enum pack_format format, struct pack **ret,
             struct error *err)
{
    auto_pack_locale locale_t before = pack_locale_enter();
    struct pack *pack = alloc_zero(sizeof *pack);

    (void)before;
    pack->has_links = format != PACK_ZIP;
    pack->out.max = 64u * 1024 * 1024;
    pack->names.max = NAMES_MAX_BYTES;
    pack->archive = archive_write_new();
    pack->entry = archive_entry_new();
    if (!pack->archive || !pack->entry)
        abort();
    if (set_format(pack, format, err) < 0 ||
        pack_reader_new(workspace, path, pack->has_links, &pack->reader, err) < 0) {
        pack_free(pack);
        return -1;
    }
    *ret = pack;
    return 0;
}

void pack_free(struct pack *pack)
{
    if (!pack)
        return;
    /* libarchive lets go of what it has for an unfinished file only when that is finished: of a tar with as many zeros as are left,
     * so that is refused; of a zip with a few bytes. */
    pack->discards = true;
    pack->refuses = pack->has_links;
    if (pack->in_file)
        (void)archive_write_finish_entry(pack->archive);
    pack->refuses = false;
    archive_write_free(pack->archive);
    archive_write_free(pack->compressor);
    archive_entry_free(pack->entry);
    pack_reader_free(pack->reader);
    buf_done(&pack->out);
    buf_done(&pack->names);
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

static int put_entry(struct pack *pack, const struct pack_item *item, struct error *err)
{
    struct archive_entry *entry = archive_entry_clear(pack->entry);
    bool has_content = S_ISREG(item->status.st_mode) && !item->same_as;
    int result;

    archive_entry_copy_pathname(entry, item->path);
    archive_entry_set_mode(entry, item->status.st_mode);
    archive_entry_set_uid(entry, item->status.st_uid);
    archive_entry_set_gid(entry, item->status.st_gid);
    archive_entry_set_mtime(entry, item->status.st_mtim.tv_sec, item->status.st_mtim.tv_nsec);
    archive_entry_set_size(entry, has_content ? item->status.st_size : 0);
    if (item->target)
        archive_entry_copy_symlink(entry, item->target);
    if (item->same_as)
        archive_entry_copy_hardlink(entry, item->same_as);
    result = archive_write_header(pack->archive, entry);
    if (result == ARCHIVE_FATAL)
        return fail(err, INTERNAL, "libarchive: %s", archive_error_string(pack->archive));
    if (result < ARCHIVE_WARN) { /* this one cannot be told in this format; its content is passed over */
        skip(pack, item->path);
        return 0;
    }
    pack->report.entries++;
    pack->in_file = has_content;
    return 0;
}

static int put_content(struct pack *pack, const char *data, size_t size, struct error *err)
{
    if (archive_write_data(pack->archive, data, size) < 0)
        return fail(err, INTERNAL, "libarchive: %s", archive_error_string(pack->archive));
    return 0;
}

static int end_file(struct pack *pack, struct error *err)
{
    pack->in_file = false;
    if (archive_write_finish_entry(pack->archive) < ARCHIVE_WARN)
        return fail(err, INTERNAL, "libarchive: %s", archive_error_string(pack->archive));
    return 0;
}

/* A file that became shorter, or could not be read on: zeros up to the size that was told. */
static int fill(struct pack *pack, struct error *err)
{
    static const char zeros[ZERO_BYTES];
    size_t size = pack->to_fill < ZERO_BYTES ? (size_t)pack->to_fill : ZERO_BYTES;

    pack->to_fill -= size;
    if (put_content(pack, zeros, size, err) < 0)
        return -1;
    return pack->to_fill > 0 ? 0 : end_file(pack, err);
}

static int put_item(struct pack *pack, const struct pack_item *item, struct error *err)
{
    switch (item->kind) {
    case PACK_ITEM_ENTRY:
        return put_entry(pack, item, err);
    case PACK_ITEM_CONTENT:
        return pack->in_file ? put_content(pack, item->data, item->size, err) : 0;
    case PACK_ITEM_END:
        if (!pack->in_file)
            return 0;
        if (item->missing == 0)
            return end_file(pack, err);
        pack->report.changed++;
        note(pack, item->path);
        pack->to_fill = item->missing;
        return 0;
    case PACK_ITEM_SKIPPED:
        skip(pack, item->path);
        return 0;
    }
    return 0;
}

static int step(struct pack *pack, const struct cancel *cancel, struct error *err)
{
    struct pack_item item;
    int more;

    if (pack->to_fill > 0)
        return fill(pack, err);
    more = pack_reader_next(pack->reader, cancel, &item, err);
    if (more != 0)
        return more < 0 ? -1 : put_item(pack, &item, err);
    pack->closed = true;
    if (archive_write_close(pack->archive) < ARCHIVE_WARN)
        return fail(err, INTERNAL, "libarchive: %s", archive_error_string(pack->archive));
    if (pack->compressor && archive_write_close(pack->compressor) < ARCHIVE_WARN)
        return fail(err, INTERNAL, "libarchive: %s", archive_error_string(pack->compressor));
    return 0;
}

int64_t pack_next(struct pack *pack, const struct cancel *cancel, char *out, size_t max, struct error *err)
{
    auto_pack_locale locale_t before = pack_locale_enter();
    size_t size;

    (void)before;
    while (pack->out.size - pack->taken < max && !pack->closed)
        if ((pack->steps++ % CANCEL_EVERY == 0 && cancel_check(cancel, err) < 0) || step(pack, cancel, err) < 0)
            return -1;
    size = pack->out.size - pack->taken < max ? pack->out.size - pack->taken : max;
    memcpy(out, buf_str(&pack->out) + pack->taken, size);
    pack->taken += size;
    if (pack->taken == pack->out.size) {
        buf_clear(&pack->out);
        pack->taken = 0;
    } else if (pack->taken > CONSUME_BYTES) {
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
