/* wire/wire.h: what stands between HTTP and session: routes, authentication, JSON, status codes.
 *
 * Owns: the table of routes (routes.def) and one file a noun. Knows HTTP only through http.h, the product only through
 * session/. Callers: main, which hands wire_table() to http_server_start(). Threads: handlers run on any, at once.
 */
#ifndef BERTH_WIRE_H
#define BERTH_WIRE_H

#include "http.h"

struct sessions;
struct wire;

/* `sessions` is borrowed and must outlive it; `serves_page`: /ui is there. Caller frees. */
struct wire *wire_new(struct sessions *sessions, bool serves_page);
void wire_free(struct wire *wire);

/* Put in force what PUT /policy was told in earlier lives, then what stands in the operator's file (`overrides`, NULL: none). To
 * be called once, before anything is served and before sessions_start(). What does not fit any more is left out with one line in the
 * log. -1: the store cannot be read. Blocks on the disk. */
int wire_policy_load(struct wire *wire, const char *overrides, struct error *err);
/* Read the overrides file again if it changed. Absent: nothing. Malformed or forbidden: one line in the log, and no change. One
 * thread; blocks on the disk. */
void wire_policy_file_check(struct wire *wire);
/* The same of `overrides`, although it did not change: what PUT /policy has changed since is as the file says again. */
void wire_policy_file_reread(struct wire *wire, const char *overrides);

/* Borrowed, as long as the wire lives. */
const struct http_table *wire_table(const struct wire *wire);
/* What the listener for probes serves: /healthz, /readyz and /metrics, without a token. */
const struct http_table *wire_probe_table(const struct wire *wire);

/* Whose connections are told in /metrics; borrowed, and to be there as long as any server of these tables runs. */
void wire_watch_server(struct wire *wire, struct http_server *server);

#endif
