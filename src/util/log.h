/* util/log.h: lines on standard error, logfmt or JSON: time, level, event, whom the thread works for, fields.
 *
 *     log_info("session.opened", log_s("session", id), log_i("ms", took_ms));
 *
 * Values are quoted and escaped, cut at 1 KiB, and never hold a token, an environment value or file content: that is the
 * caller's duty. One write() a line, so that lines of threads do not mix. Blocks only as long as standard error does.
 */
#ifndef BERTH_LOG_H
#define BERTH_LOG_H

#include "error.h"

#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

struct log_field {
    const char *key;
    const char *text; /* NULL: a number */
    int64_t number;
};

static inline struct log_field log_s(const char *key, const char *text)
{
    return (struct log_field){key, text ? text : "-", 0};
}

static inline struct log_field log_i(const char *key, int64_t number)
{
    return (struct log_field){key, NULL, number};
}

/* The operator's text of an error, as field "error"; its code follows as "code". */
static inline struct log_field log_e(const struct error *err)
{
    return (struct log_field){"error", err->text, err->code};
}

void log_set_level(enum log_level lowest);

enum log_format { LOG_LOGFMT, LOG_JSON };
void log_set_format(enum log_format wanted);

/* Whom this thread works for: on each of its lines, "" is left out. */
struct log_work {
    char request[65];
    char trace[33]; /* of the client's traceparent */
    char session[65];
    char tenant[65];
};
/* A new piece of work, of no session yet. Copied. */
void log_begin(const char *request_id, const char *trace);
void log_set_session(const char *session, const char *tenant);
const struct log_work *log_work(void); /* borrowed, of this thread */

void log_write(enum log_level level, const char *event, const struct log_field *fields, size_t count);

#define LOG_FIELDS(...) ((const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){NULL, NULL, 0}})
#define LOG_AT(level, event, ...) \
    log_write((level), (event), LOG_FIELDS(__VA_ARGS__), sizeof LOG_FIELDS(__VA_ARGS__) / sizeof(struct log_field) - 1)

#define log_debug(event, ...) LOG_AT(LOG_LEVEL_DEBUG, event __VA_OPT__(, ) __VA_ARGS__)
#define log_info(event, ...) LOG_AT(LOG_LEVEL_INFO, event __VA_OPT__(, ) __VA_ARGS__)
#define log_warn(event, ...) LOG_AT(LOG_LEVEL_WARN, event __VA_OPT__(, ) __VA_ARGS__)
#define log_error(event, ...) LOG_AT(LOG_LEVEL_ERROR, event __VA_OPT__(, ) __VA_ARGS__)

#endif
