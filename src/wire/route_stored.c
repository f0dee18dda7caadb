/* Stored workspaces: the list of them, one of them, pinning and removing it. Answered from the store; no disk is walked. */
#include "id.h"
#include "wire_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_DEFAULT = 100, PAGE_MAX = 1000, CURSOR_BYTES = 24 + SESSION_ID_BYTES };

static void put_unix_ms(struct wire_writer *writer, const char *key, int64_t unix_ms)
{
    if (unix_ms > 0)
        wire_put_seconds(writer, key, unix_ms * 1000);
    else
        wire_put_null(writer, key);
}

static void put_stored(struct wire_writer *writer, const char *key, const struct session_stored *stored)
{
    wire_put_open(writer, key, '{');
    wire_put_str(writer, "id", stored->id);
    wire_put_str(writer, "tenant", stored->tenant[0] ? stored->tenant : NULL);
    wire_put_str(writer, "runtime", stored->runtime[0] ? stored->runtime : NULL);
    wire_put_bool(writer, "open", stored->is_open);
    wire_put_bool(writer, "pinned", stored->is_pinned);
    wire_put_bool(writer, "over_quota", stored->is_over_quota);
    put_unix_ms(writer, "created_at", stored->created_at_unix_ms);
    put_unix_ms(writer, "last_use", stored->last_use_unix_ms);
    put_unix_ms(writer, "expires_at", stored->expires_at_unix_ms);
    wire_put_size(writer, "size_bytes", stored->size_bytes);
    wire_put_size(writer, "file_count", stored->file_count);
    put_unix_ms(writer, "measured_at", stored->measured_at_unix_ms);
    wire_put_close(writer, '}');
}

/* -- the query -- */

/* "last_use", "-size": a minus is descending. */
static bool sort_of(const char *text, struct session_stored_query *query)
{
    static const char *const keys[] = {"id", "last_use", "size"}; /* as in enum session_stored_sort */

    query->is_descending = text[0] == '-';
    text += query->is_descending;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(text, keys[i]) != 0)
            continue;
        query->sort = (enum session_stored_sort)i;
        return !(query->is_descending && query->sort == SESSION_STORED_BY_ID);
    }
    return false;
}

/* "<key>.<id>" of the last one told. The text stays the request's. */
static bool cursor_of(const char *text, struct session_stored_query *query)
{
    char *end;

    if (!*text || !strchr("-0123456789", *text))
        return false;
    query->after_key = strtoll(text, &end, 10);
    if (end == text || *end != '.' || !id_name_valid(end + 1, strlen(end + 1)))
        return false;
    query->after_id = end + 1;
    return true;
}

static int64_t key_of(const struct session_stored_query *query, const struct session_stored *stored)
{
    switch (query->sort) {
    case SESSION_STORED_BY_LAST_USE:
        return stored->last_use_unix_ms;
    case SESSION_STORED_BY_SIZE:
        return stored->size_bytes;
    case SESSION_STORED_BY_ID:
        break;
    }
    return 0;
}

/* A query value without a NUL in it; NULL: not there, or told. */
static const char *query_text(struct wire_call *call, const char *key)
{
    size_t size = 0;
    const char *text = http_request_query(call->request, key, &size);

    if (!text || strlen(text) == size)
        return text;
    wire_invalid_add(&call->invalid, WIRE_AT("query", key), "value_error", "A NUL is in the string");
    return NULL;
}

static void read_query(struct wire_call *call, struct session_stored_query *query)
{
    const char *sort = query_text(call, "sort");
    const char *cursor = query_text(call, "cursor");
    size_t size = 0;
    const char *limit = http_request_query(call->request, "limit", &size);

    query->tenant = query_text(call, "tenant");
    query->prefix = query_text(call, "prefix");
    query->contains = query_text(call, "contains");
    query->limit = PAGE_DEFAULT;
    wire_query_int(&call->invalid, "limit", limit, size, 1, &query->limit);
    if (query->limit > PAGE_MAX)
        query->limit = PAGE_MAX;
    if (sort && !sort_of(sort, query))
        wire_invalid_add(&call->invalid, WIRE_AT("query", "sort"), "value_error",
                         "Input should be 'id', 'last_use', '-last_use', 'size' or '-size'");
    if (cursor && !cursor_of(cursor, query))
        wire_invalid_add(&call->invalid, WIRE_AT("query", "cursor"), "value_error",
                         "Input should be the 'next' of an earlier answer");
}

/* -- the routes -- */

/* GET /workspaces?tenant=&prefix=&contains=&sort=&limit=&cursor= */
int route_stored_list(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct session_stored_query query = {.sort = SESSION_STORED_BY_ID};
    struct session_stored *list;
    size_t count;
    bool more;
    char next[CURSOR_BYTES];
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    read_query(call, &query);
    if (wire_refused(call, reply))
        return 0;
    if (sessions_stored(call->sessions, &query, &list, &count, &more, err) < 0)
        return -1;
    if (more)
        (void)snprintf(next, sizeof next, "%" PRId64 ".%s", key_of(&query, &list[count - 1]), list[count - 1].id);
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "workspaces", '[');
    for (size_t i = 0; i < count; i++)
        put_stored(&writer, NULL, &list[i]);
    wire_put_close(&writer, ']');
    wire_put_str(&writer, "next", more ? next : NULL);
    wire_put_close(&writer, '}');
    free(list);
    return wire_reply_json(reply, &writer, err);
}

static int reply_stored(struct http_reply *reply, const struct session_stored *stored, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    put_stored(&writer, NULL, stored);
    return wire_reply_json(reply, &writer, err);
}

/* GET /workspaces/{session_id} */
int route_stored_get(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct session_stored stored;

    if (wire_refused(call, reply))
        return 0;
    if (sessions_stored_get(call->sessions, call->id, &stored, err) < 0)
        return -1;
    return reply_stored(reply, &stored, err);
}

/* PUT /workspaces/{session_id} {pinned} */
int route_stored_put(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    static const char *const known[] = {"pinned", NULL};
    struct session_stored stored;
    bool pinned = false;

    (void)wire_read_bool(&call->body, "pinned", WIRE_REQUIRED, &pinned);
    wire_read_only(&call->body, known);
    if (wire_refused(call, reply))
        return 0;
    if (sessions_stored_pin(call->sessions, call->id, pinned, call->cancel, &stored, err) < 0)
        return -1;
    return reply_stored(reply, &stored, err);
}

/* DELETE /workspaces/{session_id} */
int route_stored_delete(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    if (wire_refused(call, reply))
        return 0;
    if (sessions_stored_remove(call->sessions, call->id, call->cancel, err) < 0)
        return -1;
    http_reply_empty(reply, 204);
    return 0;
}
