/* Files of a live session, served from the host through the jail. 409 says: let the sandbox do it. */
#include "alloc.h"
#include "clock.h"
#include "fd.h"
#include "utf8.h"
#include "wire_private.h"
#include "workspace.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    IN_MEMORY_BYTES = 256 * 1024, /* larger files are sent from their descriptor */
    NATIVE_NAME_BYTES = 240,      /* the contract hands over names that leave no room for a temporary sibling's */
};

/* One operation on one path. */
struct work {
    struct wire_call *call;
    struct workspace *workspace;
    struct wire_text sent; /* the path as the client wrote it */
    const char *path;      /* below the work dir, normal */
};

struct operation {
    const char *event;
    bool writes;
    int (*work)(const struct work *work, struct http_reply *reply, struct error *err);
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Which component a path fails at: the first that is not there, or is no directory although something is below it. */
static char *failing_component(const struct work *work)
{
    char *prefix = alloc_str(work->path);
    size_t size = strlen(prefix);

    for (size_t at = 0; at < size; at++) {
        struct error err = ERROR_INIT;
        struct workspace_entry entry;

        if (prefix[at] != '/')
            continue;
        prefix[at] = '\0';
        if (workspace_stat(work->workspace, prefix, &entry, &err) < 0 || !entry.is_dir)
            return prefix;
        prefix[at] = '/';
    }
    return prefix;
}

/* As Python writes a string into a message. */
static void put_repr(char out[static WIRE_TARGET_BYTES], const char *text, size_t size)
{
    char quote = memchr(text, '\'', size) && !memchr(text, '"', size) ? '"' : '\'';
    char shown[WIRE_TARGET_BYTES];

    (void)wire_quote_text(text, size, shown);
    (void)snprintf(out, WIRE_TARGET_BYTES, "%c%.160s%c", quote, shown, quote);
}

/* The client hands the message on to its user: the words are those of the reference. */
static void word_failure(const struct work *work, struct error *err)
{
    auto_free char *component = NULL;
    char named[WIRE_TARGET_BYTES];

    if (!work->path) { /* the path itself is not fit */
        put_repr(named, work->sent.data, work->sent.size);
        if (err->code == ERROR_INVALID && !wire_has_nul(work->sent))
            (void)snprintf(err->text, sizeof err->text, "path must be absolute: %.200s", named);
        return;
    }
    component = failing_component(work);
    put_repr(named, base_name(component), strlen(base_name(component)));
    if (err->code == ERROR_NOT_FOUND)
        (void)snprintf(err->text, sizeof err->text, "[Errno 2] No such file or directory: %.180s", named);
    else if (err->code == ERROR_INVALID && err->sys_errno == ENOTDIR)
        (void)snprintf(err->text, sizeof err->text, "[Errno 20] Not a directory: %.180s", named);
    else if (err->code == ERROR_INVALID && err->sys_errno == EEXIST)
        (void)snprintf(err->text, sizeof err->text, "[Errno 17] File exists: %.180s", named);
    else if (err->code == ERROR_INVALID && err->sys_errno == EISDIR)
        (void)snprintf(err->text, sizeof err->text, "%.180s is a directory",
                       work->path[0] ? base_name(work->path) : "the work directory");
    else if (err->code == ERROR_INVALID && !work->path[0])
        (void)snprintf(err->text, sizeof err->text, "refusing to remove the working directory");
}

static int perform(struct work *work, const struct operation *operation, struct http_reply *reply, struct error *err)
{
    struct sessions *sessions = work->call->sessions;
    int64_t started_us = clock_mono_us();
    auto_free char *path = NULL;
    char target[WIRE_TARGET_BYTES];
    struct session_files files = SESSION_FILES_INIT;
    size_t target_size;
    int result;

    if (session_files_begin(sessions, work->call->id, operation->writes, &files, err) < 0)
        return -1;
    work->workspace = files.workspace;
    result = workspace_path_live(sessions_settings(sessions)->work_dir, work->sent.data, work->sent.size, &path, err);
    work->path = path;
    if (result == 0)
        result = operation->work(work, reply, err);
    if (result == 0 && operation->writes && session_files_replaced(&files))
        result = fail(err, HANDOVER, "The workspace was replaced by a snapshot of it meanwhile");
    if (result < 0)
        word_failure(work, err);
    target_size = wire_quote_text(work->sent.data, work->sent.size, target);
    session_files_end(sessions, &files, operation->event, target, target_size, result < 0 ? err : NULL, started_us);
    return result < 0 ? wire_native_failure(reply, err) : 0;
}

static int perform_on_body(struct wire_call *call, const struct operation *operation, struct http_reply *reply,
                           struct error *err)
{
    struct work work = {.call = call};

    (void)wire_read_text(&call->body, "path", WIRE_REQUIRED, &work.sent);
    if (wire_refused(call, reply))
        return 0;
    return perform(&work, operation, reply, err);
}

static int64_t max_read_bytes(struct sessions *sessions)
{
    struct policy *policy = sessions_policy(sessions);
    int64_t max = policy->max_read_bytes;

    policy_unref(policy);
    return max;
}

/* The path as the sandbox sees it, without doubled or trailing slashes. */
static char *inside_path(const struct work *work)
{
    const char *work_dir = sessions_settings(work->call->sessions)->work_dir;
    size_t size = strlen(work_dir);
    char *path;

    while (size > 0 && work_dir[size - 1] == '/')
        size--;
    if (asprintf(&path, "%.*s%s%s", (int)size, work_dir, work->path[0] ? "/" : "", work->path) < 0)
        abort();
    return path;
}

static int work_read(const struct work *work, struct http_reply *reply, struct error *err)
{
    int64_t max = max_read_bytes(work->call->sessions);
    struct buf body = BUF_INIT((size_t)max < IN_MEMORY_BYTES ? (size_t)max : IN_MEMORY_BYTES);
    auto_close int fd = -1;
    struct workspace_entry entry;

    if (workspace_open_file(work->workspace, work->path, &fd, &entry, err) < 0)
        return -1;
    if (entry.size_bytes > max)
        return fail(err, HANDOVER, "The file is %lld bytes, over the %lld-byte read limit", (long long)entry.size_bytes,
                    (long long)max);
    if (entry.size_bytes > IN_MEMORY_BYTES) {
        http_reply_fd(reply, "application/octet-stream", take_fd(&fd), 0, (uint64_t)entry.size_bytes);
        return 0;
    }
    if (fd_read_all(fd, &body, err) < 0) {
        buf_done(&body);
        return -1;
    }
    http_reply_buf(reply, "application/octet-stream", &body);
    return 0;
}

static int work_write(const struct work *work, struct http_reply *reply, struct error *err)
{
    const struct http_body *body = http_request_body(work->call->request);

    if (strlen(base_name(work->path)) > NATIVE_NAME_BYTES)
        return fail(err, HANDOVER, "The name is too long for a native write");
    if (workspace_write(work->workspace, work->path, body->data, (size_t)body->size, body->fd, err) < 0)
        return -1;
    http_reply_empty(reply, 204);
    return 0;
}

static int work_stat(const struct work *work, struct http_reply *reply, struct error *err)
{
    auto_free char *inside = inside_path(work);
    struct wire_text named = {base_name(inside), strlen(base_name(inside))};
    struct workspace_entry entry;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    if (workspace_stat(work->workspace, work->path, &entry, err) < 0)
        return -1;
    if (!entry.is_dir && !entry.is_regular)
        return fail(err, HANDOVER, "Not a regular file");
    wire_put_file(&writer, named, work->sent, entry.is_dir, entry.is_dir ? -1 : entry.size_bytes, NULL);
    return wire_reply_json(reply, &writer, err);
}

/* One odd entry, and the sandbox has to list it: the wire's entries cannot say what it is. */
static int check_entries(const struct workspace_list *list, struct error *err)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct workspace_entry *entry = &list->entries[i];

        if (entry->is_link || (!entry->is_dir && !entry->is_regular))
            return fail(err, HANDOVER, "The directory holds a link or a special file");
        if (!utf8_valid(entry->name, strlen(entry->name)))
            return fail(err, HANDOVER, "The directory holds a name that is not UTF-8");
    }
    return 0;
}

static int work_list(const struct work *work, struct http_reply *reply, struct error *err)
{
    auto_workspace_list struct workspace_list list = WORKSPACE_LIST_INIT;
    auto_free char *inside = inside_path(work);
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    char path[PATH_MAX + NAME_MAX];

    if (workspace_list(work->workspace, work->path, WIRE_LIST_MAX_ENTRIES, &list, err) < 0 ||
        check_entries(&list, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '[');
    for (size_t i = 0; i < list.count; i++) {
        const struct workspace_entry *entry = &list.entries[i];
        int size = snprintf(path, sizeof path, "%s/%s", inside, entry->name);

        if (size >= (int)sizeof path) {
            buf_done(&body);
            return fail(err, HANDOVER, "The directory lies too deep");
        }
        wire_put_file(&writer, (struct wire_text){entry->name, strlen(entry->name)},
                      (struct wire_text){path, (size_t)size}, entry->is_dir, entry->is_dir ? -1 : entry->size_bytes,
                      NULL);
    }
    wire_put_close(&writer, ']');
    return wire_reply_json(reply, &writer, err);
}

static int work_realpath(const struct work *work, struct http_reply *reply, struct error *err)
{
    auto_free char *inside = inside_path(work);
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    if (workspace_realpath(work->workspace, work->path, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "path", inside);
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

static int work_mkdir(const struct work *work, struct http_reply *reply, struct error *err)
{
    if (workspace_mkdir(work->workspace, work->path, err) < 0)
        return -1;
    http_reply_empty(reply, 204);
    return 0;
}

static int work_remove(const struct work *work, struct http_reply *reply, struct error *err)
{
    if (workspace_remove(work->workspace, work->path, work->call->cancel, err) < 0)
        return -1;
    http_reply_empty(reply, 204);
    return 0;
}

/* POST /sessions/{session_id}/files/read */
int route_files_read(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    static const struct operation operation = {"read", false, work_read};

    return perform_on_body(call, &operation, reply, err);
}

/* POST /sessions/{session_id}/files/write?path= */
int route_files_write(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    static const struct operation operation = {"write", true, work_write};
    struct work work = {.call = call};

    work.sent.data = http_request_query(call->request, "path", &work.sent.size);
    if (!work.sent.data)
        wire_invalid_add(&call->invalid, WIRE_AT("query", "path"), "missing", "Field required");
    if (wire_refused(call, reply))
        return 0;
    if (http_request_body(call->request)->too_large)
        return fail(err, HANDOVER, "Larger than a native write");
    return perform(&work, &operation, reply, err);
}

/* POST /sessions/{session_id}/files/stat */
int route_files_stat(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    static const struct operation operation = {"stat", false, work_stat};

    return perform_on_body(call, &operation, reply, err);
}

/* POST /sessions/{session_id}/files/list */
int route_files_list(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    static const struct operation operation = {"ls", false, work_list};

    return perform_on_body(call, &operation, reply, err);
}

/* POST /sessions/{session_id}/files/realpath */
int route_files_realpath(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    static const struct operation operation = {"realpath", false, work_realpath};

    return perform_on_body(call, &operation, reply, err);
}

/* POST /sessions/{session_id}/files/mkdir */
int route_files_mkdir(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    static const struct operation operation = {"mkdir", true, work_mkdir};

    return perform_on_body(call, &operation, reply, err);
}

/* POST /sessions/{session_id}/files/remove */
int route_files_remove(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    static const struct operation operation = {"remove", true, work_remove};

    return perform_on_body(call, &operation, reply, err);
}
