#include "cli_tar.h"

#include "alloc.h"
#include "buf.h"
#include "cli_private.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 64 * 1024, AHEAD_MAX_BYTES = 16 * 1024 * 1024 };

static int fail_archive(struct archive *archive, const char *what, struct error *err)
{
    const char *text = archive_error_string(archive);

    return error_set(err, ERROR_INTERNAL, EIO, "%s: %.160s", what, text ? text : "it failed");
}

/* -- packing -- */

struct cli_pack {
    struct archive *disk;
    struct archive *out;
    struct archive_entry *entry;
    struct buf ahead;
    int dir;      /* where we were before */
    int file;     /* of the entry whose bytes are under way; -1: none */
    int64_t left; /* of them */
    bool is_done;
    unsigned skipped;
};

static la_ssize_t keep(struct archive *archive, void *context, const void *data, size_t size)
{
    struct cli_pack *pack = context;
    struct error err = ERROR_INIT;

    if (buf_append(&pack->ahead, data, size, &err) == 0)
        return (la_ssize_t)size;
    archive_set_error(archive, ENOMEM, "%s", err.text);
    return -1;
}

void cli_pack_free(struct cli_pack *pack)
{
    if (!pack)
        return;
    if (pack->disk)
        (void)archive_read_free(pack->disk);
    if (pack->out)
        (void)archive_write_free(pack->out);
    archive_entry_free(pack->entry);
    if (pack->file >= 0)
        (void)close(pack->file);
    if (pack->dir >= 0) {
        if (fchdir(pack->dir) < 0)
            (void)fprintf(stderr, "berth: the directory we were in is gone\n");
        (void)close(pack->dir);
    }
    buf_done(&pack->ahead);
    free(pack);
}

int cli_pack_open(const char *dir, struct cli_pack **ret, struct error *err)
{
    struct cli_pack *pack = alloc_zero(sizeof *pack);

    pack->ahead = (struct buf)BUF_INIT(AHEAD_MAX_BYTES);
    pack->file = -1;
    pack->dir = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pack->disk = archive_read_disk_new();
    pack->out = archive_write_new();
    pack->entry = archive_entry_new();
    if (pack->dir < 0 || chdir(dir) < 0) {
        (void)error_set(err, ERROR_INTERNAL, errno, "%s: %s", dir, strerror(errno));
    } else if (!pack->disk || !pack->out || !pack->entry ||
               archive_read_disk_set_symlink_physical(pack->disk) != ARCHIVE_OK ||
               archive_read_disk_set_behavior(pack->disk, ARCHIVE_READDISK_NO_XATTR | ARCHIVE_READDISK_NO_ACL |
                                                              ARCHIVE_READDISK_NO_FFLAGS) != ARCHIVE_OK ||
               archive_read_disk_open(pack->disk, ".") != ARCHIVE_OK ||
               archive_write_set_format_pax_restricted(pack->out) != ARCHIVE_OK ||
               archive_write_set_bytes_per_block(pack->out, 0) != ARCHIVE_OK ||
               archive_write_open(pack->out, pack, NULL, keep, NULL) != ARCHIVE_OK) {
        (void)fail(err, INTERNAL, "libarchive cannot begin");
    } else {
        *ret = pack;
        return 0;
    }
    cli_pack_free(pack);
    return -1;
}

static int skip(struct cli_pack *pack, const char *why)
{
    pack->skipped++;
    (void)fprintf(stderr, "berth: left out: %s: %s\n", archive_entry_pathname(pack->entry), why);
    return 0;
}

/* The next entry's head. */
static int begin_entry(struct cli_pack *pack, struct error *err)
{
    mode_t type;
    int result = archive_read_next_header2(pack->disk, pack->entry);

    if (result == ARCHIVE_EOF) {
        pack->is_done = true;
        return archive_write_close(pack->out) == ARCHIVE_OK ? 0 : fail_archive(pack->out, "the archive", err);
    }
    if (result < ARCHIVE_WARN)
        return skip(pack, archive_error_string(pack->disk) ? archive_error_string(pack->disk) : "it cannot be read");
    type = archive_entry_filetype(pack->entry);
    (void)archive_read_disk_descend(pack->disk);
    if (type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK)
        return skip(pack, "neither a file, a directory nor a link");
    if (type == AE_IFREG) {
        pack->file = open(archive_entry_sourcepath(pack->entry), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (pack->file < 0)
            return skip(pack, strerror(errno));
        pack->left = archive_entry_size(pack->entry);
    }
    if (archive_write_header(pack->out, pack->entry) < ARCHIVE_WARN)
        return fail_archive(pack->out, "the archive", err);
    return 0;
}

/* A file that shrinks meanwhile is filled up: its size was said before. */
static int write_piece(struct cli_pack *pack, struct error *err)
{
    static char piece[PIECE_BYTES];
    size_t wanted = pack->left < PIECE_BYTES ? (size_t)pack->left : PIECE_BYTES;
    ssize_t size = wanted ? read(pack->file, piece, wanted) : 0;

    if (wanted && size <= 0) {
        memset(piece, 0, wanted);
        if (pack->left == archive_entry_size(pack->entry) || size < 0)
            (void)skip(pack, size < 0 ? strerror(errno) : "it shrank while it was read");
        size = (ssize_t)wanted;
    }
    if (size > 0 && archive_write_data(pack->out, piece, (size_t)size) != size)
        return fail_archive(pack->out, "the archive", err);
    pack->left -= size;
    if (pack->left == 0) {
        (void)close(pack->file);
        pack->file = -1;
    }
    return 0;
}

int64_t cli_pack_next(void *context, char *out, size_t max, struct error *err)
{
    struct cli_pack *pack = context;
    size_t size;

    while (pack->ahead.size == 0) {
        if (pack->is_done)
            return 0;
        if ((pack->file >= 0 ? write_piece(pack, err) : begin_entry(pack, err)) < 0)
            return -1;
    }
    size = pack->ahead.size < max ? pack->ahead.size : max;
    memcpy(out, pack->ahead.data, size);
    buf_consume(&pack->ahead, size);
    return (int64_t)size;
}

unsigned cli_pack_skipped(const struct cli_pack *pack)
{
    return pack->skipped;
}

/* -- unpacking -- */

struct unpack {
    int (*next)(void *context, const char **ret_data, size_t *ret_size, struct error *err);
    void *context;
    struct error why;
};

static la_ssize_t give(struct archive *archive, void *context, const void **ret_data)
{
    struct unpack *unpack = context;
    const char *data;
    size_t size;
    int more = unpack->next(unpack->context, &data, &size, &unpack->why);

    if (more < 0)
        archive_set_error(archive, EIO, "%s", unpack->why.text);
    *ret_data = data;
    return more > 0 ? (la_ssize_t)size : more;
}

static bool is_wanted(struct archive_entry *entry)
{
    mode_t type = archive_entry_filetype(entry);

    return type == AE_IFREG || type == AE_IFDIR || type == AE_IFLNK || archive_entry_hardlink(entry);
}

static int copy_data(struct archive *in, struct archive *disk)
{
    const void *data;
    size_t size;
    int64_t offset;
    int result;

    while ((result = archive_read_data_block(in, &data, &size, &offset)) == ARCHIVE_OK)
        if (archive_write_data_block(disk, data, size, offset) < ARCHIVE_WARN)
            return ARCHIVE_WARN; /* said by archive_error_string(disk) */
    return result == ARCHIVE_EOF ? ARCHIVE_OK : ARCHIVE_FATAL;
}

static void tell_skipped(struct archive_entry *entry, const char *why, bool quiet)
{
    auto_buf struct buf name = BUF_INIT(64 * 1024);
    const char *path = archive_entry_pathname(entry);
    struct error err = ERROR_INIT;

    if (quiet || !path || cli_escape(&name, path, strlen(path), true, &err) < 0)
        return;
    (void)fprintf(stderr, "berth: left out: %s: %.160s\n", buf_str(&name), why ? why : "it cannot be made");
}

static int unpack_all(struct archive *in, struct archive *disk, bool quiet, unsigned *ret_skipped, struct error *err)
{
    struct archive_entry *entry;
    int result;

    while ((result = archive_read_next_header(in, &entry)) == ARCHIVE_OK || result == ARCHIVE_WARN) {
        const char *why = "neither a file, a directory nor a link";
        bool good = is_wanted(entry);

        if (good) {
            archive_entry_set_perm(entry, archive_entry_perm(entry) & 0777);
            good = archive_write_header(disk, entry) >= ARCHIVE_WARN;
            if (good && archive_entry_size(entry) > 0) {
                result = copy_data(in, disk);
                if (result == ARCHIVE_FATAL)
                    return fail_archive(in, "the archive broke off", err);
                good = result == ARCHIVE_OK;
            }
            good = archive_write_finish_entry(disk) >= ARCHIVE_WARN && good;
            why = archive_error_string(disk);
        }
        if (!good) {
            (*ret_skipped)++;
            tell_skipped(entry, why, quiet);
            archive_clear_error(disk);
        }
    }
    return result == ARCHIVE_EOF ? 0 : fail_archive(in, "the archive broke off", err);
}

int cli_unpack(const char *dir, int (*next)(void *context, const char **ret_data, size_t *ret_size, struct error *err),
               void *context, bool quiet, unsigned *ret_skipped, struct error *err)
{
    struct unpack unpack = {next, context, ERROR_INIT};
    auto_close int before = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct archive *in = archive_read_new();
    struct archive *disk = archive_write_disk_new();
    int result = -1;

    if (!in || !disk || archive_read_support_format_tar(in) != ARCHIVE_OK ||
        archive_write_disk_set_options(disk, ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME |
                                                 ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
                                                 ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS) != ARCHIVE_OK)
        (void)fail(err, INTERNAL, "libarchive cannot begin");
    else if (before < 0 || (mkdir(dir, 0777) < 0 && errno != EEXIST) || chdir(dir) < 0)
        (void)error_set(err, ERROR_INTERNAL, errno, "%s: %s", dir, strerror(errno));
    else if (archive_read_open(in, &unpack, NULL, give, NULL) != ARCHIVE_OK)
        (void)fail_archive(in, "the archive", err);
    else
        result = unpack_all(in, disk, quiet, ret_skipped, err);
    if (result < 0 && unpack.why.code != ERROR_NONE)
        *err = unpack.why;
    if (disk && archive_write_free(disk) != ARCHIVE_OK && result == 0)
        result = fail(err, INTERNAL, "%s: not everything was written", dir);
    if (in)
        (void)archive_read_free(in);
    if (before >= 0 && fchdir(before) < 0)
        return error_set(err, ERROR_INTERNAL, errno, "the directory we were in is gone");
    return result;
}
