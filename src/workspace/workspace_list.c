/* One directory's entries. */
#include "alloc.h"
#include "workspace_jail.h"
#include "workspace_private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

void workspace_list_done(struct workspace_list *list)
{
    free(list->entries);
    free(list->names);
    *list = (struct workspace_list)WORKSPACE_LIST_INIT;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct workspace_entry *)left)->name, ((const struct workspace_entry *)right)->name);
}

/* Growing: `count` entries whose names are the strings in `names`, one after the other. */
struct collector {
    struct workspace_entry *entries;
    size_t count;
    size_t capacity;
    struct buf names;
};

static void collector_done(struct collector *collector)
{
    free(collector->entries);
    buf_done(&collector->names);
}

static int add(struct collector *collector, const char *name, const struct stat *status, struct error *err)
{
    if (collector->count == collector->capacity) {
        size_t capacity = collector->capacity ? collector->capacity * 2 : 64;
        struct workspace_entry *entries = reallocarray(collector->entries, capacity, sizeof *entries);

        if (!entries)
            return fail(err, TOO_LARGE, "no memory for %zu entries", capacity);
        collector->entries = entries;
        collector->capacity = capacity;
    }
    workspace_entry_of_stat(status, &collector->entries[collector->count++]);
    return buf_append(&collector->names, name, strlen(name) + 1, err);
}

/* Names find their places once the block of names does not move any more. */
static void finish(struct collector *collector, struct workspace_list *ret)
{
    const char *name;

    ret->names = buf_take(&collector->names, NULL);
    name = ret->names;
    ret->entries = take_ptr(collector->entries);
    ret->count = collector->count;
    for (size_t i = 0; i < ret->count; i++) {
        ret->entries[i].name = name;
        name += strlen(name) + 1;
    }
    if (ret->count)
        qsort(ret->entries, ret->count, sizeof *ret->entries, by_name);
}

static int collect(const struct workspace *workspace, int fd, size_t max_entries, struct collector *collector,
                   struct error *err)
{
    char buffer[DIR_READER_BYTES] __attribute__((aligned(8)));
    struct dir_reader reader = {.fd = fd, .buffer = buffer, .size = sizeof buffer};
    struct dir_name entry;
    int more;

    while ((more = dir_reader_next(&reader, &entry)) > 0) {
        struct stat status;

        if (workspace_is_leftover(entry.name))
            continue;
        if (fstatat(fd, entry.name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
            if (errno == ENOENT)
                continue;
            return workspace_fail(workspace, err, "cannot look at an entry");
        }
        if (collector->count == max_entries)
            return fail(err, TOO_LARGE, "more than %zu entries", max_entries);
        if (add(collector, entry.name, &status, err) < 0)
            return -1;
    }
    return more < 0 ? workspace_fail(workspace, err, "cannot list the directory") : 0;
}

int workspace_list(struct workspace *workspace, const char *path, size_t max_entries, struct workspace_list *ret,
                   struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    auto_cleanup(collector_done) struct collector collector = {
        .names = BUF_INIT(max_entries < SIZE_MAX / 2 / (NAME_MAX + 1) ? max_entries * (NAME_MAX + 1) : SIZE_MAX / 2)};
    auto_close int fd = -1;

    if (workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    fd = workspace_jail_open(workspace->fd, path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return workspace_fail(workspace, err, "cannot open the directory");
    if (collect(workspace, fd, max_entries, &collector, err) < 0)
        return -1;
    finish(&collector, ret);
    return 0;
}
