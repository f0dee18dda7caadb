/* webhook/webhook.h: what happened to sessions, told to the operator's receiver by HTTP: signed, in order per session, at least once.
 *
 * Owns: the threads that deliver, and the place in the feed up to which all is delivered (store/, a write for each advance). Reads
 * the feed like any reader, so that nothing waits for it: events of a receiver that is dead are lost only once the feed has forgotten
 * them (10,000 events, 7 days), and then it is told so. Callers: main. Threads: start and stop belong to one.
 *
 * Signatures: Standard Webhooks 1.0 (https://www.standardwebhooks.com), HMAC-SHA256 over "<id>.<timestamp>.<body>".
 */
#ifndef BERTH_WEBHOOK_H
#define BERTH_WEBHOOK_H

#include "error.h"

#include <stdbool.h>
#include <stddef.h>

struct store;
struct webhooks;

enum { WEBHOOK_SECRET_LEAST_BYTES = 16, WEBHOOK_SECRETS_MAX = 2 };

struct webhook_settings {
    const char *url; /* http or https, as webhook_url_check() takes it */
    /* One secret, or two with a blank between while one is replaced by the other: each event is signed with both. "whsec_" begins one in
     * base64, anything else is the key's own bytes. */
    const char *secret;
    int stop_fd;
};

/* INVALID: not http:// or https:// with a host, or with a name and password in it. */
int webhook_url_check(const char *url, struct error *err);
/* INVALID: none, too short, no base64, more than two. The text never holds the secret. */
int webhook_secret_check(const char *secret, struct error *err);

/* Starts delivering behind what was delivered in earlier lives; the first time, what happens from now on. `settings` are copied,
 * `store` is borrowed. Blocks on the disk only. */
int webhooks_start(const struct webhook_settings *settings, struct store *store, struct webhooks **ret_webhooks,
                   struct error *err);
/* After stop_fd is readable: ends the threads, wherever a delivery is. NULL is fine. */
void webhooks_stop(struct webhooks *webhooks);

/* There is no receiver: one that is set later is told what happens from then on. [queued] */
void webhooks_forget(struct store *store);

#endif
