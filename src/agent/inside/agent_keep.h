/* agent/inside/agent_keep.h: the only home of a stream of output: bytes kept until they are acknowledged.
 *
 * A keep is a list of chunks in order of their offsets. It has a share of its own; all keeps together have
 * AGENT_TOTAL_KEEP_BYTES, beyond which each may still hold AGENT_KEEP_LEAST, so that one that nobody reads cannot stop
 * another. What is acknowledged may be kept behind, for a reader that comes back: it is spare, counts against no share, and
 * goes as soon as anything else needs the memory, first where there is most of it.
 */
#ifndef BERTH_AGENT_KEEP_H
#define BERTH_AGENT_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AGENT_KEEP_LEAST = 16 * 1024 };

struct agent_keep_chunk;

struct agent_keep {
    struct agent_keep_chunk *first;
    struct agent_keep_chunk *last;
    struct agent_keep_chunk *wanted; /* the first that is not all acknowledged; those before it are spare */
    struct agent_keep *next_spare;   /* in the list of keeps that have spare chunks */
    struct agent_keep *previous_spare;
    size_t held_bytes;  /* memory of the chunks */
    size_t spare_bytes; /* of it that of spare ones */
    size_t share_bytes;
    size_t behind_bytes; /* kept of what is acknowledged, while memory allows */
    uint64_t total;      /* bytes that ever came, dropped ones included */
    uint64_t acked;
    uint64_t sent; /* the next byte to send */
    bool dropped;  /* some that was not acknowledged */
};

/* Memory that all keeps hold now, and of it what is not spare. */
size_t agent_keep_held_bytes(void);
size_t agent_keep_wanted_bytes(void);

/* Bytes that may be added without dropping any. */
size_t agent_keep_room(const struct agent_keep *keep);

/* Add bytes. With may_drop, what goes beyond the share (or the total) drops the middle: the first half of the share and
 * the newest bytes stay. Without, the caller keeps to agent_keep_room(), and a chunk's rounding may go beyond. Bytes that
 * are acknowledged already are counted and not kept. */
void agent_keep_add(struct agent_keep *keep, const unsigned char *bytes, size_t size, bool may_drop);

/* Something is there that was not sent. */
bool agent_keep_unsent(const struct agent_keep *keep);

/* Copy up to max bytes without a gap from the first that was not sent, and count them as sent. Returns how many. */
size_t agent_keep_take(struct agent_keep *keep, unsigned char *bytes, size_t max, uint64_t *ret_offset);

/* Bytes before offset are not needed again, even if they have yet to come; the last behind_bytes of them stay for now. */
void agent_keep_ack(struct agent_keep *keep, uint64_t offset);

/* Send again from what was acknowledged. */
void agent_keep_rewind(struct agent_keep *keep);

/* Send from there; the end so far if that is before. */
void agent_keep_seek(struct agent_keep *keep, uint64_t offset);

/* Forget what is held; the counters stay. */
void agent_keep_clear(struct agent_keep *keep);

#endif
