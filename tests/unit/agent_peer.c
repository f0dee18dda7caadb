#include "agent_peer.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

long peer_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct peer *peer_start(void)
{
    struct peer *peer = calloc(1, sizeof *peer);
    int fds[2];

    cr_assert(peer);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    peer->fd = fds[0];
    peer->pid = fork();
    cr_assert_geq(peer->pid, 0);
    if (peer->pid == 0) {
        dup2(fds[1], 0);
        dup2(fds[1], 1);
        setenv("ASAN_OPTIONS", "detect_leaks=0:log_path=berth-agent-host.asan", 0);
        setenv("UBSAN_OPTIONS", "log_path=berth-agent-host.ubsan", 0);
        execl("./berth-agent-host", "berth-agent-host", (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    return peer;
}

int peer_stop(struct peer *peer)
{
    int status = -1;

    shutdown(peer->fd, SHUT_WR);
    cr_assert_eq(waitpid(peer->pid, &status, 0), peer->pid);
    close(peer->fd);
    free(peer);
    return status;
}

void peer_send_raw(struct peer *peer, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size) {
        ssize_t put = send(peer->fd, at, size, MSG_NOSIGNAL);

        cr_assert_gt(put, 0, "the agent is gone");
        at += put;
        size -= (size_t)put;
    }
}

void peer_send(struct peer *peer, uint8_t type, uint32_t run, uint64_t offset, const void *payload, size_t size)
{
    struct agent_header header = {.type = type, .run = run, .offset = offset};

    agent_frame_seal(&header, payload, size);
    peer_send_raw(peer, &header, sizeof header);
    if (size)
        peer_send_raw(peer, payload, size);
}

bool peer_next(struct peer *peer, int wait_ms)
{
    long until = peer_now_ms() + wait_ms;

    for (;;) {
        struct pollfd pollfd = {.fd = peer->fd, .events = POLLIN};
        size_t at;
        ssize_t got;

        if (agent_frame_find(peer->bytes, peer->size, &at, &peer->header)) {
            size_t end = at + sizeof peer->header + peer->header.length;

            memcpy(peer->payload, peer->bytes + at + sizeof peer->header, peer->header.length);
            memmove(peer->bytes, peer->bytes + end, peer->size - end);
            peer->size -= end;
            return true;
        }
        memmove(peer->bytes, peer->bytes + at, peer->size - at);
        peer->size -= at;
        if (poll(&pollfd, 1, (int)(until > peer_now_ms() ? until - peer_now_ms() : 0)) <= 0)
            return false;
        got = recv(peer->fd, peer->bytes + peer->size, sizeof peer->bytes - peer->size, 0);
        if (got <= 0)
            return false;
        peer->size += (size_t)got;
    }
}

void peer_expect(struct peer *peer, uint8_t type, uint32_t run)
{
    while (peer_next(peer, PEER_WAIT_MS))
        if (peer->header.type == type && peer->header.run == run)
            return;
    cr_assert_fail("no frame of type %d for run %u", type, run);
}

void peer_hello(struct peer *peer, uint64_t nonce, uint32_t epoch)
{
    static const unsigned char zeros[AGENT_RESYNC_ZEROS];
    struct agent_hello hello = {.nonce = nonce, .epoch = epoch};

    peer_send_raw(peer, zeros, sizeof zeros);
    peer_send(peer, AGENT_HELLO, 0, 0, &hello, sizeof hello);
    do {
        peer_expect(peer, AGENT_HELLO_ACK, 0);
        cr_assert_geq(peer->header.length, sizeof peer->hello);
        memcpy(&peer->hello, peer->payload, sizeof peer->hello);
    } while (peer->hello.nonce != nonce);
    cr_assert_eq(peer->header.length, sizeof peer->hello + peer->hello.run_count * sizeof peer->states[0]);
    memcpy(peer->states, peer->payload + sizeof peer->hello, peer->hello.run_count * sizeof peer->states[0]);
}

struct peer *peer_linked(void)
{
    struct peer *peer = peer_start();

    peer_hello(peer, 0x1122334455667788u, 1);
    return peer;
}

void peer_stop_cleanly(struct peer *peer)
{
    int status = peer_stop(peer);

    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the agent ended with status %x", (unsigned)status);
}

static size_t put(unsigned char *to, const char *text)
{
    memcpy(to, text, strlen(text) + 1);
    return strlen(text) + 1;
}

void peer_start_run(struct peer *peer, uint32_t run, const struct peer_start *how, const char *const *argv)
{
    static unsigned char payload[AGENT_PAYLOAD_MAX];
    struct agent_start start = {
        .epoch = how->epoch, .flags = how->flags, .timeout_ms = how->timeout_ms, .rows = 24, .cols = 80};
    size_t size = sizeof start;

    for (; argv[start.argc]; start.argc++)
        size += put(payload + size, argv[start.argc]);
    for (; how->env && how->env[start.envc]; start.envc++)
        size += put(payload + size, how->env[start.envc]);
    size += put(payload + size, how->cwd ? how->cwd : "");
    memcpy(payload, &start, sizeof start);
    peer_send(peer, AGENT_START, run, 0, payload, size);
}

void peer_start_sh(struct peer *peer, uint32_t run, const struct peer_start *how, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};

    peer_start_run(peer, run, how, argv);
}

void peer_ack(struct peer *peer, uint32_t run, uint64_t out, uint64_t err, bool exit)
{
    struct agent_ack ack = {.out = out, .err = err, .exit = exit};

    peer_send(peer, AGENT_ACK, run, 0, &ack, sizeof ack);
}

static void add(struct peer *peer, struct peer_stream *stream)
{
    size_t size = peer->header.length;

    cr_assert_geq(peer->header.offset, stream->end, "output twice");
    stream->dropped += peer->header.offset - stream->end;
    stream->end = peer->header.offset + size;
    cr_assert_leq(stream->size + size, PEER_KEEP_MAX);
    stream->bytes = realloc(stream->bytes, stream->size + size + 1);
    cr_assert(stream->bytes);
    memcpy(stream->bytes + stream->size, peer->payload, size);
    stream->size += size;
    stream->bytes[stream->size] = 0;
}

void peer_collect(struct peer *peer, uint32_t run, struct peer_result *ret_result)
{
    *ret_result = (struct peer_result){0};
    ret_result->out.bytes = calloc(1, 1);
    ret_result->err.bytes = calloc(1, 1);
    while (peer_next(peer, PEER_WAIT_MS)) {
        bool out = peer->header.type == AGENT_OUT, err = peer->header.type == AGENT_ERR;

        if (out || err)
            peer_send(peer, AGENT_CREDIT, 0, peer->header.length, NULL, 0);
        if (peer->header.run != run)
            continue;
        if (out || err) {
            add(peer, out ? &ret_result->out : &ret_result->err);
            peer_send(peer, AGENT_CREDIT, run, peer->header.length, NULL, 0);
            peer_ack(peer, run, ret_result->out.end, ret_result->err.end, false);
        } else if (peer->header.type == AGENT_REFUSED) {
            ret_result->refused = peer->header.offset;
            return;
        } else if (peer->header.type == AGENT_EXIT) {
            cr_assert_eq(peer->header.length, sizeof ret_result->exit);
            memcpy(&ret_result->exit, peer->payload, sizeof ret_result->exit);
            peer_ack(peer, run, ret_result->exit.out_bytes, ret_result->exit.err_bytes, true);
            return;
        }
    }
    cr_assert_fail("no EXIT of run %u", run);
}

void peer_result_done(struct peer_result *result)
{
    free(result->out.bytes);
    free(result->err.bytes);
}
