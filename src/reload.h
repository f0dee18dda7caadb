/* reload.h: what SIGHUP puts in force of a configuration that was changed while the broker runs.
 *
 * Live are the limits and ceilings that PUT /policy has too, SANDBOXD_POLICY_OVERRIDES and SANDBOXD_LOG_LEVEL. Of everything else that
 * differs from what the broker was started with, one warning each says that it needs a restart. Threads: main's.
 */
#ifndef BERTH_RELOAD_H
#define BERTH_RELOAD_H

#include "settings.h"

struct sessions;
struct wire;

/* `before`: as the last reload read them, empty at the first. What differs from it (or from `started`, what the broker runs with) goes into
 * the policy, over what PUT /policy said of the same fields; then the overrides file is read in any case, and goes over both. All or nothing:
 * what the policy cannot be is one line in the log, and *before stays. Otherwise it becomes `now`, which is emptied. */
void reload(struct sessions *sessions, struct wire *wire, struct settings *started, struct settings *before,
            struct settings *now);

/* SANDBOXD_LOG_LEVEL in force. */
void reload_log_level(const struct settings *settings);

#endif
