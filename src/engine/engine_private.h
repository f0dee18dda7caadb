/* engine/engine_private.h: what the files of engine/ share. Nobody else includes it. */
#ifndef BERTH_ENGINE_PRIVATE_H
#define BERTH_ENGINE_PRIVATE_H

#include "engine.h"
#include "metric.h"
#include "net_http.h"

#include <pthread.h>

enum {
    ENGINE_BODY_MAX = 32 * 1024 * 1024, /* a list of ten thousand containers is 15 MB */
    ENGINE_TARGET_MAX = 8 * 1024,
};

struct engine {
    char *socket_path;
    pthread_mutex_t version_lock;
    struct engine_version version; /* valid while negotiated */
    bool negotiated;
    bool old_reported;
};

/* One request of ours and its whole answer. `target` begins behind the version: "/containers/json". Negotiates first
 * where that was not done. Blocks. ret_body: initialised with its maximum. Any HTTP status is success here. An engine
 * that cannot be reached is negotiated with anew. */
int engine_request(struct engine *engine, enum metric_engine counted, const char *method, const struct buf *target,
                   const struct buf *body, const struct cancel *cancel, int *ret_status, struct buf *ret_body,
                   struct error *err);

/* The same for answers that are read as they come; of `request` method and body, which lives until the transfer is closed. */
int engine_request_open(struct engine *engine, enum metric_engine counted, const struct net_http_request *request,
                        const struct buf *target, const struct cancel *cancel, struct net_http **ret_http,
                        int *ret_status, struct error *err);
int engine_request_upgrade(struct engine *engine, enum metric_engine counted, const struct buf *target,
                           const struct cancel *cancel, int *ret_status, struct net_stream **ret_stream,
                           struct buf *ret_body, struct error *err);

/* engine_lines.c: an answer of JSON lines (pull, events), one line at a time. An iterator: blocks in open and next.
 * On a status other than 200 *ret_lines stays NULL and the answer is in ret_body. */
struct engine_lines;
int engine_lines_open(struct engine *engine, enum metric_engine counted, const char *method, const struct buf *target,
                      const struct cancel *cancel, struct engine_lines **ret_lines, int *ret_status,
                      struct buf *ret_body, struct error *err);
/* The same with a body, which lives until engine_lines_free(). */
int engine_lines_send(struct engine *engine, enum metric_engine counted, const char *method, const struct buf *target,
                      const char *body_type, const void *body, size_t body_size, const struct cancel *cancel,
                      struct engine_lines **ret_lines, int *ret_status, struct buf *ret_body, struct error *err);
/* 1: *ret_line, borrowed until the next call, without its newline. 0: the end. After CANCELLED or TIMEOUT one may go
 * on. */
int engine_lines_next(struct engine_lines *lines, const struct cancel *cancel, const char **ret_line, size_t *ret_size,
                      struct error *err);
void engine_lines_free(struct engine_lines *lines);
DEFINE_CLEANUP(engine_lines, struct engine_lines *, engine_lines_free)

/* engine_error.c: an answer that is no success becomes one of our errors: "cannot create the container: <reason>".
 * Always -1. */
int engine_error(const char *what, int status, const struct buf *body, struct error *err);

/* Copy `text` in one line without control bytes, at most 150 bytes of valid UTF-8, into `out` of 160; of a longer one its
 * beginning and its end. */
void engine_error_clean(char out[160], const char *text, size_t size);

/* engine_events.c: one line of the event stream. Errors: ENGINE. */
int engine_event_parse(const char *line, size_t size, struct engine_event *ret, struct error *err);

/* engine_container.c: what the engine says of one container, of all that match the filter (*ret is a list), and what is read of one
 * in such a list. Errors and blocking as engine_inspect(), engine_list(). Caller puts *ret. */
struct json_object;
int engine_container_inspect(struct engine *engine, const char *id, const struct cancel *cancel,
                             struct json_object **ret, struct error *err);
int engine_container_list(struct engine *engine, const char *filter, const struct cancel *cancel,
                          struct json_object **ret, struct error *err);
int engine_container_read_listed(struct json_object *item, struct engine_container *ret, struct error *err);

/* engine_template.c: the body of a create request. */
int engine_template_create(const struct engine_create *spec, struct buf *out, struct error *err);
/* Of one that cannot succeed: `path` mounted in a container of an image that nobody can have. */
int engine_template_probe(const char *path, struct buf *out, struct error *err);

/* engine_container.c: "/containers/<id><rest>"; the id is escaped, so that nothing in it reaches another verb. */
int engine_container_target(struct buf *target, const char *id, const char *rest, struct error *err);

#endif
