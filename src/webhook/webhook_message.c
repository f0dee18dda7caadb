/* What is sent, and what it is signed with. */
#include "alloc.h"
#include "base64.h"
#include "json.h"
#include "webhook_private.h"

#include <sodium.h>
#include <string.h>
#include <time.h>

/* -- secrets -- */

static int read_key(const char *text, size_t size, struct webhook_key *ret, struct error *err)
{
    static const char prefix[] = "whsec_";
    auto_buf struct buf decoded = BUF_INIT(WEBHOOK_KEY_MAX);
    struct error ignored = ERROR_INIT;
    unsigned char digest[crypto_hash_sha256_BYTES];

    if (size > sizeof prefix - 1 && strncmp(text, prefix, sizeof prefix - 1) == 0) {
        text += sizeof prefix - 1;
        size -= sizeof prefix - 1;
        if (base64_decode(text, size, &decoded, &ignored) < 0)
            return fail(err, INVALID, "what is behind whsec_ is no base64, or too long");
        text = buf_str(&decoded);
        size = decoded.size;
    }
    if (size < WEBHOOK_SECRET_LEAST_BYTES)
        return fail(err, INVALID, "a secret has %d bytes at least", WEBHOOK_SECRET_LEAST_BYTES);
    if (size > WEBHOOK_KEY_MAX)
        return fail(err, INVALID, "a secret has %d bytes at most", WEBHOOK_KEY_MAX);
    memcpy(ret->bytes, text, size);
    ret->size = size;
    (void)crypto_hash_sha256(digest, ret->bytes, size);
    (void)sodium_bin2hex(ret->id, sizeof ret->id, digest, (sizeof ret->id - 1) / 2);
    return 0;
}

int webhook_keys_parse(const char *secret, struct webhook_key keys[WEBHOOK_SECRETS_MAX], size_t *ret_count,
                       struct error *err)
{
    size_t count = 0;

    for (const char *at = secret + strspn(secret, " "); *at; at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");

        if (count == WEBHOOK_SECRETS_MAX)
            return fail(err, INVALID, "two secrets at most, with a blank between them");
        if (read_key(at, size, &keys[count++], err) < 0)
            return -1;
        at += size;
    }
    *ret_count = count;
    return count ? 0 : fail(err, INVALID, "is required with SANDBOXD_WEBHOOK_URL");
}

int webhook_secret_check(const char *secret, struct error *err)
{
    struct webhook_key keys[WEBHOOK_SECRETS_MAX];
    size_t count;
    int result = webhook_keys_parse(secret, keys, &count, err);

    sodium_memzero(keys, sizeof keys);
    return result;
}

int webhook_url_check(const char *url, struct error *err)
{
    size_t scheme = strncmp(url, "http://", 7) == 0 ? 7 : strncmp(url, "https://", 8) == 0 ? 8 : 0;
    size_t authority = strcspn(url + scheme, "/?#");

    if (!scheme || authority == 0)
        return fail(err, INVALID, "is not an address that begins with http:// or https://");
    for (const char *at = url; *at; at++)
        if (*at <= ' ' || *at > '~')
            return fail(err, INVALID, "has a blank or a character in it that an address cannot have");
    if (memchr(url + scheme, '@', authority))
        return fail(err, INVALID, "has a name and a password in it: the signature says who sent it");
    return 0;
}

/* -- messages -- */

int webhook_body(const struct store_feed_event *event, struct buf *out, struct error *err)
{
    time_t seconds = (time_t)(event->at_unix_us / 1000000);
    char stamp[32];
    struct tm utc;

    (void)gmtime_r(&seconds, &utc);
    (void)strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    if (buf_append_format(out, err,
                          "{\"type\":\"berth.%s\",\"timestamp\":\"%s.%06lldZ\",\"data\":{\"seq\":%llu,\"op\":\"%s\"",
                          event->op, stamp, (long long)(event->at_unix_us % 1000000), (unsigned long long)event->seq,
                          event->op) < 0 ||
        buf_append_str(out, ",\"session\":", err) < 0 || json_append_string(out, event->session, err) < 0 ||
        buf_append_str(out, ",\"tenant\":", err) < 0 || json_append_string(out, event->tenant, err) < 0 ||
        buf_append_str(out, ",\"detail\":", err) < 0 || json_append_string(out, event->detail, err) < 0)
        return -1;
    return buf_append_str(out, "}}", err);
}

int webhook_sign(const struct webhook_key *keys, size_t count, const char *id, int64_t at_unix_s,
                 const struct buf *body, struct buf *out, struct error *err)
{
    char head[128];

    (void)snprintf(head, sizeof head, "%s.%lld.", id, (long long)at_unix_s);
    for (size_t i = 0; i < count; i++) {
        crypto_auth_hmacsha256_state state;
        unsigned char mac[crypto_auth_hmacsha256_BYTES];

        (void)crypto_auth_hmacsha256_init(&state, keys[i].bytes, keys[i].size);
        (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)head, strlen(head));
        (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)buf_str(body), body->size);
        (void)crypto_auth_hmacsha256_final(&state, mac);
        if (buf_append_str(out, i ? " v1," : "v1,", err) < 0 || base64_encode(mac, sizeof mac, out, err) < 0)
            return -1;
    }
    return 0;
}
