#include "provider_files.h"

#include "agent_files.h"

#include <errno.h>
#include <string.h>

enum { PIECE_MAX = 1024 * 1024, RECORD_MAX = sizeof(struct agent_file_record) + AGENT_FILE_BYTES_MAX };

_Static_assert((int)FILE_RECORD_ENTRY == (int)AGENT_FILE_ENTRY && (int)FILE_RECORD_END == (int)AGENT_FILE_END &&
                   (int)FILE_RECORD_SKIPPED == (int)AGENT_FILE_SKIPPED,
               "kinds are the wire's");
_Static_assert((int)FILE_TYPE_REGULAR == (int)AGENT_FILE_REGULAR && (int)FILE_TYPE_OTHER == (int)AGENT_FILE_OTHER,
               "types are the wire's");

void file_reader_init(struct file_reader *reader)
{
    *reader = (struct file_reader){.bytes = BUF_INIT(RECORD_MAX + PIECE_MAX)};
}

void file_reader_done(struct file_reader *reader)
{
    buf_done(&reader->bytes);
}

static void restore(struct file_reader *reader)
{
    if (reader->nul_at)
        *reader->nul_at = reader->held;
    reader->nul_at = NULL;
}

int file_reader_put(struct file_reader *reader, const void *data, size_t size, struct error *err)
{
    struct error why = ERROR_INIT;

    restore(reader);
    buf_consume(&reader->bytes, reader->at);
    reader->at = 0;
    return buf_append(&reader->bytes, data, size, &why) < 0 ? fail(err, ENGINE, "%.200s", why.text) : 0;
}

static bool is_name(const char *name, size_t size)
{
    return size > 0 && size <= AGENT_FILE_NAME_MAX && !memchr(name, '/', size) && !memchr(name, '\0', size) &&
           !(name[0] == '.' && (size == 1 || (size == 2 && name[1] == '.')));
}

/* Names with one slash between each two. */
static bool is_path(const char *path, size_t size)
{
    while (size > 0) {
        const char *slash = memchr(path, '/', size);
        size_t part = slash ? (size_t)(slash - path) : size;

        if (!is_name(path, part))
            return false;
        if (!slash)
            return true;
        path += part + 1;
        size -= part + 1;
    }
    return false;
}

static bool is_bare(const struct agent_file_record *record)
{
    return record->type == 0 && record->mode == 0 && record->size_bytes == 0 && record->mtime_unix_us == 0 &&
           record->inode == 0;
}

static bool is_sound(const struct agent_file_record *record, const char *bytes)
{
    const size_t size = record->length;
    const bool fails = record->error > 0 && record->error < 4096;

    switch (record->kind) {
    case AGENT_FILE_ENTRY:
        return record->error == 0 && record->type >= AGENT_FILE_REGULAR && record->type <= AGENT_FILE_OTHER &&
               record->mode <= 07777 && record->size_bytes <= INT64_MAX && (size == 0 || is_name(bytes, size));
    case AGENT_FILE_DIR:
        return is_bare(record) && (record->error == 0 || fails) && (size == 0 || is_path(bytes, size));
    case AGENT_FILE_DATA:
        return is_bare(record) && record->error == 0 && size > 0;
    case AGENT_FILE_DONE:
    case AGENT_FILE_END:
        return is_bare(record) && record->error == 0 && size == 0;
    case AGENT_FILE_SKIPPED:
    case AGENT_FILE_FAILED:
        return is_bare(record) && fails && size == 0;
    default:
        return false;
    }
}

int file_reader_next(struct file_reader *reader, struct file_record *ret, struct error *err)
{
    const size_t left = reader->bytes.size - reader->at;
    struct agent_file_record record;
    char *bytes;

    restore(reader);
    if (left > 0 && reader->over)
        return fail(err, ENGINE, "the sandbox's file applet says more after its end");
    if (left < sizeof record)
        return 0;
    memcpy(&record, reader->bytes.data + reader->at, sizeof record);
    if (record.magic != AGENT_FILE_MAGIC || record.reserved != 0 || record.length > AGENT_FILE_BYTES_MAX)
        return fail(err, ENGINE, "the sandbox's file applet says something that is no record");
    if (left - sizeof record < record.length)
        return 0;
    bytes = reader->bytes.data + reader->at + sizeof record;
    if (!is_sound(&record, bytes))
        return fail(err, ENGINE, "the sandbox's file applet says nonsense: a record of kind %u", record.kind);
    reader->at += sizeof record + record.length;
    reader->over = record.kind == AGENT_FILE_END || record.kind == AGENT_FILE_FAILED;
    if (record.kind != AGENT_FILE_DATA) { /* a buffer has room for a NUL behind its end */
        reader->nul_at = bytes + record.length;
        reader->held = *reader->nul_at;
        *reader->nul_at = '\0';
    }
    *ret = (struct file_record){.kind = record.kind,
                                .type = record.type,
                                .mode = record.mode,
                                .sys_errno = record.error,
                                .size_bytes = (int64_t)record.size_bytes,
                                .mtime_unix_us = record.mtime_unix_us,
                                .inode = record.inode,
                                .bytes = bytes,
                                .size = record.length};
    return 1;
}

bool file_reader_over(const struct file_reader *reader)
{
    return reader->over;
}

static enum error_code code_of(int sys_errno)
{
    switch (sys_errno) {
    case ENOENT:
        return ERROR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
    case EBUSY:
    case ETXTBSY:
        return ERROR_FORBIDDEN;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
        return ERROR_NO_SPACE;
    case EFBIG:
    case ENOMEM:
        return ERROR_TOO_LARGE;
    default: /* of this path, whatever it is: EISDIR, ENOTDIR, EEXIST, EINVAL, ENXIO, ELOOP, ENAMETOOLONG, EIO … */
        return ERROR_INVALID;
    }
}

int file_record_fail(int sys_errno, struct error *err)
{
    char reason[64];

    return error_set(err, code_of(sys_errno), sys_errno, "%s", strerror_r(sys_errno, reason, sizeof reason));
}
