/* Server-sent events, as the broker sends them (WHATWG HTML, 9.2): lines with LF, fields event, id and data. */
#include "cli_private.h"

#include <string.h>

static void take_field(struct cli_stream *stream, const char *name, const char *value, struct error *err)
{
    if (strcmp(name, "event") == 0)
        (void)snprintf(stream->event, sizeof stream->event, "%s", value);
    else if (strcmp(name, "id") == 0)
        (void)snprintf(stream->id, sizeof stream->id, "%s", value);
    else if (strcmp(name, "data") == 0 && stream->data.size)
        (void)buf_append_format(&stream->data, err, "\n%s", value);
    else if (strcmp(name, "data") == 0)
        (void)buf_append_str(&stream->data, value, err);
}

/* 1: it ended an event. */
static int take_line(struct cli_stream *stream, struct error *err)
{
    char *line = stream->line.size ? stream->line.data : NULL;
    char *colon;

    if (!line && !stream->data.size) {
        stream->event[0] = '\0'; /* nothing was in it */
        return 0;
    }
    if (!line) {
        if (stream->event[0] == '\0')
            (void)snprintf(stream->event, sizeof stream->event, "message");
        return 1;
    }
    colon = strchr(line, ':');
    if (colon == line)
        return 0; /* a comment */
    if (colon)
        *colon++ = '\0';
    take_field(stream, line, colon ? colon + (*colon == ' ') : "", err);
    return 0;
}

int cli_stream_next(struct cli_stream *stream, const char **data, size_t *size, struct error *err)
{
    if (stream->is_told) {
        buf_clear(&stream->data);
        stream->event[0] = '\0';
        stream->is_told = false;
    }
    while (*size) {
        const char *end = memchr(*data, '\n', *size);
        size_t taken = end ? (size_t)(end - *data) : *size;
        int whole;

        if (buf_append(&stream->line, *data, taken, err) < 0)
            return -1;
        *data += taken + (end != NULL);
        *size -= taken + (end != NULL);
        if (!end)
            break;
        if (stream->line.size && stream->line.data[stream->line.size - 1] == '\r')
            stream->line.data[--stream->line.size] = '\0';
        whole = take_line(stream, err);
        buf_clear(&stream->line);
        if (err->code != ERROR_NONE)
            return -1;
        if (whole) {
            stream->is_told = true;
            return 1;
        }
    }
    return 0;
}

int cli_stream_each(struct cli_stream *stream, struct cli_transfer *transfer, bool waits,
                    int (*take)(void *context, const struct cli_stream *stream, struct error *err), void *context,
                    struct error *err)
{
    const char *data;
    size_t size;
    int more;

    while ((more = cli_transfer_read(transfer, waits, &data, &size, err)) == 1) {
        int whole;

        while ((whole = cli_stream_next(stream, &data, &size, err)) > 0) {
            int result = take(context, stream, err);

            if (result != 0)
                return result < 0 ? -1 : CLI_STREAM_ENOUGH;
        }
        if (whole < 0)
            return -1;
    }
    return more < 0 ? CLI_STREAM_BROKEN : more == 0 ? CLI_STREAM_ENDED : CLI_STREAM_WAITS;
}

void cli_stream_reset(struct cli_stream *stream)
{
    buf_clear(&stream->line);
    buf_clear(&stream->data);
    stream->event[0] = '\0';
    stream->is_told = false;
}

void cli_stream_done(struct cli_stream *stream)
{
    buf_done(&stream->line);
    buf_done(&stream->data);
}
