/* What a command wrote, as strings of a JSON answer. */
#include "alloc.h"
#include "wire_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALL_BYTES = 128 * 1024, /* sent in one piece up to this */
    PIECE_BYTES = 32 * 1024,
    TAIL_BYTES = 192,
    OUTPUTS_MAX = 2,
};

/* -- small -- */

static int reply_small(struct http_reply *reply, const struct wire_output *outputs, size_t count, uint64_t total,
                       const char *tail, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    char *space;
    int result = buf_reserve(&body, (size_t)total + total / 8 + 512, &space, err);

    for (size_t i = 0; i < count && result == 0; i++) {
        const struct buf *memory = &outputs[i].spool->memory;

        result = buf_append_str(&body, outputs[i].lead, err);
        if (result == 0)
            result = wire_append_escaped(&body, buf_str(memory), (size_t)outputs[i].spool->size, err);
    }
    if (result < 0 || buf_append_str(&body, tail, err) < 0) {
        buf_done(&body);
        return -1;
    }
    http_reply_buf(reply, WIRE_JSON_TYPE, &body);
    return 0;
}

/* -- large -- */

/* An answer on its way: lead 0, spool 0, lead 1, spool 1, tail. */
struct answer {
    struct wire_output outputs[OUTPUTS_MAX];
    struct spool spools[OUTPUTS_MAX];
    size_t count;
    size_t current;      /* output that is being sent; == count: the tail */
    const char *literal; /* what is left of the lead or tail */
    uint64_t read_at;    /* in the current spool */
    size_t piece_at;     /* sent of the piece */
    size_t piece_size;
    char tail[TAIL_BYTES];
    char piece[PIECE_BYTES];
};

static int refill(struct answer *answer, const struct spool *spool)
{
    struct error err = ERROR_INIT;
    size_t left = answer->piece_size - answer->piece_at;
    int64_t got;

    memmove(answer->piece, answer->piece + answer->piece_at, left);
    got = spool_read(spool, answer->read_at, answer->piece + left, sizeof answer->piece - left, &err);
    if (got <= 0)
        return -1; /* the spool file broke: the client sees an unfinished answer */
    answer->read_at += (uint64_t)got;
    answer->piece_at = 0;
    answer->piece_size = left + (size_t)got;
    return 0;
}

/* As much of the current spool as fits. *ret_ended: all of it was sent. */
static int64_t send_spool(struct answer *answer, char *out, size_t max, bool *ret_ended)
{
    const struct spool *spool = &answer->spools[answer->current];
    size_t written = 0;

    for (;;) {
        bool is_last = answer->read_at >= spool->size;
        size_t taken;

        written += wire_escape(answer->piece + answer->piece_at, answer->piece_size - answer->piece_at, is_last,
                               out + written, max - written, &taken);
        answer->piece_at += taken;
        *ret_ended = is_last && answer->piece_at == answer->piece_size;
        if (*ret_ended || max - written < WIRE_ESCAPED_MAX)
            return (int64_t)written;
        if (refill(answer, spool) < 0)
            return -1;
    }
}

static size_t send_literal(struct answer *answer, char *out, size_t max)
{
    size_t size = strlen(answer->literal);

    if (size > max)
        size = max;
    memcpy(out, answer->literal, size);
    answer->literal += size;
    return size;
}

static int64_t answer_next(void *context, const struct cancel *cancel, char *out, size_t max)
{
    struct answer *answer = context;
    size_t written = 0;

    for (;;) {
        int64_t sent;
        bool ended;

        written += send_literal(answer, out + written, max - written);
        if (*answer->literal || answer->current == answer->count || max - written < WIRE_ESCAPED_MAX)
            return (int64_t)written;
        sent = send_spool(answer, out + written, max - written, &ended);
        if (sent < 0)
            return -1;
        written += (size_t)sent;
        if (!ended)
            return (int64_t)written;
        answer->current++;
        answer->read_at = answer->piece_at = answer->piece_size = 0;
        answer->literal = answer->current < answer->count ? answer->outputs[answer->current].lead : answer->tail;
    }
}

static void answer_free(void *context)
{
    struct answer *answer = context;

    for (size_t i = 0; i < answer->count; i++)
        spool_done(&answer->spools[i]);
    free(answer);
}

static void reply_large(struct http_reply *reply, const struct wire_output *outputs, size_t count, const char *tail)
{
    struct answer *answer = alloc_zero(sizeof *answer);
    struct http_stream stream = {.next = answer_next, .free = answer_free, .context = answer};

    for (size_t i = 0; i < count; i++) {
        answer->outputs[i] = outputs[i];
        answer->spools[i] = *outputs[i].spool;
        *outputs[i].spool = (struct spool)SPOOL_INIT;
    }
    answer->count = count;
    answer->literal = outputs[0].lead;
    (void)snprintf(answer->tail, sizeof answer->tail, "%s", tail);
    http_reply_stream(reply, WIRE_JSON_TYPE, &stream);
}

int wire_reply_output(struct http_reply *reply, const struct wire_output *outputs, size_t count, const char *tail,
                      struct error *err)
{
    uint64_t total = 0;
    bool in_memory = true;

    for (size_t i = 0; i < count; i++) {
        total += outputs[i].spool->size;
        in_memory = in_memory && outputs[i].spool->fd < 0;
    }
    if (in_memory && total <= SMALL_BYTES)
        return reply_small(reply, outputs, count, total, tail, err);
    reply_large(reply, outputs, count, tail);
    return 0;
}

int wire_explain_spawn(const struct run_exit *exit, const char *program, struct spool *spool, struct error *err)
{
    char reason[64];
    char text[512];
    int size;

    if (!exit->spawn_failed || spool->size)
        return 0;
    if (exit->spawn_errno == ENOENT && !exit->spawn_cwd)
        size = snprintf(text, sizeof text, "sh: 1: %.256s: not found\n", program);
    else
        size = snprintf(text, sizeof text, "sh: 1: %.256s: %s\n", exit->spawn_cwd ? "the working directory" : program,
                        strerror_r(exit->spawn_errno, reason, sizeof reason));
    return buf_append(&spool->memory, text, (size_t)size, err) < 0 ? -1 : (spool->size = (uint64_t)size, 0);
}
