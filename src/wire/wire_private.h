/* wire/wire_private.h: what the files of this room share. Nobody else includes it.
 *
 * A request goes: gate (wire_auth.c, before its body is read) -> dispatch (wire_auth.c: the checks every route has, in the
 * order of the contract) -> a route_*() function, which reads its fields, calls session/ and writes the answer down.
 */
#ifndef BERTH_WIRE_PRIVATE_H
#define BERTH_WIRE_PRIVATE_H

#include "http.h"
#include "session.h"
#include "spool.h"
#include "wire.h"
#include "wire_json.h"
#include "wire_metrics.h"
#include "wire_read.h"

#include <pthread.h>
#include <sys/stat.h>

enum {
    WIRE_ANSWER_MAX_BYTES = 256 * 1024 * 1024,
    WIRE_LATE_BODY_MAX_BYTES = 64 * 1024, /* JSON up to this is read before the token is judged */
    WIRE_LIST_MAX_ENTRIES = 250000,       /* of one directory */
};

#define WIRE_JSON_TYPE "application/json"

enum wire_access {
    ACCESS_ANYONE,
    ACCESS_SERVICE,       /* the service token */
    ACCESS_SESSION,       /* that, or the session's own; the session is there */
    ACCESS_SESSION_WORK,  /* the same; a closed session's token is told so (410) */
    ACCESS_SESSION_CLOSE, /* as ACCESS_SESSION, but the session may be closed already */
};

/* One request on its way through a handler. */
struct wire_call {
    struct wire *wire;
    struct sessions *sessions;
    struct http_request *request;
    const struct cancel *cancel;
    const char *id;              /* of the path, checked; "" where it has none */
    struct wire_reader body;     /* of a JSON route: an object */
    struct wire_invalid invalid; /* what was found wrong so far */
};

/* Fills the reply and returns 0, or returns -1 with an error. */
typedef int (*wire_handler)(struct wire_call *call, struct http_reply *reply, struct error *err);

#define ROUTE(method, path, handler, access, body) \
    int handler(struct wire_call *call, struct http_reply *reply, struct error *err);
#include "routes.def"
#undef ROUTE

/* -- wire.c -- */
struct wire_route {
    wire_handler handler;
    enum wire_access access;
    bool has_id; /* {session_id} is its first parameter */
};

/* What the overrides file was when it was last looked at. */
struct wire_file_seen {
    bool is_there;
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec mtime;
};

struct wire {
    struct sessions *sessions;
    pthread_mutex_t policy_lock; /* one change at a time: read what is remembered, add to it, put it in force */
    char *overrides;             /* NULL: none */
    struct wire_file_seen overrides_seen;
    struct http_table table;
    struct wire_route *routes; /* beside table.routes */
    const char **endpoints;    /* distinct paths but "/", sorted */
    size_t endpoint_count;
    bool serves_page;
    struct http_table probe_table;
    struct wire_traffic *traffic; /* one a route, and one for what found none */
    int64_t started_unix_ms;
    _Atomic(struct http_server *) server; /* borrowed; NULL: not yet */
};
const struct wire_route *wire_route_of(const struct wire *wire, const struct http_request *request);

/* The subprotocols that a terminal's client offers: what is spoken, and the token, which a browser cannot send as a header. */
#define WIRE_TERMINAL_PROTOCOL "berth.terminal.v1"
#define WIRE_TOKEN_PROTOCOL "berth.token."

/* -- wire_auth.c -- */
/* http_table.gate: refuses what need not be read. */
int wire_gate(struct http_request *request, void *context, struct error *err);
/* The http_handler of all routes: the checks in the order of the contract, then the route's own function. */
int wire_dispatch(struct http_request *request, struct http_reply *reply, void *context, struct error *err);

/* -- openapi.json -- */
extern const char wire_openapi_json[];

/* -- wire_error.c -- */
/* http_table.on_error */
void wire_on_error(struct http_request *request, struct http_reply *reply, const struct error *err, void *context);
/* 422, if anything was found wrong: true, and the reply is filled in. */
bool wire_refused(const struct wire_call *call, struct http_reply *reply);
/* Errors of a native file operation as the client maps them: FileNotFoundError and four others, filled in (0); what the
 * sandbox can still do is HANDOVER; all else stays as it is (-1). */
int wire_native_failure(struct http_reply *reply, struct error *err);

/* -- wire_view.c: structs as the contract writes them -- */
void wire_put_session(struct wire_writer *writer, const char *key, const struct session_view *view);
/* With what is Berth's own behind it. */
void wire_put_session_detail(struct wire_writer *writer, const char *key, const struct session_view *view);
void wire_put_health(struct wire_writer *writer, const char *key, struct sessions *sessions);
void wire_put_policy(struct wire_writer *writer, struct sessions *sessions);
void wire_put_event(struct wire_writer *writer, const struct session_event *event);
/* FileEntry; a directory's time is null. `size_bytes` < 0, `mtime_unix_us` NULL: null. */
void wire_put_file(struct wire_writer *writer, struct wire_text name, struct wire_text path, bool is_dir,
                   int64_t size_bytes, const int64_t *mtime_unix_us);
/* The written answer as the reply's body, with its status (200 until said). */
int wire_reply_json(struct http_reply *reply, const struct wire_writer *writer, struct error *err);

/* -- wire_output.c: what a command wrote -- */
struct wire_output {
    const char *lead; /* JSON before it, up to the opening quote; static */
    struct spool *spool;
};
/* {lead}{output as a JSON string's inside}…{tail}: in one piece when it is small, streamed when it is large. Takes the
 * spools' content. `count` is 2 at most, `tail` is copied. Blocks on the disk. */
int wire_reply_output(struct http_reply *reply, const struct wire_output *outputs, size_t count, const char *tail,
                      struct error *err);
/* Of a command that never ran: why, in a shell's words, into its output. */
int wire_explain_spawn(const struct run_exit *exit, const char *program, struct spool *spool, struct error *err);

/* -- wire_quote.c -- */
enum { WIRE_TARGET_BYTES = 1280 };
/* argv as a shell would be given it (Python's shlex.join), cut, in whole characters, well behind the 200 that an event keeps. */
void wire_quote_argv(const char *const *argv, size_t argc, char out[static WIRE_TARGET_BYTES]);
/* Text of a client as an event's target: the same cut; NULs as U+FFFD. Returns the size. */
size_t wire_quote_text(const char *text, size_t size, char out[static WIRE_TARGET_BYTES]);

#endif
