/* Where workspaces lie: the root, slots, and the names that lead to them. */
#include "alloc.h"
#include "id.h"
#include "log.h"
#include "workspace_btrfs.h"
#include "workspace_jail.h"
#include "workspace_private.h"
#include "workspace_project.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

static const char slots_name[] = ".slots";
static const char slots_prefix[] = ".slots/";
static const char dir_prefix[] = "dir:";
static const char workspace_name[] = "workspace";
enum { DIR_MODE = 0711, WORKSPACE_MODE = 0755, TEN_YEARS_S = 10 * 366 * 24 * 3600 };

static bool is_slot_hex(const char *slot)
{
    return strlen(slot) == WORKSPACE_SLOT_HEX && strspn(slot, "0123456789abcdef") == WORKSPACE_SLOT_HEX;
}

/* The session id of a "dir:<id>" slot; NULL for others. */
static const char *id_of_dir_slot(const char *slot)
{
    size_t prefix = sizeof dir_prefix - 1;

    return strncmp(slot, dir_prefix, prefix) == 0 && id_name_valid(slot + prefix, strlen(slot + prefix)) ? slot + prefix
                                                                                                         : NULL;
}

/* The path of a slot's directory below the root: ".slots/<hex>" or "<id>", then "/workspace" if `inner`. */
static int slot_path_below(const char *slot, bool inner, char out[PATH_MAX], struct error *err)
{
    const char *id = id_of_dir_slot(slot);
    const char *tail = inner ? "/workspace" : "";

    if (id)
        (void)snprintf(out, PATH_MAX, "%s%s", id, tail);
    else if (is_slot_hex(slot))
        (void)snprintf(out, PATH_MAX, "%s%s%s", slots_prefix, slot, tail);
    else
        return error_set(err, ERROR_INVALID, EINVAL, "not a slot");
    return 0;
}

/* A reference broker put back sweeps directories by mtime: .slots must never look old. Its own changes set it to now.
 */
static void keep_slots_young(const struct workspace_root *root)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) + TEN_YEARS_S}};

    (void)futimens(root->slots_fd, times);
}

static int open_dir(int parent_fd, const char *path, int flags, struct error *err)
{
    int fd;

    if (mkdirat(parent_fd, path, DIR_MODE) < 0 && errno != EEXIST)
        return fail_errno(err, "cannot make %s", path);
    fd = openat(parent_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    return fd < 0 ? fail_errno(err, "cannot open %s", path) : fd;
}

static void warn_of_others(const struct workspace_root *root)
{
    struct stat status;
    struct statvfs system;

    if (fstat(root->fd, &status) < 0)
        return;
    if (status.st_mode & 0066)
        log_warn("workspace.root_open_to_others", log_s("path", root->path),
                 log_i("mode_decimal", status.st_mode & 0777),
                 log_s("advice", "chmod 0711: others can list or change what lies here"));
    if ((status.st_mode & 0001) && fstatvfs(root->fd, &system) == 0 && !(system.f_flag & ST_NOSUID))
        log_warn("workspace.root_lets_others_run", log_s("path", root->path),
                 log_s("advice",
                       "mount it nosuid, or chmod 0700 where the engine does not remap users: sandboxes can leave "
                       "set-user-id programs here"));
    if (fstat(root->slots_fd, &status) == 0 && (status.st_mode & 0777 & ~DIR_MODE) &&
        fchmod(root->slots_fd, status.st_mode & DIR_MODE) < 0)
        log_warn("workspace.slots_open_to_others", log_s("path", root->path));
}

int workspace_root_open(const char *path, struct workspace_root **ret_root, struct error *err)
{
    auto_close int fd = -1;
    auto_close int slots_fd = -1;
    struct workspace_root *root;

    if (path[0] != '/')
        return error_set(err, ERROR_INVALID, EINVAL, "%s is not an absolute path", path);
    fd = open_dir(AT_FDCWD, path, 0, err);
    if (fd < 0)
        return -1;
    slots_fd = open_dir(fd, slots_name, O_NOFOLLOW, err);
    if (slots_fd < 0)
        return error_prefix(err, "%s", path);
    root = alloc_zero(sizeof *root);
    (void)pthread_mutex_init(&root->open_lock, NULL);
    root->groups_left = true;
    root->path = alloc_str(path);
    for (size_t size = strlen(path); size > 1 && path[size - 1] == '/'; size--)
        root->path[size - 1] = '\0';
    root->fd = take_fd(&fd);
    root->slots_fd = take_fd(&slots_fd);
    warn_of_others(root);
    keep_slots_young(root);
    *ret_root = root;
    return 0;
}

const char *workspace_root_path(const struct workspace_root *root)
{
    return root->path;
}

void workspace_root_close(struct workspace_root *root)
{
    if (!root)
        return;
    (void)close(root->slots_fd);
    (void)close(root->fd);
    (void)pthread_mutex_destroy(&root->open_lock);
    free(root->path);
    free(root);
}

/* -- slots -- */

int workspace_root_open_slot(const struct workspace_root *root, const char *slot, struct error *err)
{
    char below[PATH_MAX];
    int fd;

    if (slot_path_below(slot, true, below, err) < 0)
        return -1;
    fd = workspace_jail_open(root->fd, below, O_PATH | O_DIRECTORY);
    if (fd >= 0)
        return fd;
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
        return error_set(err, ERROR_NOT_FOUND, errno, "no workspace at %s", below);
    return fail_errno(err, "cannot open workspace %s", below);
}

/* One that gets none is watched by the sweep, and warned of when its limit is set. */
static void begin_project(int slot_fd)
{
    auto_close int fd = openat(slot_fd, workspace_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0)
        (void)workspace_project_begin(fd);
}

static int fill_slot(int slot_fd, bool is_project, int64_t uid, int64_t gid, struct error *err)
{
    if (!workspace_btrfs_create(slot_fd, workspace_name) && mkdirat(slot_fd, workspace_name, WORKSPACE_MODE) < 0)
        return fail_errno(err, "cannot make a workspace");
    if (is_project)
        begin_project(slot_fd);
    /* Nobody else can write in the slot yet: the name is still what was made. */
    if ((uid >= 0 || gid >= 0) && fchownat(slot_fd, workspace_name, uid >= 0 ? (uid_t)uid : (uid_t)-1,
                                           gid >= 0 ? (gid_t)gid : (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_errno(err, "cannot give a workspace to %lld:%lld", (long long)uid, (long long)gid);
    return 0;
}

int workspace_slot_create(struct workspace_root *root, int64_t uid, int64_t gid, char ret_slot[WORKSPACE_SLOT_BYTES],
                          struct error *err)
{
    char slot[WORKSPACE_SLOT_HEX + 1];
    auto_close int slot_fd = -1;

    id_random_hex(slot, WORKSPACE_SLOT_HEX);
    if (mkdirat(root->slots_fd, slot, DIR_MODE) < 0)
        return fail_errno(err, "cannot make slot %s", slot);
    keep_slots_young(root);
    slot_fd = openat(root->slots_fd, slot, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (slot_fd < 0)
        return fail_errno(err, "cannot open slot %s", slot);
    if (fill_slot(slot_fd, root->has_projects, uid, gid, err) < 0) {
        struct error ignored = ERROR_INIT;

        (void)workspace_slot_remove(root, slot, &(struct cancel)CANCEL_NEVER, &ignored);
        return -1;
    }
    memcpy(ret_slot, slot, sizeof slot);
    return 0;
}

int workspace_slot_path(struct workspace_root *root, const char *slot, char **ret_path, struct error *err)
{
    char below[PATH_MAX];
    auto_close int fd = workspace_root_open_slot(root, slot, err);

    if (fd < 0 || slot_path_below(slot, true, below, err) < 0)
        return -1;
    *ret_path = alloc_format("%s/%s", root->path[1] ? root->path : "", below);
    return 0;
}

int workspace_slot_chown(struct workspace_root *root, const char *slot, int64_t uid, int64_t gid, struct error *err)
{
    auto_close int fd = workspace_root_open_slot(root, slot, err);

    if (fd < 0)
        return -1;
    if (fchownat(fd, "", uid >= 0 ? (uid_t)uid : (uid_t)-1, gid >= 0 ? (gid_t)gid : (gid_t)-1, AT_EMPTY_PATH) < 0)
        return fail_errno(err, "cannot give workspace %s to %lld:%lld", slot, (long long)uid, (long long)gid);
    return 0;
}

/* A subvolume goes at once; what that does not work for is walked. */
static void destroy_subvolume(struct workspace_root *root, const char *slot)
{
    auto_close int fd = openat(root->slots_fd, slot, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0 && workspace_btrfs_destroy(fd, workspace_name))
        root->groups_left = true;
}

enum workspace_quota workspace_quota_enforce(struct workspace_root *root, const char **ret_why)
{
    *ret_why = NULL;
    if (workspace_btrfs_count(root->slots_fd))
        return WORKSPACE_QUOTA_GROUPS;
    root->has_projects = workspace_project_probe(root->slots_fd, ret_why);
    return root->has_projects ? WORKSPACE_QUOTA_PROJECTS : WORKSPACE_QUOTA_NONE;
}

static int open_for_limits(const struct workspace_root *root, const char *slot)
{
    struct error ignored = ERROR_INIT;
    auto_close int place_fd = workspace_root_open_slot(root, slot, &ignored);

    return place_fd < 0 ? -1 : workspace_jail_open(place_fd, "", O_RDONLY | O_DIRECTORY);
}

bool workspace_slot_limit(struct workspace_root *root, const char *slot, int64_t bytes, int64_t files)
{
    auto_close int fd = open_for_limits(root, slot);

    if (fd >= 0 && root->has_projects)
        return workspace_project_limit(fd, bytes, files);
    return fd >= 0 && workspace_btrfs_limit(fd, bytes ? bytes : -1);
}

bool workspace_slot_join(struct workspace_root *root, const char *slot, const struct workspace_group *group)
{
    auto_close int fd = open_for_limits(root, slot);

    root->groups_left = true; /* perhaps it was the last one of another */
    return fd >= 0 && workspace_btrfs_join(fd, group->number, group->bytes);
}

bool workspace_group_limit(struct workspace_root *root, const struct workspace_group *group)
{
    return workspace_btrfs_limit_group(root->slots_fd, group->number, group->bytes);
}

void workspace_quota_sweep(struct workspace_root *root)
{
    if (root->has_projects) {
        if (atomic_exchange(&root->groups_left, false))
            workspace_project_sweep(root->slots_fd);
        return;
    }
    /* What goes meanwhile says so again. */
    if (atomic_exchange(&root->groups_left, false) && !workspace_btrfs_sweep_groups(root->slots_fd))
        root->groups_left = true;
    workspace_btrfs_count_anew(root->slots_fd);
}

int workspace_slot_remove(struct workspace_root *root, const char *slot, const struct cancel *cancel, struct error *err)
{
    const char *id = id_of_dir_slot(slot);
    struct stat status;

    if (!id && !is_slot_hex(slot))
        return error_set(err, ERROR_INVALID, EINVAL, "not a slot");
    if (id && fstatat(root->fd, id, &status, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(status.st_mode))
        return error_set(err, ERROR_INVALID, ENOTDIR, "%s is not a directory of a workspace", id);
    if (!id && root->has_projects)
        root->groups_left = true;
    else if (!id)
        destroy_subvolume(root, slot);
    if (workspace_remove_at(id ? root->fd : root->slots_fd, id ? id : slot, true, cancel, err) < 0) {
        if (errno == ENOENT)
            return 0;
        if (errno == ECANCELED)
            return -1;
        return fail_errno(err, "cannot remove slot %s", slot);
    }
    if (!id)
        keep_slots_young(root);
    return 0;
}

/* -- names -- */

/* A link of ours: *ret_slot is its slot. False: no link, or one that leads elsewhere. */
static bool read_link(const struct workspace_root *root, const char *id, char ret_slot[WORKSPACE_SLOT_BYTES])
{
    char target[sizeof slots_prefix + WORKSPACE_SLOT_HEX + 1];
    ssize_t size = readlinkat(root->fd, id, target, sizeof target - 1);
    size_t prefix = sizeof slots_prefix - 1;

    if (size < 0)
        return false;
    target[size] = '\0';
    if (strncmp(target, slots_prefix, prefix) != 0 || !is_slot_hex(target + prefix))
        return false;
    memcpy(ret_slot, target + prefix, WORKSPACE_SLOT_HEX + 1);
    return true;
}

static bool is_dir_at(int fd, const char *path)
{
    auto_close int dir = workspace_jail_open(fd, path, O_PATH | O_DIRECTORY);

    return dir >= 0;
}

/* Is there a workspace by this name? */
static bool find(const struct workspace_root *root, const char *id, char ret_slot[WORKSPACE_SLOT_BYTES])
{
    char below[ID_NAME_MAX + sizeof workspace_name + 1];

    if (read_link(root, id, ret_slot))
        return is_dir_at(root->slots_fd, ret_slot);
    (void)snprintf(below, sizeof below, "%s/%s", id, workspace_name);
    (void)snprintf(ret_slot, WORKSPACE_SLOT_BYTES, "%s%s", dir_prefix, id);
    return is_dir_at(root->fd, below);
}

int workspace_find(struct workspace_root *root, const char *id, char ret_slot[WORKSPACE_SLOT_BYTES], struct error *err)
{
    char slot[WORKSPACE_SLOT_BYTES];

    assert(id_name_valid(id, strlen(id)));
    if (!find(root, id, slot))
        return error_set(err, ERROR_NOT_FOUND, ENOENT, "no workspace named %s", id);
    memcpy(ret_slot, slot, sizeof slot);
    return 0;
}

/* Clear away what holds a name without any workspace behind it. */
static bool free_name(const struct workspace_root *root, const char *id)
{
    char slot[WORKSPACE_SLOT_BYTES];

    if (read_link(root, id, slot))
        return !is_dir_at(root->slots_fd, slot) && unlinkat(root->fd, id, 0) == 0;
    return unlinkat(root->fd, id, AT_REMOVEDIR) == 0;
}

int workspace_link_unsynced(struct workspace_root *root, const char *id, const char *slot, struct error *err)
{
    char target[sizeof slots_prefix + WORKSPACE_SLOT_HEX];
    int made;

    assert(id_name_valid(id, strlen(id)));
    if (!is_slot_hex(slot))
        return error_set(err, ERROR_INVALID, EINVAL, "not a slot that can be named");
    if (!is_dir_at(root->slots_fd, slot))
        return error_set(err, ERROR_NOT_FOUND, ENOENT, "no slot %s", slot);
    (void)snprintf(target, sizeof target, "%s%s", slots_prefix, slot);
    made = symlinkat(target, root->fd, id);
    if (made < 0 && errno == EEXIST && !free_name(root, id))
        return error_set(err, ERROR_CONFLICT, EEXIST, "the workspace name %s is taken", id);
    if (made < 0 && symlinkat(target, root->fd, id) < 0)
        return fail_errno(err, "cannot name workspace %s", id);
    return 0;
}

int workspace_link(struct workspace_root *root, const char *id, const char *slot, struct error *err)
{
    if (workspace_link_unsynced(root, id, slot, err) < 0)
        return -1;
    return fsync(root->fd) < 0 ? fail_errno(err, "fsync of the workspace root") : 0;
}

int workspace_unlink(struct workspace_root *root, const char *id, struct error *err)
{
    struct stat status;

    assert(id_name_valid(id, strlen(id)));
    if (fstatat(root->fd, id, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : fail_errno(err, "cannot look at workspace name %s", id);
    if (!S_ISLNK(status.st_mode))
        return 0;
    if (unlinkat(root->fd, id, 0) < 0 && errno != ENOENT)
        return fail_errno(err, "cannot take the workspace name %s away", id);
    return fsync(root->fd) < 0 ? fail_errno(err, "fsync of the workspace root") : 0;
}

/* What a name led to before: a link is taken away, a directory becomes a slot. */
static int retire_name(struct workspace_root *root, const char *old, char ret_old[WORKSPACE_SLOT_BYTES],
                       struct error *err)
{
    char slot[WORKSPACE_SLOT_HEX + 1];

    if (read_link(root, old, ret_old))
        return unlinkat(root->fd, old, 0) < 0 ? fail_errno(err, "cannot take an old name away") : 0;
    id_random_hex(slot, WORKSPACE_SLOT_HEX);
    if (renameat(root->fd, old, root->slots_fd, slot) < 0)
        return fail_errno(err, "cannot make a slot of %s", old);
    keep_slots_young(root);
    memcpy(ret_old, slot, sizeof slot);
    return 0;
}

int workspace_swap(struct workspace_root *root, const char *id, const char *slot, char ret_old[WORKSPACE_SLOT_BYTES],
                   struct error *err)
{
    char target[sizeof slots_prefix + WORKSPACE_SLOT_HEX];
    char other[LEFTOVER_BYTES];

    assert(id_name_valid(id, strlen(id)));
    if (!is_slot_hex(slot) || !is_dir_at(root->slots_fd, slot))
        return error_set(err, ERROR_NOT_FOUND, ENOENT, "no slot %s", slot);
    (void)snprintf(target, sizeof target, "%s%s", slots_prefix, slot);
    workspace_leftover_name(other);
    if (symlinkat(target, root->fd, other) < 0)
        return fail_errno(err, "cannot name workspace %s", id);
    if (renameat2(root->fd, other, root->fd, id, RENAME_EXCHANGE) < 0) {
        int number = errno;

        (void)unlinkat(root->fd, other, 0);
        errno = number;
        return fail_errno(err, "cannot name workspace %s", id);
    }
    if (fsync(root->fd) < 0)
        return fail_errno(err, "fsync of the workspace root");
    return retire_name(root, other, ret_old, err);
}

/* -- lists -- */

/* A reader of its own over a directory that others may be reading as well. */
static int open_names(int fd, struct dir_reader *reader, struct error *err)
{
    reader->fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return reader->fd < 0 ? fail_errno(err, "cannot list the workspace root") : 0;
}

int workspace_slots(struct workspace_root *root, char (**ret)[WORKSPACE_SLOT_BYTES], size_t *ret_count,
                    struct error *err)
{
    auto_free char *buffer = alloc_zero(DIR_READER_BYTES);
    auto_free char(*slots)[WORKSPACE_SLOT_BYTES] = NULL;
    struct dir_reader reader = {.fd = -1, .buffer = buffer, .size = DIR_READER_BYTES};
    struct dir_name entry;
    size_t count = 0;
    size_t capacity = 0;
    int more;

    if (open_names(root->slots_fd, &reader, err) < 0)
        return -1;
    while ((more = dir_reader_next(&reader, &entry)) > 0) {
        if (!is_slot_hex(entry.name))
            continue;
        if (count == capacity)
            slots = alloc_grow(slots, capacity = capacity ? capacity * 2 : 64, sizeof *slots);
        memset(slots[count], 0, sizeof *slots);
        memcpy(slots[count++], entry.name, WORKSPACE_SLOT_HEX);
    }
    (void)close(reader.fd);
    if (more < 0)
        return fail_errno(err, "cannot list slots");
    *ret = take_ptr(slots);
    *ret_count = count;
    return 0;
}

int workspace_names(struct workspace_root *root, struct workspace_name **ret, size_t *ret_count, struct error *err)
{
    auto_free char *buffer = alloc_zero(DIR_READER_BYTES);
    auto_free struct workspace_name *names = NULL;
    struct dir_reader reader = {.fd = -1, .buffer = buffer, .size = DIR_READER_BYTES};
    struct dir_name entry;
    size_t count = 0;
    size_t capacity = 0;
    int more;

    if (open_names(root->fd, &reader, err) < 0)
        return -1;
    while ((more = dir_reader_next(&reader, &entry)) > 0) {
        struct workspace_name name = {.id = ""};
        struct stat status;

        if (!id_name_valid(entry.name, strlen(entry.name)) || !find(root, entry.name, name.slot) ||
            fstatat(root->fd, entry.name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        memcpy(name.id, entry.name, strlen(entry.name));
        name.mtime_unix_ms = (int64_t)status.st_mtim.tv_sec * 1000 + status.st_mtim.tv_nsec / 1000000;
        if (count == capacity)
            names = alloc_grow(names, capacity = capacity ? capacity * 2 : 64, sizeof *names);
        names[count++] = name;
    }
    (void)close(reader.fd);
    if (more < 0)
        return fail_errno(err, "cannot list workspaces");
    *ret = take_ptr(names);
    *ret_count = count;
    return 0;
}

int workspace_root_space(const struct workspace_root *root, struct statvfs *ret, struct error *err)
{
    return fstatvfs(root->fd, ret) < 0 ? fail_errno(err, "the workspace root's file system") : 0;
}
