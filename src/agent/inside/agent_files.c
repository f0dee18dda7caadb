/* agent/inside/agent_files.c: the file applet: its output, and the verbs that look at one path. See agent_files.h. */
#include "agent_applet.h"
#include "agent_files_private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OUT_BYTES = 128 * 1024, DATA_LEAST = 4 * 1024, DIRENT_BYTES = 32 * 1024, PIECE_BYTES = PATH_MAX - 1 };

static char out[OUT_BYTES];
static size_t out_size;

void files_flush(void)
{
    size_t at = 0;

    while (at < out_size) {
        ssize_t put = write(1, out + at, out_size - at);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            _exit(1);
        at += (size_t)put;
    }
    out_size = 0;
}

static void put(const struct agent_file_record *record, const char *bytes)
{
    if (OUT_BYTES - out_size < sizeof *record + record->length)
        files_flush();
    memcpy(out + out_size, record, sizeof *record);
    if (record->length)
        memcpy(out + out_size + sizeof *record, bytes, record->length);
    out_size += sizeof *record + record->length;
}

void files_put(enum agent_file_kind kind, int error, const char *bytes, size_t size)
{
    const struct agent_file_record record = {
        .magic = AGENT_FILE_MAGIC, .kind = (uint8_t)kind, .error = error, .length = (uint32_t)size};

    put(&record, bytes);
}

static uint8_t type_of(mode_t mode)
{
    return S_ISREG(mode)   ? AGENT_FILE_REGULAR
           : S_ISDIR(mode) ? AGENT_FILE_DIRECTORY
           : S_ISLNK(mode) ? AGENT_FILE_LINK
                           : AGENT_FILE_OTHER;
}

void files_put_entry(const struct stat *status, const char *name)
{
    const struct agent_file_record record = {.magic = AGENT_FILE_MAGIC,
                                             .kind = AGENT_FILE_ENTRY,
                                             .type = type_of(status->st_mode),
                                             .mode = status->st_mode & 07777,
                                             .size_bytes = status->st_size > 0 ? (uint64_t)status->st_size : 0,
                                             .mtime_unix_us = (int64_t)status->st_mtim.tv_sec * 1000000 +
                                                              status->st_mtim.tv_nsec / 1000,
                                             .inode = status->st_ino,
                                             .length = (uint32_t)strlen(name)};

    put(&record, name);
}

int files_put_content(int fd, uint64_t max)
{
    struct agent_file_record record = {.magic = AGENT_FILE_MAGIC, .kind = AGENT_FILE_DATA};

    for (;;) {
        size_t room;
        ssize_t got;

        if (OUT_BYTES - out_size < sizeof record + DATA_LEAST)
            files_flush();
        room = OUT_BYTES - out_size - sizeof record;
        if (room > AGENT_FILE_BYTES_MAX)
            room = AGENT_FILE_BYTES_MAX;
        got = read(fd, out + out_size + sizeof record, room);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : 0;
        if ((uint64_t)got > max)
            return EFBIG;
        max -= (uint64_t)got;
        record.length = (uint32_t)got;
        memcpy(out + out_size, &record, sizeof record);
        out_size += sizeof record + (size_t)got;
    }
}

/* A path longer than the kernel takes at once goes in pieces. */
int files_locate(const char *path, int *ret_dir, const char **ret_name)
{
    char piece[PATH_MAX];
    int dir = AT_FDCWD;

    while (strlen(path) > PIECE_BYTES) {
        const char *cut = memrchr(path, '/', PIECE_BYTES);
        size_t size = cut ? (size_t)(cut - path) : 0;
        int next;

        if (size == 0) {
            if (dir >= 0)
                close(dir);
            return ENAMETOOLONG;
        }
        memcpy(piece, path, size);
        piece[size] = '\0';
        next = openat(dir, piece, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (dir >= 0)
            close(dir);
        if (next < 0)
            return errno;
        dir = next;
        path = cut + strspn(cut, "/");
        if (!*path)
            path = ".";
    }
    *ret_dir = dir;
    *ret_name = path;
    return 0;
}

static int judge(const struct stat *status)
{
    return S_ISREG(status->st_mode) ? 0 : S_ISDIR(status->st_mode) ? EISDIR : ENXIO;
}

int files_open_regular(int dir, const char *name, int flags, int *ret_fd, struct stat *ret_status)
{
    int error, fd;

    /* Looked at before it is opened, as opening a device may do something, and after, as it may have been replaced. */
    if (fstatat(dir, name, ret_status, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0) < 0)
        return errno;
    if (flags & O_NOFOLLOW && S_ISLNK(ret_status->st_mode))
        return ELOOP;
    error = judge(ret_status);
    if (error)
        return error;
    fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags);
    if (fd < 0)
        return errno;
    error = fstat(fd, ret_status) < 0 ? errno : judge(ret_status);
    if (error)
        close(fd);
    else
        *ret_fd = fd;
    return error;
}

bool files_is_leftover(const char *name)
{
    return strncmp(name, ".berth-", 7) == 0 && strlen(name) == FILES_LEFTOVER_BYTES - 1 &&
           strspn(name + 7, "0123456789abcdef") == 16;
}

struct dirent_record {
    uint64_t inode;
    int64_t offset;
    unsigned short size;
    unsigned char type;
    char name[];
};

const char *files_next_name(int dir, bool first, int *ret_error)
{
    static char buffer[DIRENT_BYTES] __attribute__((aligned(8)));
    static size_t at, end;

    if (first)
        at = end = 0;
    *ret_error = 0;
    for (;;) {
        const struct dirent_record *entry;

        if (at == end) {
            long got = syscall(SYS_getdents64, dir, buffer, sizeof buffer);

            if (got <= 0) {
                *ret_error = got < 0 ? errno : 0;
                return NULL;
            }
            at = 0;
            end = (size_t)got;
        }
        entry = (const struct dirent_record *)(buffer + at);
        at += entry->size;
        if (strcmp(entry->name, ".") != 0 && strcmp(entry->name, "..") != 0 && !files_is_leftover(entry->name))
            return entry->name;
    }
}

static int verb_stat(const char *path)
{
    struct stat status;
    const char *name;
    int dir, error = files_locate(path, &dir, &name);

    if (error)
        return error;
    if (fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno;
    files_put_entry(&status, "");
    if (fstatat(dir, name, &status, 0) < 0)
        files_put(AGENT_FILE_SKIPPED, errno, NULL, 0);
    else
        files_put_entry(&status, "");
    return 0;
}

static int verb_read(const char *path, uint64_t max)
{
    struct stat status;
    const char *name;
    int dir, fd, error = files_locate(path, &dir, &name);

    if (!error)
        error = files_open_regular(dir, name, 0, &fd, &status);
    if (error)
        return error;
    files_put_entry(&status, "");
    return status.st_size > 0 && (uint64_t)status.st_size > max ? EFBIG : files_put_content(fd, max);
}

static int verb_list(const char *path, uint64_t max)
{
    const char *name;
    int dir, fd, error = files_locate(path, &dir, &name);
    bool first = true;

    if (error)
        return error;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno;
    files_put(AGENT_FILE_DIR, 0, NULL, 0);
    while ((name = files_next_name(fd, first, &error))) {
        struct stat status;

        first = false;
        if (fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            continue; /* it went away, or cannot be seen */
        if (max-- == 0)
            return EFBIG;
        files_put_entry(&status, name);
    }
    return error;
}

static bool number(const char *text, int base, uint64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, base);
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

/* EINVAL for what no broker of this version says. */
static int obey(int argc, char *const *argv)
{
    const char *verb = argc > 0 ? argv[0] : "";
    const char *path = argc > 1 ? argv[1] : "";
    uint64_t size = 0, mode = 0;

    if (argc == 2 && strcmp(verb, "stat") == 0)
        return verb_stat(path);
    if (argc == 3 && strcmp(verb, "walk") == 0)
        return files_walk(path, argv[2], false, 0);
    if (argc == 4 && strcmp(verb, "feed") == 0 && number(argv[3], 10, &size))
        return files_walk(path, argv[2], true, size);
    if (argc < 3 || !number(argv[2], 10, &size))
        return EINVAL;
    if (argc == 3 && strcmp(verb, "read") == 0)
        return verb_read(path, size);
    if (argc == 3 && strcmp(verb, "list") == 0)
        return verb_list(path, size);
    if (argc == 4 && strcmp(verb, "write") == 0 && number(argv[3], 8, &mode) && mode <= 0777)
        return files_write(path, size, (unsigned)mode);
    return EINVAL;
}

int agent_applet_file(int argc, char *const *argv)
{
    int error;

    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    umask(022);
    error = obey(argc, argv);
    files_put(error ? AGENT_FILE_FAILED : AGENT_FILE_END, error, NULL, 0);
    files_flush();
    return error ? 1 : 0;
}
