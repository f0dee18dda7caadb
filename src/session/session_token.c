/* Session tokens: HMAC-SHA256(key, "berth-token-v1", length of id, id, nonce). No token is stored: attaching again makes the same
 * one. The key is a file of 32 bytes in the state directory. */
#include "session_private.h"

#include "base64.h"
#include "cleanup.h"
#include "fd.h"
#include "id.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

static int key_file_make(const char *path, unsigned char key[32], struct error *err)
{
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0)
        return fail_errno(err, "making %s", path);
    id_random_bytes(key, 32);
    if (fd_write_all(fd, key, 32, err) < 0)
        return -1;
    if (fsync(fd) < 0)
        return fail_errno(err, "fsync %s", path);
    return 0;
}

static void fingerprint_of(const unsigned char key[32], char ret[65])
{
    unsigned char digest[crypto_hash_sha256_BYTES];

    crypto_hash_sha256(digest, key, 32);
    (void)sodium_bin2hex(ret, 65, digest, sizeof digest);
}

int token_load_key(struct sessions *sessions, struct error *err)
{
    char path[4096];
    char known[65];
    char fingerprint[65];
    auto_buf struct buf content = BUF_INIT(64);
    auto_close int fd = -1;

    if (sodium_init() < 0)
        return fail(err, INTERNAL, "libsodium cannot start");
    (void)snprintf(path, sizeof path, "%s/key", sessions->settings.state_dir);
    if (store_key_fingerprint(sessions->store, known, err) < 0)
        return -1;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno != ENOENT)
        return fail_errno(err, "opening %s", path);
    if (fd < 0) {
        if (known[0] && !sessions->settings.new_key)
            return fail(
                err, CONFLICT,
                "%s is missing, and the store knows sessions made with it; bring it back, or start with --new-key",
                path);
        if (key_file_make(path, sessions->key, err) < 0)
            return -1;
    } else {
        if (fd_read_all(fd, &content, err) < 0 || content.size != 32)
            return fail(err, CONFLICT, "%s is not a key of 32 bytes", path);
        memcpy(sessions->key, content.data, 32);
        sodium_memzero(content.data, content.size);
    }
    fingerprint_of(sessions->key, fingerprint);
    if (known[0] && strcmp(known, fingerprint) != 0 && !sessions->settings.new_key)
        return fail(
            err, CONFLICT,
            "%s is not the key that the store was used with: every session's token would change; bring the old one "
            "back, or start with --new-key",
            path);
    if (strcmp(known, fingerprint) != 0 && store_key_fingerprint_set(sessions->store, fingerprint, err) < 0)
        return -1;
    crypto_auth_hmacsha256(sessions->service_mac, (const unsigned char *)sessions->settings.service_token,
                           strlen(sessions->settings.service_token), sessions->key);
    return 0;
}

void token_make(const struct sessions *sessions, const char *id, const char *nonce, char ret[SESSION_TOKEN_BYTES])
{
    static const char label[] = "berth-token-v1";
    unsigned char mac[crypto_auth_hmacsha256_BYTES];
    unsigned char length = (unsigned char)strlen(id); /* 64 at most */
    crypto_auth_hmacsha256_state state;

    (void)crypto_auth_hmacsha256_init(&state, sessions->key, sizeof sessions->key);
    (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)label, sizeof label - 1);
    (void)crypto_auth_hmacsha256_update(&state, &length, 1);
    (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)id, length);
    (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)nonce, strlen(nonce));
    (void)crypto_auth_hmacsha256_final(&state, mac);
    base64_url(mac, sizeof mac, ret);
}

static bool token_equal(const char *given, size_t given_size, const char *token)
{
    return given_size == SESSION_TOKEN_BYTES - 1 && sodium_memcmp(given, token, SESSION_TOKEN_BYTES - 1) == 0;
}

enum session_caller sessions_caller(struct sessions *sessions, const char *id, const char *token)
{
    unsigned char mac[crypto_auth_hmacsha256_BYTES];
    struct store_tombstone tombstones[STORE_TOMBSTONES];
    size_t tombstone_count = 0;
    struct error err = ERROR_INIT;
    char own[SESSION_TOKEN_BYTES];
    struct session *session;
    size_t size;

    if (!token)
        return SESSION_CALLER_NONE;
    size = strlen(token);
    /* A MAC of both, so that neither content nor length shows in the time. */
    crypto_auth_hmacsha256(mac, (const unsigned char *)token, size, sessions->key);
    if (sodium_memcmp(mac, sessions->service_mac, sizeof mac) == 0)
        return SESSION_CALLER_SERVICE;
    if (!id || size != SESSION_TOKEN_BYTES - 1)
        return SESSION_CALLER_NONE;

    sessions_lock(sessions);
    session = registry_find_locked(sessions, id);
    if (session)
        memcpy(own, session->token, sizeof own);
    sessions_unlock(sessions);
    if (session && token_equal(token, size, own))
        return SESSION_CALLER_SESSION;

    if (store_tombstones(sessions->store, id, tombstones, &tombstone_count, &err) < 0) {
        log_warn("token.tombstones", log_s("session", id), log_e(&err));
        return SESSION_CALLER_NONE;
    }
    for (size_t i = 0; i < tombstone_count; i++) {
        token_make(sessions, id, tombstones[i].nonce, own);
        if (token_equal(token, size, own))
            return SESSION_CALLER_CLOSED;
    }
    return SESSION_CALLER_NONE;
}
