/* wire/wire_place.h: a path in the workspace of a session or in a stored one, with which Berth's own file routes begin and end.
 *
 * Paths are query values, bytes as they were sent (%FF is one): no name is out of reach. The same functions serve
 * /sessions/{id}/… (as the sandbox's user, recorded as an event) and, read-only, /workspaces/{id}/… (as the operator). */
#ifndef BERTH_WIRE_PLACE_H
#define BERTH_WIRE_PLACE_H

#include "session.h"
#include "wire_private.h"
#include "workspace.h"

struct wire_place {
    struct wire_call *call;
    struct session_files files;  /* of a session */
    struct workspace *workspace; /* borrowed from `files`, or a reference of our own */
    struct wire_text sent;       /* the path as the client wrote it; borrowed from the request */
    char *path;                  /* below the workspace, "" for itself */
    int64_t started_us;
    bool is_session;
    bool writes;
};
#define WIRE_PLACE_INIT \
    {                   \
        .call = NULL    \
    }

/* The workspace of the call, and the path that query value `key` names (`required`: or it is 422, in call->invalid; else ""). 1: a
 * 422 is to be answered. CONFLICT, NOT_FOUND, INVALID. Blocks on the disk. End it with wire_place_end() in every case. */
int wire_place_begin(struct wire_call *call, const char *key, bool required, bool writes, struct wire_place *ret,
                     struct error *err);
/* Records the operation `op` with its result (-1: what `err` says), and puts an error into the words of Berth's own routes.
 * Returns `result`. */
int wire_place_end(struct wire_place *place, const char *op, int result, struct error *err);
/* Another path of the same workspace. Caller frees. 1 as above. */
int wire_place_path(struct wire_call *call, const char *key, bool required, char **ret_path, struct error *err);

/* "a%FFb": what comes back as the same bytes when it is given as a query value. */
int wire_put_percent(struct buf *out, const char *text, size_t size, struct error *err);
/* "path" for the eye (U+FFFD for bad bytes) and "path_encoded", the same in bytes. */
void wire_put_path(struct wire_writer *writer, const char *path);
/* Content-Disposition: attachment, with the name in any script (RFC 6266). */
void wire_reply_attachment(struct http_reply *reply, const char *name, const char *suffix);
/* What makes a file of a stranger harmless in a browser. */
void wire_reply_inert(struct http_reply *reply);

#endif
