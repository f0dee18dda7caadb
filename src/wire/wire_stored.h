/* wire/wire_stored.h: a stored workspace and a path in it, with which every archive route begins. */
#ifndef BERTH_WIRE_STORED_H
#define BERTH_WIRE_STORED_H

#include "session.h"
#include "wire_read.h"
#include "workspace.h"

struct wire_stored {
    struct workspace *workspace;
    char *path; /* below it */
};
#define WIRE_STORED_INIT \
    {                    \
        NULL, NULL       \
    }
/* CONFLICT without a workspace root, NOT_FOUND: no such workspace, INVALID: the path leads out. Blocks on the disk. */
int wire_stored_open(struct sessions *sessions, const char *id, struct wire_text path, struct wire_stored *ret,
                     struct error *err);
void wire_stored_done(struct wire_stored *stored);
#define auto_stored auto_cleanup(wire_stored_done)

/* The wire's words for what the jail says; `kind` ("file", "directory") is what was looked for. Always -1. */
int wire_stored_explain(const struct wire_stored *stored, const char *kind, struct error *err);

#endif
