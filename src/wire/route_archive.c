/* Stored workspaces, of open and closed sessions, for the operator; nothing is started, no engine is asked. */
#include "base64.h"
#include "text.h"
#include "wire_private.h"
#include "wire_stored.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* -- ls -- */

static void put_entries(struct wire_writer *writer, const struct wire_stored *stored, const struct workspace_list *list,
                        bool directories)
{
    char path[PATH_MAX + NAME_MAX];

    for (size_t i = 0; i < list->count; i++) {
        const struct workspace_entry *entry = &list->entries[i];
        int size;

        if (entry->is_link || entry->is_dir != directories)
            continue;
        size = snprintf(path, sizeof path, "%s%s%s", stored->path, stored->path[0] ? "/" : "", entry->name);
        if (size >= (int)sizeof path)
            continue; /* nothing could be read by that name either */
        wire_put_file(writer, (struct wire_text){entry->name, strlen(entry->name)},
                      (struct wire_text){path, (size_t)size}, entry->is_dir, entry->is_dir ? -1 : entry->size_bytes,
                      &entry->mtime_unix_us);
    }
}

/* POST /workspaces/{session_id}/ls: directories first; links are left out; a name that is not UTF-8 shows U+FFFD. */
int route_archive_ls(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_stored struct wire_stored stored = WIRE_STORED_INIT;
    auto_workspace_list struct workspace_list list = WORKSPACE_LIST_INIT;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct wire_text path;

    (void)wire_read_text(&call->body, "path", WIRE_REQUIRED, &path);
    if (wire_refused(call, reply))
        return 0;
    if (wire_stored_open(call->sessions, call->id, path, &stored, err) < 0)
        return -1;
    if (workspace_list(stored.workspace, stored.path, WIRE_LIST_MAX_ENTRIES, &list, err) < 0)
        return err->code == ERROR_TOO_LARGE
                   ? fail(err, INVALID, "The directory holds more than %d entries", WIRE_LIST_MAX_ENTRIES)
                   : wire_stored_explain(&stored, "directory", err);
    wire_put_open(&writer, NULL, '[');
    put_entries(&writer, &stored, &list, true);
    put_entries(&writer, &stored, &list, false);
    wire_put_close(&writer, ']');
    return wire_reply_json(reply, &writer, err);
}

/* -- reading -- */

static int read_whole(struct wire_call *call, const struct wire_stored *stored, struct buf *out, struct error *err)
{
    struct policy *policy = sessions_policy(call->sessions);
    struct workspace_entry entry;
    struct error ignored = ERROR_INIT;

    out->max = (size_t)policy->max_read_bytes;
    policy_unref(policy);
    if (workspace_read(stored->workspace, stored->path, out, err) == 0)
        return 0;
    if (err->code != ERROR_TOO_LARGE)
        return wire_stored_explain(stored, "file", err);
    if (workspace_stat(stored->workspace, stored->path, &entry, &ignored) < 0)
        entry.size_bytes = (int64_t)out->max + 1;
    return fail(err, INVALID, "File is %lld bytes, over the %zu-byte read limit", (long long)entry.size_bytes,
                out->max);
}

/* POST /workspaces/{session_id}/read */
int route_archive_read(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_stored struct wire_stored stored = WIRE_STORED_INIT;
    auto_buf struct buf content = BUF_INIT(0);
    auto_buf struct buf text = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    auto_buf struct buf slice = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct wire_text path;
    int64_t offset = 0;
    int64_t limit = 2000;

    (void)wire_read_text(&call->body, "path", WIRE_REQUIRED, &path);
    (void)wire_read_int(&call->body, "offset", WIRE_OPTIONAL, 0, &offset);
    (void)wire_read_int(&call->body, "limit", WIRE_OPTIONAL, 1, &limit);
    if (wire_refused(call, reply))
        return 0;
    if (wire_stored_open(call->sessions, call->id, path, &stored, err) < 0 ||
        read_whole(call, &stored, &content, err) < 0 ||
        text_decode(base_name(stored.path), buf_str(&content), content.size, &text, err) < 0 ||
        text_slice(buf_str(&text), text.size, offset, limit, &slice, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_text(&writer, "content", buf_str(&slice), slice.size);
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

/* POST /workspaces/{session_id}/read_bytes */
int route_archive_read_bytes(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_stored struct wire_stored stored = WIRE_STORED_INIT;
    auto_buf struct buf content = BUF_INIT(0);
    auto_buf struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_text path;

    (void)wire_read_text(&call->body, "path", WIRE_REQUIRED, &path);
    if (wire_refused(call, reply))
        return 0;
    if (wire_stored_open(call->sessions, call->id, path, &stored, err) < 0 ||
        read_whole(call, &stored, &content, err) < 0 || buf_append_str(&body, "{\"content_b64\":\"", err) < 0 ||
        base64_encode(buf_str(&content), content.size, &body, err) < 0 || buf_append_str(&body, "\"}", err) < 0)
        return -1;
    http_reply_buf(reply, WIRE_JSON_TYPE, &body);
    return 0;
}
