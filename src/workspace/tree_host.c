/* The host's tree: a workspace, one open directory at a time. */
#include "alloc.h"
#include "tree.h"
#include "workspace_jail.h"
#include "workspace_private.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct host_source {
    struct tree_source source;
    struct workspace *workspace;
    struct identity_guard guard;
    struct dir_reader reader; /* .fd -1: no directory yet */
    const char *regular;      /* the entry told last, if it is a regular file */
    char buffer[DIR_READER_BYTES] __attribute__((aligned(8)));
};

static struct host_source *host_of(struct tree_source *source)
{
    return (struct host_source *)(void *)source;
}

static int host_open(struct tree_source *source, const char *path, const struct cancel *cancel, struct error *err)
{
    struct host_source *host = host_of(source);
    int fd = workspace_jail_open(host->workspace->fd, path, O_RDONLY | O_DIRECTORY);

    if (fd < 0)
        return workspace_fail(host->workspace, err, "cannot open the directory");
    if (host->reader.fd >= 0)
        (void)close(host->reader.fd);
    host->regular = NULL;
    host->reader = (struct dir_reader){.fd = fd, .buffer = host->buffer, .size = sizeof host->buffer};
    return 0;
}

/* What is known without asking: 1, 0 to be asked, as a file for its details or because the file system does not tell. */
static bool type_is_known(unsigned char type, bool with_details, struct workspace_entry *ret)
{
    if (type == DT_UNKNOWN || (with_details && type != DT_DIR && type != DT_LNK))
        return false;
    *ret = (struct workspace_entry){.is_dir = type == DT_DIR, .is_link = type == DT_LNK, .is_regular = type == DT_REG};
    return true;
}

static int host_next(struct tree_source *source, bool with_details, struct workspace_entry *ret,
                     const struct cancel *cancel, struct error *err)
{
    struct host_source *host = host_of(source);
    struct dir_name name;
    int more;

    while ((more = dir_reader_next(&host->reader, &name)) > 0) {
        struct stat status;

        if (workspace_is_leftover(name.name))
            continue;
        if (!type_is_known(name.type, with_details, ret)) {
            if (fstatat(host->reader.fd, name.name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
                if (errno == ENOENT)
                    continue;
                return workspace_fail(host->workspace, err, "cannot look at an entry");
            }
            workspace_entry_of_stat(&status, ret);
        }
        ret->name = name.name;
        host->regular = ret->is_regular ? name.name : NULL;
        return 1;
    }
    return more < 0 ? workspace_fail(host->workspace, err, "cannot list the directory") : 0;
}

static int host_read(struct tree_source *source, const char *name, struct buf *out, const struct cancel *cancel,
                     struct error *err)
{
    struct host_source *host = host_of(source);

    if (host->regular && strcmp(host->regular, name) == 0)
        return workspace_read_listed(host->workspace, host->reader.fd, name, out, err);
    return workspace_read_below(host->workspace, host->reader.fd, name, out, err);
}

static void host_free(struct tree_source *source)
{
    struct host_source *host = host_of(source);

    if (host->reader.fd >= 0)
        (void)close(host->reader.fd);
    workspace_identity_leave(&host->guard);
    workspace_unref(host->workspace);
    free(host);
}

void tree_source_free(struct tree_source *source)
{
    if (source)
        source->ops->free(source);
}

int workspace_tree_source(struct workspace *workspace, struct tree_source **ret_source, struct error *err)
{
    static const struct tree_source_ops ops = {host_open, host_next, host_read, host_free};
    struct host_source *host = alloc_zero(sizeof *host);

    host->source.ops = &ops;
    host->workspace = workspace_ref(workspace);
    host->reader.fd = -1;
    if (workspace_identity_enter(workspace, &host->guard, err) < 0) {
        host_free(&host->source);
        return -1;
    }
    *ret_source = &host->source;
    return 0;
}
