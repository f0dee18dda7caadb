#include "log.h"

#include "clock.h"
#include "utf8.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_BYTES = 8192,
    VALUE_BYTES = 1024, /* shown of one */
    TAIL_BYTES = 16,    /* kept free for what closes a value and the line */
};

static atomic_int lowest_level = LOG_LEVEL_INFO;
static atomic_int format = LOG_LOGFMT;
static _Thread_local struct log_work work;

struct line {
    char text[LINE_BYTES];
    size_t used;
    enum log_format format;
};

void log_set_level(enum log_level lowest)
{
    atomic_store(&lowest_level, lowest);
}

void log_set_format(enum log_format wanted)
{
    atomic_store(&format, wanted);
}

void log_begin(const char *request_id, const char *trace)
{
    work = (struct log_work){.request = ""};
    (void)snprintf(work.request, sizeof work.request, "%s", request_id);
    (void)snprintf(work.trace, sizeof work.trace, "%s", trace);
}

void log_set_session(const char *session, const char *tenant)
{
    (void)snprintf(work.session, sizeof work.session, "%s", session);
    (void)snprintf(work.tenant, sizeof work.tenant, "%s", tenant);
}

const struct log_work *log_work(void)
{
    return &work;
}

static void put_bytes(struct line *line, const char *text, size_t size)
{
    if (size > LINE_BYTES - line->used)
        size = LINE_BYTES - line->used;
    memcpy(line->text + line->used, text, size);
    line->used += size;
}

static void put(struct line *line, const char *text)
{
    put_bytes(line, text, strlen(text));
}

static int is_plain(const char *text)
{
    if (*text == '\0')
        return 0;
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == '"' || *c == '=' || *c == '\\' || *c == 0x7f)
            return 0;
    return 1;
}

/* The next character of a quoted value; returns its bytes. A forged newline must not make a second line, and JSON is UTF-8. */
static size_t escape(enum log_format as, const char *text, size_t left, char out[static 8])
{
    unsigned char c = (unsigned char)*text;
    size_t size = 1;

    if (c == '"' || c == '\\')
        (void)snprintf(out, 8, "\\%c", c);
    else if (c < ' ' || c == 0x7f)
        (void)snprintf(out, 8, as == LOG_JSON ? "\\u%04x" : "\\x%02x", c);
    else if (c < 0x80 || as == LOG_LOGFMT)
        (void)snprintf(out, 8, "%c", c);
    else if (utf8_next(text, left, &size) == 0xfffd)
        (void)snprintf(out, 8, "\xef\xbf\xbd");
    else
        (void)snprintf(out, 8, "%.*s", (int)size, text);
    return size;
}

static void put_text(struct line *line, const char *text)
{
    size_t left = strlen(text);

    if (line->format == LOG_LOGFMT && left <= VALUE_BYTES && left < LINE_BYTES - TAIL_BYTES - line->used &&
        is_plain(text)) {
        put_bytes(line, text, left);
        return;
    }
    if (left > VALUE_BYTES)
        left = VALUE_BYTES;
    put(line, "\"");
    while (left > 0 && line->used < LINE_BYTES - TAIL_BYTES - 8) {
        char escaped[8];
        size_t size = escape(line->format, text, left, escaped);

        put(line, escaped);
        text += size;
        left -= size;
    }
    put(line, "\"");
}

/* False: the line is full, and what follows is left out. */
static int put_key(struct line *line, const char *key)
{
    if (line->used + strlen(key) + 64 > LINE_BYTES)
        return 0;
    put(line, line->format == LOG_JSON ? (line->used ? ",\"" : "{\"") : (line->used ? " " : ""));
    put(line, key);
    put(line, line->format == LOG_JSON ? "\":" : "=");
    return 1;
}

static void put_member(struct line *line, const char *key, const char *text)
{
    if (text[0] && put_key(line, key))
        put_text(line, text);
}

static int has_key(const struct log_field *fields, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].key, key) == 0)
            return 1;
    return 0;
}

static void put_work(struct line *line, const struct log_field *fields, size_t count)
{
    put_member(line, "request", work.request);
    put_member(line, "trace", work.trace);
    if (has_key(fields, count, "session"))
        return; /* of another session perhaps: then its tenant is another as well */
    put_member(line, "session", work.session);
    if (!has_key(fields, count, "tenant"))
        put_member(line, "tenant", work.tenant);
}

void log_write(enum log_level level, const char *event, const struct log_field *fields, size_t count)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    struct line line = {.used = 0, .format = (enum log_format)atomic_load(&format)};
    char text[64];
    char time_text[48];
    int64_t now_ms = clock_unix_ms();
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm utc;

    if ((int)level < atomic_load(&lowest_level))
        return;
    (void)gmtime_r(&seconds, &utc);
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(time_text, sizeof time_text, "%.32s.%03dZ", text, (int)(now_ms % 1000));
    put_member(&line, "time", time_text);
    put_member(&line, "level", names[level]);
    put_member(&line, "event", event);
    put_work(&line, fields, count);
    for (size_t i = 0; i < count && put_key(&line, fields[i].key); i++) {
        if (fields[i].text) {
            put_text(&line, fields[i].text);
        } else {
            (void)snprintf(text, sizeof text, "%lld", (long long)fields[i].number);
            put(&line, text);
        }
    }
    put(&line, line.format == LOG_JSON ? "}\n" : "\n");
    if (write(STDERR_FILENO, line.text, line.used) < 0)
        return; /* nowhere to say it */
}
