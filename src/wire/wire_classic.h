/* wire/wire_classic.h: what the classic wire's file routes have in common: one operation, its event, its failures in words.
 *
 * A failure about a file is told inside an answer of status 200; one about the sandbox (gone, no place to wake it, the engine away)
 * is a status. Blocking and threads: as session_classic.h.
 */
#ifndef BERTH_WIRE_CLASSIC_H
#define BERTH_WIRE_CLASSIC_H

#include "session_classic.h"
#include "wire_private.h"

struct wire_classic {
    struct wire_call *call;
    const char *op; /* the event's */
    struct session_classic *operation;
    struct wire_text target; /* the event's */
};

int wire_classic_begin(struct wire_call *call, const char *op, struct wire_text target, struct wire_classic *ret,
                       struct error *err);
/* The operation has an answer: records its event. */
void wire_classic_done(struct wire_classic *classic, bool ok, const char *detail);
/* It has none: *err is about the sandbox. Always -1. */
int wire_classic_failed(struct wire_classic *classic, const struct error *err);

/* Is this failure told inside the answer? */
bool wire_classic_is_told(const struct error *err);
/* In words; borrowed from *err, or written to `text`. */
const char *wire_classic_words(const struct wire_classic *classic, const struct error *err, char text[static 96]);

/* A path without NUL, and of which something is left without its slashes: a copy for session_classic_*(). NULL: it names no file.
 * Caller frees. */
char *wire_classic_path(struct wire_text path);

#endif
