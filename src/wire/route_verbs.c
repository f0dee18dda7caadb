/* POST …/move, …/copy, …/chmod of a session; GET …/find and …/search of sessions and stored workspaces. */
#include "search.h"
#include "verbs.h"
#include "wire_place.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum {
    SEARCH_SECONDS = 30,
    SEARCH_HITS = 1000,
    SEARCH_HITS_MAX = 100000,
    SEARCH_LINE_BYTES = 512,
    SEARCH_BYTES = 16 * 1024 * 1024,
    FIND_ENTRIES = 10000,
    FIND_ENTRIES_MAX = 250000,
    FIND_DEPTH_MAX = 100000,
};

static int finish(struct wire_place *place, const char *op, int result, struct http_reply *reply, struct error *err)
{
    struct wire_call *call = place->call;

    result = wire_place_end(place, op, result, err);
    return result > 0 && wire_refused(call, reply) ? 0 : result;
}

static bool query_flag(struct wire_call *call, const char *key, bool standard)
{
    size_t size = 0;
    const char *text = http_request_query(call->request, key, &size);

    wire_query_bool(&call->invalid, key, text, size, &standard);
    return standard;
}

static int64_t query_number(struct wire_call *call, const char *key, int64_t standard, int64_t most)
{
    size_t size = 0;
    const char *text = http_request_query(call->request, key, &size);

    wire_query_int(&call->invalid, key, text, size, 1, &standard);
    return standard < most ? standard : most;
}

/* -- move, copy, chmod -- */

static int move(const struct wire_place *place, struct http_reply *reply, struct error *err)
{
    auto_free char *to = NULL;
    bool replaces = query_flag(place->call, "replace", false);
    int result = wire_place_path(place->call, "to", true, &to, err);

    if (result != 0 || wire_invalid_any(&place->call->invalid))
        return result < 0 ? -1 : 1;
    if (workspace_move(place->workspace, place->path, to, replaces, err) < 0)
        return -1;
    http_reply_empty(reply, 204);
    return 0;
}

/* POST /sessions/{session_id}/move?from=&to=&replace= */
int route_move(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct wire_place place = WIRE_PLACE_INIT;
    int result = wire_place_begin(call, "from", true, true, &place, err);

    return finish(&place, "move", result == 0 ? move(&place, reply, err) : result, reply, err);
}

static int copy(const struct wire_place *place, struct http_reply *reply, struct error *err)
{
    auto_free char *to = NULL;
    bool replaces = query_flag(place->call, "replace", false);
    int result = wire_place_path(place->call, "to", true, &to, err);
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct workspace_copied copied;

    if (result != 0 || wire_invalid_any(&place->call->invalid))
        return result < 0 ? -1 : 1;
    if (workspace_copy(place->workspace, place->path, to, replaces, place->call->cancel, &copied, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_path(&writer, to);
    wire_put_int(&writer, "entries", (int64_t)copied.entries);
    wire_put_int(&writer, "skipped", (int64_t)copied.skipped);
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

/* POST /sessions/{session_id}/copy?from=&to=&replace= */
int route_copy(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct wire_place place = WIRE_PLACE_INIT;
    int result = wire_place_begin(call, "from", true, true, &place, err);

    return finish(&place, "copy", result == 0 ? copy(&place, reply, err) : result, reply, err);
}

static int change_mode(const struct wire_place *place, struct http_reply *reply, struct error *err)
{
    const char *text = http_request_query(place->call->request, "mode", NULL);
    size_t size = text ? strlen(text) : 0;

    if (size < 1 || size > 4 || strspn(text, "01234567") != size || (size == 4 && text[0] != '0')) {
        wire_invalid_add(&place->call->invalid, WIRE_AT("query", "mode"), "octal",
                         "Input should be three octal digits of permissions");
        return 1;
    }
    if (workspace_chmod(place->workspace, place->path, (unsigned)strtoul(text, NULL, 8), err) < 0)
        return -1;
    http_reply_empty(reply, 204);
    return 0;
}

/* POST /sessions/{session_id}/chmod?path=&mode=755 */
int route_chmod(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct wire_place place = WIRE_PLACE_INIT;
    int result = wire_place_begin(call, "path", true, true, &place, err);

    return finish(&place, "chmod", result == 0 ? change_mode(&place, reply, err) : result, reply, err);
}

/* -- find -- */

static int read_glob(struct wire_call *call, struct search_glob **ret, struct error *err)
{
    size_t size = 0;
    const char *text = http_request_query_bytes(call->request, "glob", &size);

    return text ? search_glob_new(text, size, ret, err) : 0;
}

static void cleanup_glob(struct search_glob **glob)
{
    search_glob_free(*glob);
}

static const char *kind_of(unsigned char type)
{
    switch (type) {
    case DT_REG:
        return "file";
    case DT_DIR:
        return "directory";
    case DT_LNK:
        return "link";
    default:
        return "other";
    }
}

static int reply_found(const struct find_result *found, struct http_reply *reply, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "entries", '[');
    for (size_t i = 0; i < found->count; i++) {
        const struct found_entry *entry = &found->entries[i];
        char mode[8];

        (void)snprintf(mode, sizeof mode, "%03o", entry->mode);
        wire_put_open(&writer, NULL, '{');
        wire_put_path(&writer, entry->path);
        wire_put_str(&writer, "kind", kind_of(entry->type));
        wire_put_str(&writer, "mode", mode);
        wire_put_size(&writer, "size", entry->type == DT_REG ? entry->size_bytes : -1);
        wire_put_time(&writer, "modified_at", entry->mtime_unix_us);
        wire_put_close(&writer, '}');
    }
    wire_put_close(&writer, ']');
    wire_put_bool(&writer, "truncated", found->truncated != NULL);
    wire_put_str(&writer, "truncated_by", found->truncated);
    wire_put_int(&writer, "unreadable", (int64_t)found->unreadable);
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

static int find(const struct wire_place *place, struct http_reply *reply, struct error *err)
{
    struct wire_call *call = place->call;
    auto_cleanup(cleanup_glob) struct search_glob *glob = NULL;
    auto_cleanup(find_result_done) struct find_result found = {.entries = NULL};
    int64_t depth = query_number(call, "depth", FIND_DEPTH_MAX, FIND_DEPTH_MAX);
    int64_t limit = query_number(call, "limit", FIND_ENTRIES, FIND_ENTRIES_MAX);
    struct cancel in_time = cancel_within(call->cancel, SEARCH_SECONDS * 1000);

    if (wire_invalid_any(&call->invalid))
        return 1;
    if (read_glob(call, &glob, err) < 0 ||
        find_run(place->workspace, place->path, glob, (unsigned)depth, (size_t)limit, &in_time, &found, err) < 0)
        return -1;
    return reply_found(&found, reply, err);
}

/* GET /sessions/{session_id}/find?path=&glob=&depth=&limit=, GET /workspaces/{session_id}/find */
int route_find(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct wire_place place = WIRE_PLACE_INIT;
    int result = wire_place_begin(call, "path", false, false, &place, err);

    return finish(&place, "find", result == 0 ? find(&place, reply, err) : result, reply, err);
}

/* -- search -- */

static void cleanup_pattern(struct search_pattern **pattern)
{
    search_pattern_free(*pattern);
}

static int reply_searched(const struct search_result *result, struct http_reply *reply, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "matches", '[');
    for (size_t i = 0; i < result->count; i++) {
        const struct search_hit *hit = &result->hits[i];

        wire_put_open(&writer, NULL, '{');
        wire_put_path(&writer, result->text.data + hit->path);
        wire_put_int(&writer, "line", hit->number);
        wire_put_int(&writer, "column", hit->column);
        wire_put_text(&writer, "text", result->text.data + hit->line, hit->line_size);
        wire_put_bool(&writer, "cut", hit->cut);
        wire_put_close(&writer, '}');
    }
    wire_put_close(&writer, ']');
    wire_put_bool(&writer, "truncated", result->truncated != NULL);
    wire_put_str(&writer, "truncated_by", result->truncated);
    wire_put_int(&writer, "files", (int64_t)result->files);
    wire_put_int(&writer, "binary_files", (int64_t)result->binary);
    wire_put_int(&writer, "unreadable", (int64_t)result->unreadable);
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

static int search(const struct wire_place *place, struct http_reply *reply, struct error *err)
{
    struct wire_call *call = place->call;
    auto_cleanup(cleanup_glob) struct search_glob *glob = NULL;
    auto_cleanup(cleanup_pattern) struct search_pattern *pattern = NULL;
    auto_cleanup(search_result_done) struct search_result result = {.hits = NULL};
    struct search spec = {.path = place->path, .max_line_bytes = SEARCH_LINE_BYTES, .max_bytes = SEARCH_BYTES};
    struct cancel in_time =
        cancel_within(call->cancel, query_number(call, "seconds", SEARCH_SECONDS, SEARCH_SECONDS) * 1000);
    bool is_regex = query_flag(call, "regex", false);
    bool ignores_case = query_flag(call, "ignore_case", false);
    size_t size = 0;
    const char *text = http_request_query_bytes(call->request, "pattern", &size);

    spec.max_hits = (size_t)query_number(call, "limit", SEARCH_HITS, SEARCH_HITS_MAX);
    if (!text)
        wire_invalid_add(&call->invalid, WIRE_AT("query", "pattern"), "missing", "Field required");
    if (wire_invalid_any(&call->invalid))
        return 1;
    if (read_glob(call, &glob, err) < 0 || search_pattern_new(text, size, is_regex, ignores_case, &pattern, err) < 0)
        return -1;
    spec.glob = glob;
    spec.pattern = pattern;
    if (search_run(place->workspace, &spec, &in_time, &result, err) < 0)
        return -1;
    return reply_searched(&result, reply, err);
}

/* GET /sessions/{session_id}/search?pattern=&path=&regex=&ignore_case=&glob=&limit=&seconds=, GET /workspaces/{session_id}/search */
int route_search(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct wire_place place = WIRE_PLACE_INIT;
    int result = wire_place_begin(call, "path", false, false, &place, err);

    return finish(&place, "search", result == 0 ? search(&place, reply, err) : result, reply, err);
}
