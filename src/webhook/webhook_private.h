/* webhook/webhook_private.h: what the files of this room share. Nobody else includes it. */
#ifndef BERTH_WEBHOOK_PRIVATE_H
#define BERTH_WEBHOOK_PRIVATE_H

#include "buf.h"
#include "store.h"
#include "webhook.h"

#include <stdint.h>

enum { WEBHOOK_KEY_MAX = 256, WEBHOOK_KEY_ID_BYTES = 17 };

struct webhook_key {
    unsigned char bytes[WEBHOOK_KEY_MAX];
    size_t size;
    char id[WEBHOOK_KEY_ID_BYTES]; /* which secret it was: the first 8 bytes of its SHA-256, in hex */
};

/* -- webhook_message.c: never blocks, any thread -- */
int webhook_keys_parse(const char *secret, struct webhook_key keys[WEBHOOK_SECRETS_MAX], size_t *ret_count,
                       struct error *err);
/* {"type", "timestamp", "data"} */
int webhook_body(const struct store_feed_event *event, struct buf *out, struct error *err);
/* "v1,<base64> v1,<base64>": one a key. */
int webhook_sign(const struct webhook_key *keys, size_t count, const char *id, int64_t at_unix_s,
                 const struct buf *body, struct buf *out, struct error *err);

#endif
