/* session/session_inside_private.h: one run of the file applet, as session_inside.c and session_inside_tree.c use it. */
#ifndef BERTH_SESSION_INSIDE_PRIVATE_H
#define BERTH_SESSION_INSIDE_PRIVATE_H

#include "provider_files.h"
#include "session_inside.h"
#include "session_private.h"

struct session_inside {
    struct session *session; /* one reference */
    struct cancel cancel;    /* with the deadline */
};

enum { APPLET_ARGUMENTS_MAX = 3 }; /* behind the verb */

struct applet {
    struct session_inside *inside;
    struct sandbox *sandbox;
    struct sandbox_run *run;
    struct file_reader reader;
};

/* Start `file <verb> <arguments…>`; NULL ends them. INVALID/EINVAL: an empty path, the first of them. Afterwards applet_done(). */
int applet_start(struct session_inside *inside, const char *verb, const char *const *arguments, bool stdin_open,
                 struct applet *ret, struct error *err);

/* The next record; what FAILED says is an error. 1; 0: END was said, and the run is over. GONE, TIMEOUT, ENGINE, as cancel. */
int applet_next(struct applet *applet, struct file_record *ret, struct error *err);

/* Stops it if it has not ended. */
void applet_done(struct applet *applet);

void applet_entry(const struct file_record *record, struct workspace_entry *ret); /* all but the name */

#endif
