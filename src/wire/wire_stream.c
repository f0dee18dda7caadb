/* Output of a watched run on its way to a client: as JSON lines, as server-sent events, as bytes.
 *
 * Every record but the last carries the places that come next as its id, so that a reader that was cut goes on from there. A
 * character that lies in two chunks is sent whole; what is no UTF-8 is sent as base64. All values are JSON on one line: no output
 * can look like a record. A stream that does not end with an "exit" record is not finished.
 */
#include "alloc.h"
#include "base64.h"
#include "utf8.h"
#include "wire_run.h"

#include <stdlib.h>
#include <string.h>

enum {
    PING_MS = 10000,
    HELD_MAX = 3,                       /* bytes of a character whose end has not come */
    RECORD_MAX_BYTES = 8 * 1024 * 1024, /* a chunk, each byte escaped */
    PIECE_MAX_BYTES = 2 * 1024 * 1024,
    SEND_BUFFER_BYTES =
        64 * 1024, /* with what a client's kernel holds, less than the agent keeps for readers that were cut */
};

struct outgoing {
    struct sessions *sessions;
    char id[SESSION_ID_BYTES];
    char run_id[SESSION_ID_BYTES];
    struct run_reader *reader;
    enum wire_stream_format format;
    enum run_stream only; /* BYTES */
    uint64_t at[2];       /* sent up to here */
    char held[2][HELD_MAX];
    size_t held_size[2];
    bool is_over;
    struct run_chunk bytes; /* BYTES: what is left of the chunk that is out */
    struct buf record;      /* what is left to be sent, from record_at on */
    size_t record_at;
    struct buf json;
    struct buf piece;
};

static const char *name_of(enum run_stream stream)
{
    return stream == RUN_STDERR ? "stderr" : "stdout";
}

static void begin(struct outgoing *out, struct wire_writer *writer, const char *type)
{
    buf_clear(&out->json);
    wire_put_open(writer, NULL, '{');
    if (out->format == WIRE_STREAM_LINES)
        wire_put_str(writer, "type", type);
}

/* The record as its format has it, behind those that are waiting. `has_place`: with the id of what comes next. */
static int end(struct outgoing *out, struct wire_writer *writer, const char *type, bool has_place, struct error *err)
{
    char id[64];

    (void)snprintf(id, sizeof id, "%llu-%llu", (unsigned long long)out->at[0], (unsigned long long)out->at[1]);
    if (has_place && out->format == WIRE_STREAM_LINES)
        wire_put_str(writer, "id", id);
    wire_put_close(writer, '}');
    if (wire_writer_end(writer, err) < 0)
        return -1;
    if (out->format == WIRE_STREAM_LINES)
        return buf_append(&out->record, out->json.data, out->json.size, err) < 0 ||
                       buf_append_str(&out->record, "\n", err) < 0
                   ? -1
                   : 0;
    if (has_place && buf_append_format(&out->record, err, "id: %s\n", id) < 0)
        return -1;
    return buf_append_format(&out->record, err, "event: %s\ndata: ", type) < 0 ||
                   buf_append(&out->record, out->json.data, out->json.size, err) < 0 ||
                   buf_append_str(&out->record, "\n\n", err) < 0
               ? -1
               : 0;
}

static int put_output(struct outgoing *out, enum run_stream stream, const char *data, size_t size, bool is_text,
                      struct error *err)
{
    struct wire_writer writer = WIRE_WRITER(&out->json);
    auto_buf struct buf encoded = BUF_INIT(PIECE_MAX_BYTES * 2);

    if (size == 0)
        return 0;
    begin(out, &writer, name_of(stream));
    wire_put_int(&writer, "offset", (int64_t)out->at[stream]);
    if (is_text) {
        wire_put_text(&writer, "text", data, size);
    } else {
        if (base64_encode(data, size, &encoded, err) < 0)
            return -1;
        wire_put_text(&writer, "base64", encoded.data, encoded.size);
    }
    out->at[stream] += size;
    return end(out, &writer, name_of(stream), true, err);
}

/* How much of the end of `data` is the beginning of a character. */
static size_t unfinished(const char *data, size_t size)
{
    size_t length;

    if (size == 0 || size > HELD_MAX || (unsigned char)data[0] < 0xc2 || (unsigned char)data[0] > 0xf4)
        return 0;
    (void)utf8_next(data, size, &length);
    return length == size ? size : 0;
}

/* What was held back of a character whose rest did not come. */
static int flush_held(struct outgoing *out, enum run_stream stream, struct error *err)
{
    size_t size = out->held_size[stream];

    out->held_size[stream] = 0;
    return put_output(out, stream, out->held[stream], size, false, err);
}

static int put_dropped(struct outgoing *out, const struct run_chunk *chunk, struct error *err)
{
    struct wire_writer writer = WIRE_WRITER(&out->json);

    if (flush_held(out, chunk->stream, err) < 0)
        return -1;
    begin(out, &writer, "dropped");
    wire_put_str(&writer, "stream", name_of(chunk->stream));
    wire_put_int(&writer, "offset", (int64_t)out->at[chunk->stream]);
    wire_put_int(&writer, "bytes", (int64_t)chunk->dropped);
    out->at[chunk->stream] = chunk->offset;
    return end(out, &writer, "dropped", true, err);
}

static int put_chunk(struct outgoing *out, const struct run_chunk *chunk, struct error *err)
{
    const enum run_stream stream = chunk->stream;
    size_t valid, rest;

    if (chunk->dropped && put_dropped(out, chunk, err) < 0)
        return -1;
    buf_clear(&out->piece);
    if (buf_append(&out->piece, out->held[stream], out->held_size[stream], err) < 0 ||
        buf_append(&out->piece, chunk->data, chunk->size, err) < 0)
        return -1;
    out->held_size[stream] = 0;
    valid = utf8_valid_prefix(buf_str(&out->piece), out->piece.size);
    rest = out->piece.size - valid;
    if (rest > 0 && unfinished(out->piece.data + valid, rest) == 0) /* no text at all */
        return put_output(out, stream, out->piece.data, out->piece.size, false, err);
    memcpy(out->held[stream], buf_str(&out->piece) + valid, rest);
    out->held_size[stream] = rest;
    return put_output(out, stream, buf_str(&out->piece), valid, true, err);
}

static int put_exit(struct outgoing *out, struct error *err)
{
    struct wire_writer writer = WIRE_WRITER(&out->json);
    struct run_view view;

    out->is_over = true;
    if (flush_held(out, RUN_STDOUT, err) < 0 || flush_held(out, RUN_STDERR, err) < 0 ||
        session_runs_get(out->sessions, out->id, out->run_id, NULL, &view, err) < 0)
        return -1;
    begin(out, &writer, "exit");
    wire_put_run(&writer, &view);
    return end(out, &writer, "exit", true, err);
}

static int put_replaced(struct outgoing *out, struct error *err)
{
    struct wire_writer writer = WIRE_WRITER(&out->json);

    out->is_over = true;
    begin(out, &writer, "replaced");
    return end(out, &writer, "replaced", false, err);
}

/* The next record, or the news that there is none. */
static int refill(struct outgoing *out, const struct cancel *cancel, struct error *err)
{
    struct cancel pinging = cancel_within(cancel, PING_MS);
    struct run_chunk chunk;
    int got = run_reader_next(out->reader, &pinging, &chunk, err);

    buf_clear(&out->record);
    out->record_at = 0;
    if (got > 0)
        return put_chunk(out, &chunk, err);
    if (got == 0)
        return put_exit(out, err);
    if (err->code == ERROR_CONFLICT) {
        error_clear(err);
        return put_replaced(out, err);
    }
    if (err->code != ERROR_TIMEOUT)
        return -1;
    error_clear(err);
    return out->format == WIRE_STREAM_EVENTS ? buf_append_str(&out->record, ": ping\n\n", err) : 0;
}

static int64_t next_records(void *context, const struct cancel *cancel, char *to, size_t max)
{
    struct outgoing *out = context;
    struct error err = ERROR_INIT;
    size_t size;

    while (out->record_at == out->record.size) {
        if (out->is_over)
            return 0;
        if (refill(out, cancel, &err) < 0)
            return -1;
    }
    size = out->record.size - out->record_at < max ? out->record.size - out->record_at : max;
    memcpy(to, out->record.data + out->record_at, size);
    out->record_at += size;
    return (int64_t)size;
}

/* Bytes can carry no mark: where some are missing the stream breaks off. */
static int64_t next_bytes(void *context, const struct cancel *cancel, char *to, size_t max)
{
    struct outgoing *out = context;
    struct error err = ERROR_INIT;
    size_t size;

    while (out->bytes.size == 0) {
        int got = run_reader_next(out->reader, cancel, &out->bytes, &err);

        if (got <= 0)
            return got;
        if (out->bytes.stream != out->only)
            out->bytes.size = 0;
        else if (out->bytes.dropped)
            return -1;
    }
    size = out->bytes.size < max ? out->bytes.size : max;
    memcpy(to, out->bytes.data, size);
    out->bytes.data += size;
    out->bytes.size -= size;
    return (int64_t)size;
}

static void done(void *context)
{
    struct outgoing *out = context;

    run_reader_free(out->reader);
    buf_done(&out->record);
    buf_done(&out->json);
    buf_done(&out->piece);
    free(out);
}

void wire_reply_stream(struct http_reply *reply, struct wire_call *call, const char *run_id, struct run_reader *reader,
                       const uint64_t from[2], enum wire_stream_format format, enum run_stream stream)
{
    static const char *const types[] = {[WIRE_STREAM_LINES] = "application/x-ndjson",
                                        [WIRE_STREAM_EVENTS] = "text/event-stream",
                                        [WIRE_STREAM_BYTES] = "application/octet-stream"};
    struct outgoing *out = alloc_zero(sizeof *out);
    struct http_stream body = {.next = format == WIRE_STREAM_BYTES ? next_bytes : next_records,
                               .free = done,
                               .context = out,
                               .send_buffer_bytes = SEND_BUFFER_BYTES};

    out->sessions = call->sessions;
    (void)snprintf(out->id, sizeof out->id, "%s", call->id);
    (void)snprintf(out->run_id, sizeof out->run_id, "%s", run_id);
    out->reader = reader;
    out->format = format;
    out->only = stream;
    out->at[0] = from[0];
    out->at[1] = from[1];
    out->record = (struct buf)BUF_INIT(RECORD_MAX_BYTES);
    out->json = (struct buf)BUF_INIT(RECORD_MAX_BYTES);
    out->piece = (struct buf)BUF_INIT(PIECE_MAX_BYTES);
    http_reply_header(reply, "Cache-Control", "no-cache");
    http_reply_header(reply, "X-Accel-Buffering", "no");
    http_reply_header(reply, "X-Content-Type-Options", "nosniff");
    http_reply_stream(reply, types[format], &body);
}
