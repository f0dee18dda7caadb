/* One workspace: opening it, what errno means in it, leftovers. */
#include "alloc.h"
#include "clock.h"
#include "id.h"
#include "workspace_jail.h"
#include "workspace_private.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

static const char leftover_prefix[] = ".berth-";
enum { LEFTOVER_HEX = 16, SWEEP_BUFFER_BYTES = 8 * 1024, SWEEP_AT_MOST_MS = 5000 };

bool workspace_is_leftover(const char *name)
{
    size_t prefix = sizeof leftover_prefix - 1;

    return strncmp(name, leftover_prefix, prefix) == 0 && strlen(name) == prefix + LEFTOVER_HEX &&
           strspn(name + prefix, "0123456789abcdef") == LEFTOVER_HEX;
}

void workspace_leftover_name(char out[LEFTOVER_BYTES])
{
    memcpy(out, leftover_prefix, sizeof leftover_prefix - 1);
    id_random_hex(out + sizeof leftover_prefix - 1, LEFTOVER_HEX);
}

int workspace_fail(const struct workspace *workspace, struct error *err, const char *what)
{
    int number = errno;
    bool is_operator = workspace->identity.uid < 0;
    char reason[64];
    enum error_code code;

    switch (number) {
    case EACCES:
    case EPERM:
        code = is_operator ? ERROR_FORBIDDEN : ERROR_HANDOVER;
        break;
    case ENAMETOOLONG:
        code = is_operator ? ERROR_NOT_FOUND : ERROR_HANDOVER;
        break;
    case ELOOP:
    case EXDEV:
    case ENXIO:
    case ENODEV:
    case EAGAIN:
    case EBUSY:
    case EROFS:
    case EMLINK:
    case ENOTEMPTY:
        code = ERROR_HANDOVER;
        break;
    default:
        errno = number;
        return fail_errno(err, "%s", what);
    }
    return error_set(err, code, number, "%s: %s", what, strerror_r(number, reason, sizeof reason));
}

/* The microseconds of the wire: the nearest, by way of a double, as a client gets them that looks at the same file. */
static int64_t unix_us(const struct timespec *at)
{
    double whole, fraction = modf((double)at->tv_sec + 1e-9 * (double)at->tv_nsec, &whole);

    return (int64_t)whole * 1000000 + llrint(fraction * 1e6);
}

void workspace_entry_of_stat(const struct stat *status, struct workspace_entry *ret)
{
    *ret = (struct workspace_entry){
        .is_dir = S_ISDIR(status->st_mode),
        .is_link = S_ISLNK(status->st_mode),
        .is_regular = S_ISREG(status->st_mode),
        .size_bytes = status->st_size,
        .mtime_unix_us = unix_us(&status->st_mtim),
        .mode = status->st_mode & 0777,
        .inode = status->st_ino,
    };
}

/* Remove what a broken write left in the directory that all writes go through. Trouble is no reason to refuse the
 * workspace. */
static void sweep(const struct workspace *workspace)
{
    auto_close int fd = openat(workspace->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char buffer[SWEEP_BUFFER_BYTES] __attribute__((aligned(8)));
    struct dir_reader reader = {.fd = fd, .buffer = buffer, .size = sizeof buffer};
    const struct cancel in_time = {-1, -1, clock_mono_ms() + SWEEP_AT_MOST_MS};
    struct error err = ERROR_INIT;
    struct dir_name entry;

    if (fd < 0)
        return;
    while (dir_reader_next(&reader, &entry) > 0) {
        struct stat status;

        if (!workspace_is_leftover(entry.name) ||
            fstatat(workspace->fd, entry.name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
            clock_unix_ms() - (int64_t)status.st_ctim.tv_sec * 1000 <= LEFTOVER_AGE_MS)
            continue;
        if (S_ISREG(status.st_mode))
            (void)unlinkat(workspace->fd, entry.name, 0);
        if (S_ISDIR(status.st_mode)) /* of an archive that broke off with the broker */
            (void)workspace_remove_at(workspace->fd, entry.name, true, &in_time, &err);
    }
}

void workspace_use_room(struct workspace *workspace, struct workspace_room *room)
{
    workspace->room = workspace_room_ref(room);
}

static struct retired_slot **find_retired_locked(struct workspace_root *root, const char *slot)
{
    struct retired_slot **link = &root->retired;

    while (*link && strcmp((*link)->slot, slot) != 0)
        link = &(*link)->next;
    return link;
}

/* Counted among the open ones of its slot; NOT_FOUND if that is retired. */
static int enlist(struct workspace_root *root, struct workspace *workspace, struct error *err)
{
    bool is_retired;

    (void)pthread_mutex_lock(&root->open_lock);
    is_retired = *find_retired_locked(root, workspace->slot) != NULL;
    if (!is_retired) {
        workspace->root = root;
        workspace->next = root->open;
        workspace->link = &root->open;
        if (root->open)
            root->open->link = &workspace->next;
        root->open = workspace;
    }
    (void)pthread_mutex_unlock(&root->open_lock);
    return is_retired ? error_set(err, ERROR_NOT_FOUND, ENOENT, "the workspace is being removed") : 0;
}

int workspace_slot_retire(struct workspace_root *root, const char *slot, struct error *err)
{
    struct retired_slot *retired = alloc_zero(sizeof *retired);
    bool is_held;

    (void)snprintf(retired->slot, sizeof retired->slot, "%s", slot);
    (void)pthread_mutex_lock(&root->open_lock);
    is_held = *find_retired_locked(root, slot) != NULL;
    for (const struct workspace *open = root->open; open && !is_held; open = open->next)
        is_held = strcmp(open->slot, slot) == 0;
    if (!is_held) {
        retired->next = root->retired;
        root->retired = take_ptr(retired);
    }
    (void)pthread_mutex_unlock(&root->open_lock);
    free(retired);
    return is_held ? fail(err, CONFLICT, "The workspace is being read") : 0;
}

void workspace_slot_unretire(struct workspace_root *root, const char *slot)
{
    struct retired_slot **link;
    struct retired_slot *retired;

    (void)pthread_mutex_lock(&root->open_lock);
    link = find_retired_locked(root, slot);
    retired = *link;
    if (retired)
        *link = retired->next;
    (void)pthread_mutex_unlock(&root->open_lock);
    free(retired);
}

int workspace_open(struct workspace_root *root, const char *slot, const struct workspace_identity *identity,
                   struct workspace **ret_workspace, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    struct error cannot = ERROR_INIT;
    struct workspace *workspace = alloc_zero(sizeof *workspace);

    atomic_init(&workspace->refs, 1);
    workspace->identity = *identity;
    workspace->changes_uid = identity->uid >= 0 && (uid_t)identity->uid != geteuid();
    workspace->changes_gid = identity->gid >= 0 && (gid_t)identity->gid != getegid();
    workspace->fd = -1;
    (void)snprintf(workspace->slot, sizeof workspace->slot, "%s", slot);
    /* Counted before it is looked for: who retires the slot either sees us or has taken the directory away. */
    if (enlist(root, workspace, err) < 0 || (workspace->fd = workspace_root_open_slot(root, slot, err)) < 0) {
        workspace_unref(workspace);
        return -1;
    }
    if (identity->uid >= 0 && workspace_identity_enter(workspace, &guard, &cannot) == 0)
        sweep(workspace);
    *ret_workspace = workspace;
    return 0;
}

const char *workspace_slot(const struct workspace *workspace)
{
    return workspace->slot;
}

struct workspace *workspace_ref(struct workspace *workspace)
{
    atomic_fetch_add(&workspace->refs, 1);
    return workspace;
}

void workspace_unref(struct workspace *workspace)
{
    if (!workspace || atomic_fetch_sub(&workspace->refs, 1) != 1)
        return;
    if (workspace->root) {
        (void)pthread_mutex_lock(&workspace->root->open_lock);
        *workspace->link = workspace->next;
        if (workspace->next)
            workspace->next->link = workspace->link;
        (void)pthread_mutex_unlock(&workspace->root->open_lock);
    }
    cleanup_fd(&workspace->fd);
    workspace_room_unref(workspace->room);
    free(workspace);
}
