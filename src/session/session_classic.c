#include "session_classic.h"

#include "alloc.h"
#include "clock.h"
#include "session_inside.h"
#include "session_private.h"

#include <errno.h>
#include <string.h>

struct session_classic {
    struct sessions *sessions;
    struct session *session;
    struct workspace *workspace; /* one reference; NULL: the host may not */
    bool may_write;              /* the host, as the session's user */
    bool alone;
    int64_t started_us;
    struct cancel cancel; /* with the deadline */
    struct session_inside *inside;
};

/* -- begin and end -- */

static int take_turn(struct session *session, const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = session->owner;
    int result = 0;

    sessions_lock(sessions);
    while (result == 0 && session->editing)
        result = waitq_wait(&sessions->changed, &sessions->lock, cancel, err);
    if (result == 0)
        session->editing = true;
    sessions_unlock(sessions);
    return result;
}

static void use_host(struct session_classic *classic)
{
    struct session_workspace held;

    if (!sessions_native_files(classic->sessions))
        return;
    session_workspace_get(classic->session, &held);
    classic->workspace = held.workspace;
    classic->may_write = held.is_its_users;
}

int session_classic_begin(struct sessions *sessions, const char *id, bool alone, const struct cancel *cancel,
                          struct session_classic **ret_classic, struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    auto_policy struct policy *policy = sessions_policy(sessions);
    struct cancel within = cancel_within(cancel, policy->execute_timeout_s * 1000);
    struct session_classic *classic;

    if (!session || (alone && take_turn(session, &within, err) < 0))
        return -1;
    sessions_lock(sessions);
    session->in_flight++;
    session_touch_locked(session);
    sessions_unlock(sessions);
    classic = alloc_zero(sizeof *classic);
    *classic = (struct session_classic){.sessions = sessions,
                                        .session = take_ptr(session),
                                        .alone = alone,
                                        .started_us = clock_mono_us(),
                                        .cancel = within};
    use_host(classic);
    *ret_classic = classic;
    return 0;
}

void session_classic_end(struct session_classic *classic, const char *op, const char *target, size_t target_size,
                         bool ok, const char *detail)
{
    struct session *session;

    if (!classic)
        return;
    session = classic->session;
    if (classic->inside)
        session_inside_end(classic->inside);
    sessions_lock(classic->sessions);
    session->in_flight--;
    session_touch_locked(session);
    if (classic->alone) {
        session->editing = false;
        waitq_wake_all(&classic->sessions->changed);
    }
    sessions_unlock(classic->sessions);
    if (op)
        event_record(session, op, target, target_size, ok, detail, classic->started_us);
    if (classic->workspace)
        workspace_unref(classic->workspace);
    session_unref(session);
    free(classic);
}

/* -- who answers -- */

/* The path below the workspace, normal; NULL where only the sandbox knows. "." and doubled slashes go, ".." may lead through a
 * link and stays for the sandbox. */
static char *host_path(const struct session_classic *classic, const char *path)
{
    const char *work_dir = classic->sessions->settings.work_dir;
    size_t prefix = strlen(work_dir);
    char *whole;
    char *out;

    if (!classic->workspace)
        return NULL;
    whole = path[0] == '/' ? alloc_format("%s/", path) : alloc_format("%s/%s/", work_dir, path);
    out = whole; /* never ahead of what is read */
    for (const char *at = whole; *at;) {
        size_t size;

        at += strspn(at, "/");
        size = strcspn(at, "/");
        if (size == 2 && at[0] == '.' && at[1] == '.') {
            free(whole);
            return NULL;
        }
        if (size > 0 && !(size == 1 && at[0] == '.')) {
            *out++ = '/';
            memmove(out, at, size);
            out += size;
        }
        at += size;
    }
    *out = '\0';
    if (prefix == 1)
        prefix = 0; /* the work dir is the root */
    if (strncmp(whole, work_dir, prefix) != 0 || (whole[prefix] != '/' && whole[prefix] != '\0')) {
        free(whole);
        return NULL;
    }
    out = alloc_str(whole[prefix] ? whole + prefix + 1 : "");
    free(whole);
    return out;
}

/* Did the host leave it to the sandbox? What neither could do is said in the host's words. */
static bool hands_over(struct error *err)
{
    if (err->code != ERROR_HANDOVER)
        return false;
    if (err->sys_errno == ENXIO || err->sys_errno == ENAMETOOLONG) {
        err->code = ERROR_INVALID;
        return false;
    }
    error_clear(err);
    return true;
}

static int go_inside(struct session_classic *classic, struct error *err)
{
    if (classic->inside)
        return 0;
    return session_inside_begin(classic->sessions, classic->session->id, &classic->cancel, &classic->inside, err);
}

static bool ends_in_slash(const char *path)
{
    return path[0] && path[strlen(path) - 1] == '/';
}

/* -- files -- */

static int host_read(const struct session_classic *classic, const char *path, struct buf *out, int64_t *ret_size_bytes,
                     struct error *err)
{
    struct error ignored = ERROR_INIT;
    struct workspace_entry entry;

    if (workspace_read(classic->workspace, path, out, err) == 0) {
        *ret_size_bytes = (int64_t)out->size;
        return 0;
    }
    if (err->code == ERROR_TOO_LARGE)
        *ret_size_bytes =
            workspace_stat(classic->workspace, path, &entry, &ignored) == 0 ? entry.size_bytes : (int64_t)out->max + 1;
    return -1;
}

int session_classic_read(struct session_classic *classic, const char *path, bool through_link, struct buf *out,
                         int64_t *ret_size_bytes, struct error *err)
{
    auto_free char *below = host_path(classic, path);
    struct workspace_entry link;

    if (below) {
        if (host_read(classic, below, out, ret_size_bytes, err) == 0)
            return 0;
        if (!hands_over(err))
            return -1;
        buf_clear(out);
    }
    if (go_inside(classic, err) < 0)
        return -1;
    if (!through_link) {
        if (session_inside_stat(classic->inside, path, &link, NULL, err) < 0)
            return -1;
        if (link.is_link)
            return error_set(err, ERROR_NOT_FOUND, ENOENT, "It is a link");
    }
    return session_inside_read(classic->inside, path, out, ret_size_bytes, err);
}

int session_classic_is_file(struct session_classic *classic, const char *path, bool *ret, struct error *err)
{
    auto_free char *below = host_path(classic, path);
    struct workspace_entry entry;

    if (below && workspace_stat(classic->workspace, below, &entry, err) == 0 && !entry.is_link) {
        *ret = entry.is_regular;
        return 0;
    }
    if (below && err->code != ERROR_NONE && !hands_over(err))
        return -1;
    if (go_inside(classic, err) < 0 || session_inside_stat(classic->inside, path, NULL, &entry, err) < 0)
        return -1;
    *ret = entry.is_regular;
    return 0;
}

int session_classic_write(struct session_classic *classic, const char *path, const void *data, size_t size,
                          struct error *err)
{
    auto_free char *below = classic->may_write ? host_path(classic, path) : NULL;

    if (below) {
        if (workspace_write(classic->workspace, below, data, size, -1, err) == 0)
            return 0;
        if (!hands_over(err))
            return -1;
    }
    if (go_inside(classic, err) < 0)
        return -1;
    return session_inside_write(classic->inside, path, data, size, err);
}

/* -- directories -- */

int session_classic_list(struct session_classic *classic, const char *path, size_t max_entries,
                         struct workspace_list *ret, struct error *err)
{
    auto_free char *below = host_path(classic, path);

    if (below) {
        if (workspace_list(classic->workspace, below, max_entries, ret, err) == 0)
            return 0;
        if (!hands_over(err))
            return -1;
    }
    if (go_inside(classic, err) < 0)
        return -1;
    return session_inside_list(classic->inside, path, max_entries, ret, err);
}

static inline void cleanup_tree_source(struct tree_source **source)
{
    tree_source_free(*source);
}
#define auto_tree_source auto_cleanup(cleanup_tree_source)

static int host_glob(const struct session_classic *classic, const char *below, const char *shown, const char *pattern,
                     size_t max_entries, struct tree_rows *ret, struct error *err)
{
    auto_tree_source struct tree_source *source = NULL;

    if (workspace_tree_source(classic->workspace, &source, err) < 0)
        return -1;
    return tree_glob(source, below, shown, pattern, max_entries, &classic->cancel, ret, err);
}

int session_classic_glob(struct session_classic *classic, const char *path, const char *shown, const char *pattern,
                         size_t max_entries, struct tree_rows *ret, struct error *err)
{
    auto_free char *below = host_path(classic, path);
    auto_tree_source struct tree_source *source = NULL;
    struct workspace_entry link;

    if (below) {
        if (host_glob(classic, below, shown, pattern, max_entries, ret, err) == 0)
            return 0;
        if (!hands_over(err))
            return -1;
    }
    if (go_inside(classic, err) < 0 || session_inside_stat(classic->inside, path, &link, NULL, err) < 0)
        return -1;
    if (link.is_link && !ends_in_slash(path))
        return 0;
    if (session_inside_tree(classic->inside, path, 0, &source, err) < 0)
        return -1;
    return tree_glob(source, "", shown, pattern, max_entries, &classic->cancel, ret, err);
}

static int host_grep(const struct session_classic *classic, const char *below, struct tree_grep *grep,
                     struct tree_hits *ret, struct error *err)
{
    grep->path = below;
    return workspace_grep(classic->workspace, grep, &classic->cancel, ret, err);
}

/* -- one file of the sandbox as a tree, for tree_grep() -- */

struct one_file {
    struct tree_source source;
    struct session_inside *inside;
    const char *path;
};

static int one_open(struct tree_source *source, const char *path, const struct cancel *cancel, struct error *err)
{
    return path[0] ? error_set(err, ERROR_INVALID, ENOTDIR, "It is a file") : 0;
}

static int one_next(struct tree_source *source, bool with_details, struct workspace_entry *ret,
                    const struct cancel *cancel, struct error *err)
{
    return 0;
}

static int one_read(struct tree_source *source, const char *name, struct buf *out, const struct cancel *cancel,
                    struct error *err)
{
    const struct one_file *file = (const struct one_file *)(const void *)source;

    return session_inside_read(file->inside, file->path, out, NULL, err);
}

static void one_free(struct tree_source *source)
{
}

static int grep_file(const struct session_classic *classic, const char *path, struct tree_grep *grep,
                     struct tree_hits *ret, struct error *err)
{
    static const struct tree_source_ops ops = {one_open, one_next, one_read, one_free};
    struct one_file file = {{&ops}, classic->inside, path};
    const char *slash = strrchr(path, '/');

    grep->path = slash ? slash + 1 : path; /* its name says whether it is text */
    return tree_grep(&file.source, grep, &classic->cancel, ret, err);
}

static int inside_grep(const struct session_classic *classic, const char *path, struct tree_grep *grep,
                       struct tree_hits *ret, struct error *err)
{
    auto_tree_source struct tree_source *source = NULL;
    struct workspace_entry target;

    if (session_inside_stat(classic->inside, path, NULL, &target, err) < 0)
        return -1;
    if (!target.is_dir)
        return target.is_regular && !ends_in_slash(path) ? grep_file(classic, path, grep, ret, err) : 0;
    grep->path = "";
    if (session_inside_tree(classic->inside, path, grep->max_file_bytes, &source, err) < 0)
        return -1;
    return tree_grep(source, grep, &classic->cancel, ret, err);
}

int session_classic_grep(struct session_classic *classic, const char *path, struct tree_grep *grep,
                         struct tree_hits *ret, struct error *err)
{
    auto_free char *below = host_path(classic, path);

    if (below) {
        if (host_grep(classic, below, grep, ret, err) == 0)
            return 0;
        if (!hands_over(err)) {
            if (err->sys_errno != ENXIO)
                return -1;
            error_clear(err); /* nothing is to be found in what is no file */
            return 0;
        }
    }
    if (go_inside(classic, err) < 0)
        return -1;
    return inside_grep(classic, path, grep, ret, err);
}
