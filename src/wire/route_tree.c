/* Whole trees of stored workspaces, one or many, for the operator; nothing is started, no engine is asked. */
#include "id.h"
#include "tree.h"
#include "wire_private.h"
#include "wire_stored.h"

#include <string.h>

enum { DEPTH_MOST = 64, ENTRIES_MOST = 100000, SESSIONS_MOST = 100 };

struct wanted {
    struct wire_text path;
    int64_t max_depth;
    int64_t max_entries; /* of one workspace */
};
#define WANTED_INIT       \
    {                     \
        {".", 1}, 6, 2000 \
    }

static void read_wanted(const struct wire_call *call, struct wanted *ret)
{
    (void)wire_read_text(&call->body, "path", WIRE_OPTIONAL, &ret->path);
    (void)wire_read_int_within(&call->body, "max_depth", WIRE_OPTIONAL, 1, DEPTH_MOST, &ret->max_depth);
    (void)wire_read_int_within(&call->body, "max_entries", WIRE_OPTIONAL, 1, ENTRIES_MOST, &ret->max_entries);
}

static inline void cleanup_tree_source(struct tree_source **source)
{
    tree_source_free(*source);
}

static int list(const struct wire_call *call, const char *id, const struct wanted *wanted, struct tree_rows *ret,
                struct error *err)
{
    auto_stored struct wire_stored stored = WIRE_STORED_INIT;
    auto_cleanup(cleanup_tree_source) struct tree_source *source = NULL;

    if (wire_stored_open(call->sessions, id, wanted->path, &stored, err) < 0 ||
        workspace_tree_source(stored.workspace, &source, err) < 0)
        return -1;
    if (tree_list(source, stored.path, (unsigned)wanted->max_depth, (size_t)wanted->max_entries, call->cancel, ret,
                  err) < 0)
        return err->code == ERROR_CANCELLED || err->code == ERROR_UNAVAILABLE
                   ? -1
                   : wire_stored_explain(&stored, "directory", err);
    return 0;
}

static void put_tree(struct wire_writer *writer, const char *key, const struct tree_rows *rows)
{
    wire_put_open(writer, key, '{');
    wire_put_open(writer, "entries", '[');
    for (size_t i = 0; i < rows->count; i++) {
        const struct tree_row *row = &rows->rows[i];

        wire_put_file(writer, (struct wire_text){row->name, strlen(row->name)},
                      (struct wire_text){row->path, strlen(row->path)}, row->is_dir, row->is_dir ? -1 : row->size_bytes,
                      &row->mtime_unix_us);
    }
    wire_put_close(writer, ']');
    wire_put_bool(writer, "truncated", rows->truncated);
    wire_put_close(writer, '}');
}

/* POST /workspaces/{session_id}/tree: breadth first; links are left out. */
int route_archive_tree(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_tree_rows struct tree_rows rows = TREE_ROWS_INIT;
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct wanted wanted = WANTED_INIT;

    read_wanted(call, &wanted);
    if (wire_refused(call, reply))
        return 0;
    if (list(call, call->id, &wanted, &rows, err) < 0)
        return -1;
    put_tree(&writer, NULL, &rows);
    return wire_reply_json(reply, &writer, err);
}

/* -- many -- */

/* The ids, checked; NULL if one is wrong. */
static struct json_object *read_sessions(const struct wire_call *call)
{
    struct json_object *ids = wire_read_list(&call->body, "sessions", WIRE_REQUIRED, 1, SESSIONS_MOST);

    for (size_t i = 0; ids && i < json_object_array_length(ids); i++) {
        struct wire_at at = {"body", "sessions", NULL, NULL, (int64_t)i};
        struct wire_text id;

        if (wire_text_of(call->body.invalid, at, json_object_array_get_idx(ids, i), &id) &&
            !id_name_valid(id.data, id.size))
            wire_invalid_pattern(call->body.invalid, at, WIRE_NAME_PATTERN);
    }
    return ids;
}

/* What `tree` of this one would have said. */
static int put_result(const struct wire_call *call, const char *id, const struct wanted *wanted,
                      struct wire_writer *writer, struct error *err)
{
    auto_tree_rows struct tree_rows rows = TREE_ROWS_INIT;
    struct error failure = ERROR_INIT;
    bool failed = list(call, id, wanted, &rows, &failure) < 0;

    if (failed && (failure.code == ERROR_CANCELLED || failure.code == ERROR_UNAVAILABLE)) {
        *err = failure;
        return -1;
    }
    wire_put_open(writer, NULL, '{');
    wire_put_str(writer, "session_id", id);
    if (failed)
        wire_put_null(writer, "tree");
    else
        put_tree(writer, "tree", &rows);
    wire_put_str(writer, "error", failed ? error_public_text(&failure) : NULL);
    wire_put_opt_int(writer, "status_code", (struct opt_int){failed, failed ? error_http_status(failure.code) : 0});
    wire_put_close(writer, '}');
    return wire_writer_end(writer, err);
}

/* POST /workspaces/trees: in the order asked for; one that fails says so in its place. */
int route_archive_trees(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct wanted wanted = WANTED_INIT;
    struct json_object *ids = read_sessions(call);

    read_wanted(call, &wanted);
    if (wire_refused(call, reply))
        return 0;
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "results", '[');
    for (size_t i = 0; i < json_object_array_length(ids); i++) {
        if (put_result(call, json_object_get_string(json_object_array_get_idx(ids, i)), &wanted, &writer, err) < 0) {
            buf_done(&body);
            return -1;
        }
    }
    wire_put_close(&writer, ']');
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}
