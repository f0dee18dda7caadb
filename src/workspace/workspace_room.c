/* How much may still be written to a slot. */
#include "workspace_private.h"

#include "alloc.h"

#include <errno.h>
#include <stdlib.h>

/* Two counts that only grow, since a file is written long before it has its name: one counted as measured when nobody could see
 * it yet would be given as room a second time. */
struct workspace_room {
    atomic_uint refs;
    _Atomic int64_t taken_bytes; /* of writes that began */
    _Atomic int64_t seen_bytes;  /* workspace_room_seen() */
    _Atomic int64_t end_bytes;   /* what taken_bytes may become; INT64_MAX: anything */
    atomic_bool is_set;
};

struct workspace_room *workspace_room_new(void)
{
    struct workspace_room *room = alloc_zero(sizeof *room);

    atomic_init(&room->refs, 1);
    atomic_init(&room->end_bytes, INT64_MAX);
    return room;
}

struct workspace_room *workspace_room_ref(struct workspace_room *room)
{
    atomic_fetch_add(&room->refs, 1);
    return room;
}

void workspace_room_unref(struct workspace_room *room)
{
    if (room && atomic_fetch_sub(&room->refs, 1) == 1)
        free(room);
}

int64_t workspace_room_seen(const struct workspace_room *room)
{
    return atomic_load(&room->seen_bytes);
}

void workspace_room_set(struct workspace_room *room, int64_t bytes, int64_t seen)
{
    atomic_store(&room->end_bytes, bytes == INT64_MAX ? INT64_MAX : bytes + seen);
    atomic_store(&room->is_set, true);
}

void workspace_room_begin(struct workspace_room *room, int64_t bytes)
{
    if (!atomic_load(&room->is_set))
        workspace_room_set(room, bytes, 0);
}

int workspace_room_take(struct workspace_room *room, int64_t bytes)
{
    int64_t end;
    int64_t taken;

    if (!room)
        return 0;
    end = atomic_load(&room->end_bytes);
    taken = atomic_load(&room->taken_bytes);
    do {
        if (end != INT64_MAX && (taken >= end || end - taken < bytes)) {
            errno = EDQUOT;
            return -1;
        }
    } while (!atomic_compare_exchange_weak(&room->taken_bytes, &taken, taken + bytes));
    return 0;
}

void workspace_room_settle(struct workspace_room *room, int64_t bytes)
{
    if (room)
        atomic_fetch_add(&room->seen_bytes, bytes);
}
