/* Unpacking archives: into a directory of its own first, then to their place. */
#include "alloc.h"
#include "clock.h"
#include "fd.h"
#include "pack_private.h"
#include "unpack_private.h"
#include "workspace_jail.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum {
    IN_BYTES = 64 * 1024,
    RATIO = 100,
    RATIO_FREE_BYTES = 64 * 1024 * 1024,
    TOUCH_EVERY_MS = 10 * 1000, /* what is younger than LEFTOVER_AGE_MS is not swept */
    DIR_MODE = 0755,
    UMASK_AT_MOST = 022,
    CANCEL_EVERY = 64, /* entries; large ones look by themselves */
};

void unpack_result_done(struct unpack_result *result)
{
    for (size_t i = 0; i < result->refusal_count; i++)
        free(result->refusals[i].path);
    free(result->refusals);
    *result = (struct unpack_result){.entries = 0};
}

int unpack_refuse(struct unpacking *unpacking, const char *path, const char *reason)
{
    struct unpack_result *result = &unpacking->result;

    result->refused++;
    if (result->refusal_count == UNPACK_REFUSALS_MAX)
        return 0;
    if (!result->refusals)
        result->refusals = alloc_array(UNPACK_REFUSALS_MAX, sizeof *result->refusals);
    result->refusals[result->refusal_count++] =
        (struct unpack_refusal){alloc_str_n(path, strnlen(path, PATH_MAX)), reason};
    return 0;
}

/* -- budgets, counted as written -- */

static int charge_bytes(struct unpacking *unpacking, uint64_t size, struct error *err)
{
    uint64_t by_ratio = RATIO_FREE_BYTES + unpacking->received * RATIO;

    if (size > unpacking->limits->bytes - unpacking->charged)
        return fail(err, TOO_LARGE, "The archive unpacks to more than %llu bytes",
                    (unsigned long long)unpacking->limits->bytes);
    if (size > by_ratio || unpacking->charged > by_ratio - size)
        return fail(err, TOO_LARGE, "The archive unpacks to more than %d times its size", RATIO);
    unpacking->charged += size;
    return 0;
}

static int charge_entry(struct unpacking *unpacking, struct error *err)
{
    if (++unpacking->made > unpacking->limits->entries)
        return fail(err, TOO_LARGE, "The archive holds more than %llu entries",
                    (unsigned long long)unpacking->limits->entries);
    return 0;
}

/* -- paths -- */

/* The path without "." and doubled slashes, into unpacking->path. A reason to refuse it, or NULL; "" is the root. */
static const char *clean_path(struct unpacking *unpacking, const char *path, struct buf *out, struct error *err)
{
    unsigned depth = 0;

    buf_clear(out);
    if (*path == '/')
        return "an absolute name";
    while (*path) {
        size_t size = strcspn(path, "/");

        if (size == 2 && path[0] == '.' && path[1] == '.')
            return "leads out of the archive";
        if (size > NAME_MAX)
            return "a name longer than 255 bytes";
        if (size == LEFTOVER_BYTES - 1) {
            char name[LEFTOVER_BYTES];

            memcpy(name, path, size);
            name[size] = '\0';
            if (workspace_is_leftover(name))
                return "a reserved name";
        }
        if (size && !(size == 1 && path[0] == '.')) {
            if (++depth > UNPACK_DEPTH_MAX) {
                (void)fail(err, TOO_LARGE, "The archive is deeper than %d levels", UNPACK_DEPTH_MAX);
                return "too deep";
            }
            if ((out->size && buf_append(out, "/", 1, err) < 0) || buf_append(out, path, size, err) < 0)
                return "too long a path";
        }
        path += size;
        path += *path == '/';
    }
    return NULL;
}

/* Would the link lead out of the workspace? Lexically: that is what can be known of it. */
static bool leads_out(const struct unpacking *unpacking, const char *path, const char *target)
{
    size_t depth = 0;
    const char *at = target;

    if (*target == '/') {
        auto_free char *below = NULL;
        struct error err = ERROR_INIT;

        return workspace_path_place(unpacking->work_dir, target, strlen(target), &below, &err) < 0;
    }
    for (const char *c = unpacking->below; *c; c++)
        depth += *c == '/';
    depth += unpacking->below[0] != '\0';
    for (const char *c = path; *c; c++)
        depth += *c == '/';
    while (*at) {
        size_t size = strcspn(at, "/");

        if (size == 2 && at[0] == '.' && at[1] == '.') {
            if (depth-- == 0)
                return true;
        } else if (size && !(size == 1 && at[0] == '.')) {
            depth++;
        }
        at += size;
        at += *at == '/';
    }
    return false;
}

/* The directory in the staging that holds `path`, made if missing; *ret_name in `path`. Borrowed; -1: *ret_reason, or `err` is
 * set. */
static int open_parent(struct unpacking *unpacking, const char *path, const char **ret_name, const char **ret_reason,
                       struct error *err)
{
    const char *slash = strrchr(path, '/');
    size_t size = slash ? (size_t)(slash - path) : 0;
    auto_close int current = -1;
    const char *at = path;

    *ret_name = slash ? slash + 1 : path;
    if (size == 0)
        return unpacking->stage_fd;
    if (unpacking->parent_fd >= 0 && unpacking->parent.size == size &&
        memcmp(buf_str(&unpacking->parent), path, size) == 0)
        return unpacking->parent_fd;
    while (at < path + size) {
        size_t part = strcspn(at, "/");
        char name[NAME_MAX + 1];
        int above = current >= 0 ? current : unpacking->stage_fd;
        int next;

        memcpy(name, at, part);
        name[part] = '\0';
        next = workspace_jail_open(above, name, O_PATH | O_DIRECTORY);
        if (next < 0 && errno == ENOENT) {
            if (charge_entry(unpacking, err) < 0)
                return -1;
            if (mkdirat(above, name, DIR_MODE) < 0 && errno != EEXIST)
                return workspace_fail(unpacking->workspace, err, "cannot make a directory");
            next = workspace_jail_open(above, name, O_PATH | O_DIRECTORY);
        }
        if (next < 0) {
            *ret_reason = errno == ELOOP ? "leads over a link" : "leads over what is no directory";
            return -1;
        }
        cleanup_fd(&current);
        current = next;
        at += part + 1;
    }
    cleanup_fd(&unpacking->parent_fd);
    unpacking->parent_fd = take_fd(&current);
    buf_clear(&unpacking->parent);
    if (buf_append(&unpacking->parent, path, size, err) < 0)
        return -1;
    return unpacking->parent_fd;
}

/* -- entries -- */

static void times_of(struct archive_entry *entry, struct timespec out[2])
{
    out[0] = out[1] = (struct timespec){.tv_nsec = UTIME_NOW};
    if (archive_entry_mtime_is_set(entry))
        out[0] = out[1] = (struct timespec){archive_entry_mtime(entry), archive_entry_mtime_nsec(entry)};
}

static int broken(struct unpacking *unpacking, struct error *err)
{
    const char *said;

    if (unpacking->bytes_error.code != ERROR_NONE) {
        *err = unpacking->bytes_error;
        return -1;
    }
    said = archive_error_string(unpacking->archive);
    return fail(err, INVALID, "The archive is broken behind entry %llu: %.100s",
                (unsigned long long)unpacking->result.entries, said ? said : "unknown");
}

/* False with errno. */
static bool write_block(int fd, const void *block, size_t size, la_int64_t offset)
{
    for (size_t done = 0; done < size;) {
        ssize_t put = pwrite(fd, (const char *)block + done, size - done, offset + (la_int64_t)done);

        if (put < 0 && errno != EINTR)
            return false;
        done += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* The content, to `fd`, or nowhere (-1): of what is refused it is counted all the same. */
static int take_content(struct unpacking *unpacking, int fd, struct error *err)
{
    uint64_t end = 0;

    for (;;) {
        const void *block;
        size_t size;
        la_int64_t offset;
        int result = archive_read_data_block(unpacking->archive, &block, &size, &offset);

        if (result == ARCHIVE_EOF)
            return 0;
        if (result < ARCHIVE_WARN)
            return broken(unpacking, err);
        if (offset < 0 || __builtin_add_overflow((uint64_t)offset, (uint64_t)size, &end))
            return fail(err, TOO_LARGE, "The archive holds a file beyond any size");
        if (end > unpacking->content_end) {
            if (charge_bytes(unpacking, end - unpacking->content_end, err) < 0)
                return -1;
            unpacking->content_end = end;
        }
        if (fd >= 0 && workspace_room_take(unpacking->workspace->room, (int64_t)size) < 0)
            return workspace_fail(unpacking->workspace, err, "cannot write a file");
        if (fd >= 0) {
            bool is_written = write_block(fd, block, size, offset);

            workspace_room_settle(unpacking->workspace->room, (int64_t)size); /* or it is missing for ever */
            if (!is_written)
                return workspace_fail(unpacking->workspace, err, "cannot write a file");
        }
        if (cancel_check(unpacking->cancel, err) < 0)
            return -1;
    }
}

static int refuse_entry(struct unpacking *unpacking, const char *path, const char *reason, struct error *err)
{
    (void)unpack_refuse(unpacking, path, reason);
    return take_content(unpacking, -1, err);
}

static int put_file(struct unpacking *unpacking, int dir_fd, const char *name, const char *path,
                    struct archive_entry *entry, struct error *err)
{
    static const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    mode_t mode = archive_entry_perm(entry) & 0777;
    auto_close int fd = openat(dir_fd, name, flags, mode);
    struct timespec times[2];
    uint64_t size =
        archive_entry_size_is_set(entry) && archive_entry_size(entry) > 0 ? (uint64_t)archive_entry_size(entry) : 0;

    if (size > unpacking->limits->bytes - unpacking->charged)
        return charge_bytes(unpacking, size, err);
    if (fd < 0 && errno == EEXIST && unlinkat(dir_fd, name, 0) == 0) /* told twice: the last counts */
        fd = openat(dir_fd, name, flags, mode);
    if (fd < 0 && (errno == EEXIST || errno == EISDIR || errno == EPERM))
        return refuse_entry(unpacking, path, "is a directory already", err);
    if (fd < 0)
        return workspace_fail(unpacking->workspace, err, "cannot make a file");
    if (take_content(unpacking, fd, err) < 0)
        return -1;
    times_of(entry, times);
    if (size > unpacking->content_end) { /* ends in a hole */
        if (charge_bytes(unpacking, size - unpacking->content_end, err) < 0)
            return -1;
        if (ftruncate(fd, (off_t)size) < 0)
            return workspace_fail(unpacking->workspace, err, "cannot write a file");
    }
    if (((mode & UMASK_AT_MOST) && fchmod(fd, mode) < 0) || futimens(fd, times) < 0)
        return workspace_fail(unpacking->workspace, err, "cannot set a file's mode and time");
    unpacking->result.bytes += unpacking->content_end > size ? unpacking->content_end : size;
    return 0;
}

static int put_directory(struct unpacking *unpacking, int dir_fd, const char *name, const char *path,
                         struct archive_entry *entry, struct error *err)
{
    struct timespec times[2];
    struct stat status;

    if (mkdirat(dir_fd, name, DIR_MODE) < 0) {
        if (errno != EEXIST)
            return workspace_fail(unpacking->workspace, err, "cannot make a directory");
        if (fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(status.st_mode))
            return refuse_entry(unpacking, path, "is there already and no directory", err);
    }
    times_of(entry, times);
    if (unpacking->dir_count == unpacking->dir_capacity)
        unpacking->dirs = alloc_grow(
            unpacking->dirs, unpacking->dir_capacity = unpacking->dir_capacity ? 2 * unpacking->dir_capacity : 64,
            sizeof *unpacking->dirs);
    unpacking->dirs[unpacking->dir_count++] =
        (struct unpacked_dir){alloc_str(path), archive_entry_perm(entry) & 0777, times[1]};
    return 0;
}

static int put_symlink(struct unpacking *unpacking, int dir_fd, const char *name, const char *path,
                       struct archive_entry *entry, struct error *err)
{
    const char *target = archive_entry_symlink(entry);
    struct timespec times[2];

    if (!target || !*target || strlen(target) >= PATH_MAX)
        return refuse_entry(unpacking, path, "a link to nowhere", err);
    if (leads_out(unpacking, path, target))
        return refuse_entry(unpacking, path, "a link that leads out of the workspace", err);
    if (symlinkat(target, dir_fd, name) < 0 &&
        !(errno == EEXIST && unlinkat(dir_fd, name, 0) == 0 && symlinkat(target, dir_fd, name) == 0))
        return errno == EISDIR || errno == EPERM || errno == EEXIST
                   ? refuse_entry(unpacking, path, "is a directory already", err)
                   : workspace_fail(unpacking->workspace, err, "cannot make a link");
    times_of(entry, times);
    (void)utimensat(dir_fd, name, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

/* A name for what an earlier entry made, or for a file that lies at the archive's place already. */
static int link_to(struct unpacking *unpacking, const char *target, int dir_fd, const char *name)
{
    auto_close int fd = workspace_jail_open(unpacking->stage_fd, target, O_PATH | O_NOFOLLOW);
    auto_free char *there = NULL;
    char path[32];
    struct stat status;

    if (fd < 0) {
        there = alloc_format("%s%s%s", unpacking->below, unpacking->below[0] ? "/" : "", target);
        fd = workspace_jail_open(unpacking->workspace->fd, there, O_PATH | O_NOFOLLOW);
    }
    if (fd < 0 || fstat(fd, &status) < 0)
        return -1;
    if (!S_ISREG(status.st_mode) && (there || !S_ISLNK(status.st_mode))) {
        errno = EPERM;
        return -1;
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, path, dir_fd, name, AT_SYMLINK_FOLLOW);
}

static int put_hard_link(struct unpacking *unpacking, int dir_fd, const char *name, const char *path,
                         struct archive_entry *entry, struct error *err)
{
    const char *told = archive_entry_hardlink(entry);
    struct error too_deep = ERROR_INIT;

    if (!told || clean_path(unpacking, told, &unpacking->target, &too_deep))
        return refuse_entry(unpacking, path, "a hard link that leads out of the archive", err);
    if (strcmp(buf_str(&unpacking->target), path) == 0)
        return refuse_entry(unpacking, path, "a hard link to itself", err);
    (void)unlinkat(dir_fd, name, 0);
    if (link_to(unpacking, buf_str(&unpacking->target), dir_fd, name) < 0)
        return refuse_entry(unpacking, path, "a hard link to what is not there, or no file", err);
    return take_content(unpacking, -1, err); /* some formats repeat it */
}

static int put_entry(struct unpacking *unpacking, struct archive_entry *entry, struct error *err)
{
    const char *told = archive_entry_pathname(entry);
    const char *path;
    const char *name;
    const char *reason;
    int dir_fd;

    unpacking->content_end = 0;
    if (!told)
        return refuse_entry(unpacking, "", "a name that cannot be read", err);
    reason = clean_path(unpacking, told, &unpacking->path, err);
    if (err->code != ERROR_NONE)
        return -1;
    if (reason)
        return refuse_entry(unpacking, told, reason, err);
    path = buf_str(&unpacking->path);
    if (!*path)
        return take_content(unpacking, -1, err); /* the archive's own root */
    reason = "cannot be reached";
    dir_fd = open_parent(unpacking, path, &name, &reason, err);
    if (dir_fd < 0)
        return err->code != ERROR_NONE ? -1 : refuse_entry(unpacking, path, reason, err);
    if (archive_entry_hardlink(entry))
        return put_hard_link(unpacking, dir_fd, name, path, entry, err);
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        return put_file(unpacking, dir_fd, name, path, entry, err);
    case AE_IFDIR:
        return put_directory(unpacking, dir_fd, name, path, entry, err);
    case AE_IFLNK:
        return put_symlink(unpacking, dir_fd, name, path, entry, err);
    case AE_IFIFO:
        return refuse_entry(unpacking, path, "a FIFO", err);
    case AE_IFSOCK:
        return refuse_entry(unpacking, path, "a socket", err);
    case AE_IFCHR:
    case AE_IFBLK:
        return refuse_entry(unpacking, path, "a device", err);
    default:
        return refuse_entry(unpacking, path, "of an unknown kind", err);
    }
}

/* -- the archive -- */

static int64_t next_bytes(struct unpacking *unpacking, char *out, size_t max)
{
    int64_t got = unpacking->bytes->next(unpacking->bytes->context, out, max, &unpacking->bytes_error);

    unpacking->received += got > 0 ? (uint64_t)got : 0;
    return got;
}

static la_ssize_t read_in(struct archive *archive, void *context, const void **ret_data)
{
    struct unpacking *unpacking = context;
    int64_t got;

    *ret_data = unpacking->in;
    if (unpacking->peeked) {
        got = (int64_t)unpacking->peeked;
        unpacking->peeked = 0;
        return (la_ssize_t)got;
    }
    got = next_bytes(unpacking, unpacking->in, IN_BYTES);
    if (got < 0)
        archive_set_error(archive, EIO, "the upload broke off");
    return (la_ssize_t)got;
}

/* By the first bytes. */
static int guess_format(struct unpacking *unpacking, enum pack_format *format)
{
    const unsigned char *in = (const unsigned char *)unpacking->in;

    while (unpacking->peeked < 4) {
        int64_t got = next_bytes(unpacking, unpacking->in + unpacking->peeked, IN_BYTES - unpacking->peeked);

        if (got < 0)
            return -1;
        if (got == 0)
            break;
        unpacking->peeked += (size_t)got;
    }
    if (*format != PACK_UNKNOWN)
        return 0;
    *format = PACK_TAR;
    if (unpacking->peeked >= 2 && in[0] == 0x1f && in[1] == 0x8b)
        *format = PACK_TAR_GZ;
    else if (unpacking->peeked >= 4 && memcmp(in, "\x28\xb5\x2f\xfd", 4) == 0)
        *format = PACK_TAR_ZST;
    else if (unpacking->peeked >= 2 && memcmp(in, "PK", 2) == 0)
        *format = PACK_ZIP;
    return 0;
}

/* Exactly one filter and one format: nothing guesses its way into filters of filters. */
static int open_archive(struct unpacking *unpacking, enum pack_format format, struct error *err)
{
    struct archive *archive = unpacking->archive;
    bool set = true;

    if (format == PACK_ZIP) {
        set = archive_read_support_format_zip_streamable(archive) == ARCHIVE_OK;
    } else {
        set = archive_read_support_format_tar(archive) == ARCHIVE_OK;
    }
    if (format == PACK_TAR_GZ)
        set = set && archive_read_append_filter(archive, ARCHIVE_FILTER_GZIP) == ARCHIVE_OK;
    if (format == PACK_TAR_ZST)
        set = set && archive_read_append_filter(archive, ARCHIVE_FILTER_ZSTD) == ARCHIVE_OK;
    if (!set)
        return fail(err, INTERNAL, "libarchive: %s", archive_error_string(archive));
    return archive_read_open(archive, unpacking, NULL, read_in, NULL) == ARCHIVE_OK ? 0 : broken(unpacking, err);
}

/* The staging must not look like a leftover while it is filled. */
static void keep_young(struct unpacking *unpacking)
{
    int64_t now_ms = clock_mono_ms();

    if (now_ms - unpacking->touched_ms < TOUCH_EVERY_MS)
        return;
    unpacking->touched_ms = now_ms;
    (void)futimens(unpacking->stage_fd, NULL);
}

static int take_entries(struct unpacking *unpacking, struct error *err)
{
    struct archive_entry *entry;
    int64_t got;

    for (;;) {
        int result = archive_read_next_header(unpacking->archive, &entry);

        if (result == ARCHIVE_EOF)
            break;
        if (result < ARCHIVE_WARN)
            return broken(unpacking, err);
        if (charge_entry(unpacking, err) < 0 ||
            (unpacking->result.entries++ % CANCEL_EVERY == 0 && cancel_check(unpacking->cancel, err) < 0))
            return -1;
        if (put_entry(unpacking, entry, err) < 0)
            return -1;
        keep_young(unpacking);
    }
    do { /* padding behind the end */
        got = next_bytes(unpacking, unpacking->in, IN_BYTES);
    } while (got > 0);
    return got < 0 ? broken(unpacking, err) : 0;
}

static int run(struct unpacking *unpacking, enum pack_format format, struct error *err)
{
    if (guess_format(unpacking, &format) < 0)
        return broken(unpacking, err);
    if (unpacking->peeked == 0)
        return fail(err, INVALID, "The archive is empty");
    return open_archive(unpacking, format, err) < 0 || take_entries(unpacking, err) < 0 ? -1
                                                                                        : unpack_merge(unpacking, err);
}

/* The place must be a directory, or nothing yet; its parents are looked at when it is made. */
static int check_place(struct workspace *workspace, const char *path, struct error *err)
{
    auto_close int fd = workspace_jail_open(workspace->fd, path, O_PATH | O_DIRECTORY);

    return fd < 0 && errno != ENOENT ? workspace_fail(workspace, err, "cannot open the directory") : 0;
}

static int open_stage(struct unpacking *unpacking, struct error *err)
{
    workspace_leftover_name(unpacking->stage_name);
    if (mkdirat(unpacking->workspace->fd, unpacking->stage_name, 0700) < 0)
        return workspace_fail(unpacking->workspace, err, "cannot make a directory");
    unpacking->stage_fd = workspace_jail_open_dir_at(unpacking->workspace->fd, unpacking->stage_name);
    unpacking->touched_ms = clock_mono_ms();
    return unpacking->stage_fd < 0 ? workspace_fail(unpacking->workspace, err, "cannot open a directory") : 0;
}

static void unpacking_done(struct unpacking *unpacking)
{
    const struct cancel never = CANCEL_NEVER;
    struct error err = ERROR_INIT;

    (void)archive_read_free(unpacking->archive);
    cleanup_fd(&unpacking->parent_fd);
    cleanup_fd(&unpacking->stage_fd);
    if (unpacking->stage_name[0])
        (void)workspace_remove_at(unpacking->workspace->fd, unpacking->stage_name, true, &never, &err);
    for (size_t i = 0; i < unpacking->dir_count; i++)
        free(unpacking->dirs[i].path);
    free(unpacking->dirs);
    buf_done(&unpacking->path);
    buf_done(&unpacking->parent);
    buf_done(&unpacking->target);
    unpack_result_done(&unpacking->result);
    free(unpacking->in);
}

int unpack(struct workspace *workspace, const char *path, const char *work_dir, enum pack_format format,
           const struct workspace_bytes *bytes, const struct unpack_limits *limits, const struct cancel *cancel,
           struct unpack_result *ret, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    auto_pack_locale locale_t before = pack_locale_enter();
    auto_cleanup(unpacking_done) struct unpacking unpacking = {
        .workspace = workspace,
        .below = path,
        .work_dir = work_dir,
        .bytes = bytes,
        .limits = limits,
        .cancel = cancel,
        .archive = archive_read_new(),
        .stage_fd = -1,
        .parent_fd = -1,
        .path = BUF_INIT(1024 * 1024),
        .parent = BUF_INIT(1024 * 1024),
        .target = BUF_INIT(1024 * 1024),
        .in = malloc(IN_BYTES),
    };

    (void)before;
    if (!unpacking.archive || !unpacking.in)
        abort();
    if (workspace_identity_enter(workspace, &guard, err) < 0 || check_place(workspace, path, err) < 0 ||
        open_stage(&unpacking, err) < 0 || run(&unpacking, format, err) < 0)
        return -1;
    *ret = unpacking.result;
    unpacking.result = (struct unpack_result){.entries = 0};
    return 0;
}
