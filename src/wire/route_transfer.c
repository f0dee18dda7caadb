/* Directories as archives: GET …/archive?path=&format= of sessions and stored workspaces, PUT …/archive?path=&format= of a session. */
#include "alloc.h"
#include "log.h"
#include "pack.h"
#include "wire_place.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

/* False: told as wrong. */
static bool read_format(struct wire_call *call, enum pack_format when_missing, enum pack_format *ret)
{
    const char *text = http_request_query(call->request, "format", NULL);

    *ret = text ? pack_format_of(text) : when_missing;
    if (text && *ret == PACK_UNKNOWN)
        wire_invalid_add(&call->invalid, WIRE_AT("query", "format"), "enum",
                         "Input should be 'tar', 'tar.gz', 'tar.zst' or 'zip'");
    return !text || *ret != PACK_UNKNOWN;
}

/* -- downloads -- */

struct sending {
    struct pack *pack;
    char id[SESSION_ID_BYTES];
};

static int64_t send_next(void *context, const struct cancel *cancel, char *out, size_t max)
{
    struct sending *sending = context;
    struct error err = ERROR_INIT;
    int64_t made = pack_next(sending->pack, cancel, out, max, &err);

    if (made < 0 && err.code != ERROR_CANCELLED)
        log_warn("archive.broken_off", log_s("session", sending->id), log_e(&err));
    return made;
}

static void send_trailer(void *context, char out[HTTP_TRAILER_BYTES])
{
    const struct sending *sending = context;
    struct pack_report report;

    pack_report(sending->pack, &report);
    (void)snprintf(out, HTTP_TRAILER_BYTES, "skipped=%" PRIu64 "; changed=%" PRIu64 "; names=%s", report.skipped,
                   report.changed, report.names);
    if (report.skipped || report.changed)
        log_info("archive.incomplete", log_s("session", sending->id), log_i("skipped", (int64_t)report.skipped),
                 log_i("changed", (int64_t)report.changed), log_s("names", report.names));
}

static void send_free(void *context)
{
    struct sending *sending = context;

    pack_free(sending->pack);
    free(sending);
}

static int download(const struct wire_place *place, struct http_reply *reply, struct error *err)
{
    const char *slash = strrchr(place->path, '/');
    const char *name = slash ? slash + 1 : place->path[0] ? place->path : place->call->id;
    struct sending *sending;
    struct http_stream stream = {
        .next = send_next, .free = send_free, .trailer_name = "X-Berth-Archive", .trailer = send_trailer};
    enum pack_format format;
    struct pack *pack;

    if (!read_format(place->call, PACK_TAR, &format))
        return 1;
    if (pack_new(place->workspace, place->path, format, &pack, err) < 0)
        return err->sys_errno == ENOTDIR ? error_set(err, ERROR_INVALID, 0, "Not a directory: see content") : -1;
    sending = alloc_zero(sizeof *sending);
    sending->pack = pack;
    (void)snprintf(sending->id, sizeof sending->id, "%s", place->call->id);
    stream.context = sending;
    wire_reply_inert(reply);
    wire_reply_attachment(reply, name, pack_format_suffix(format));
    http_reply_stream(reply, pack_format_type(format), &stream);
    return 0;
}

/* GET /sessions/{session_id}/archive?path=&format=, GET /workspaces/{session_id}/archive?path=&format= */
int route_transfer_get(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct wire_place place = WIRE_PLACE_INIT;
    int result = wire_place_begin(call, "path", false, false, &place, err);

    if (result == 0)
        result = download(&place, reply, err);
    result = wire_place_end(&place, "pack", result, err);
    return result > 0 && wire_refused(call, reply) ? 0 : result;
}

/* -- uploads -- */

static int64_t upload_next(void *context, char *out, size_t max, struct error *err)
{
    struct wire_call *call = context;

    return http_request_read(call->request, call->cancel, out, max, err);
}

static int reply_unpacked(const struct wire_place *place, const struct unpack_result *result, struct http_reply *reply,
                          struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    wire_put_open(&writer, NULL, '{');
    wire_put_path(&writer, place->path);
    wire_put_int(&writer, "entries", (int64_t)result->entries);
    wire_put_int(&writer, "bytes", (int64_t)result->bytes);
    wire_put_int(&writer, "refused_count", (int64_t)result->refused);
    wire_put_open(&writer, "refused", '[');
    for (size_t i = 0; i < result->refusal_count; i++) {
        wire_put_open(&writer, NULL, '{');
        wire_put_path(&writer, result->refusals[i].path);
        wire_put_str(&writer, "reason", result->refusals[i].reason);
        wire_put_close(&writer, '}');
    }
    wire_put_close(&writer, ']');
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

static int upload(const struct wire_place *place, struct http_reply *reply, struct error *err)
{
    const struct sessions_settings *settings = sessions_settings(place->call->sessions);
    const char *type = http_request_header(place->call->request, "Content-Type");
    struct workspace_bytes bytes = {upload_next, place->call};
    struct unpack_limits limits = {(uint64_t)settings->max_upload_bytes, (uint64_t)settings->max_upload_entries};
    auto_cleanup(unpack_result_done) struct unpack_result unpacked = {.entries = 0};
    enum pack_format format;

    if (!read_format(place->call, PACK_UNKNOWN, &format))
        return 1;
    if (type && strncasecmp(type, "multipart/", 10) == 0)
        return fail(err, MEDIA_TYPE, "Send the archive as the body, not a form");
    if (unpack(place->workspace, place->path, settings->work_dir, format, &bytes, &limits, place->call->cancel,
               &unpacked, err) < 0)
        return -1;
    return reply_unpacked(place, &unpacked, reply, err);
}

/* PUT /sessions/{session_id}/archive?path=&format= */
int route_transfer_put(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct wire_place place = WIRE_PLACE_INIT;
    int result = wire_place_begin(call, "path", false, true, &place, err);

    if (result == 0)
        result = upload(&place, reply, err);
    result = wire_place_end(&place, "unpack", result, err);
    return result > 0 && wire_refused(call, reply) ? 0 : result;
}
