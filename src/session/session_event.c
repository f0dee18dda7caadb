/* Events of a session, as the wire records them. */
#include "session_private.h"

#include "alloc.h"
#include "clock.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

enum { TARGET_CHARACTERS = 200 };

void event_record(struct session *session, const char *op, const char *target, size_t target_size, bool ok,
                  const char *detail, int64_t started_mono_us)
{
    struct store_event event = {
        .at_unix_us = clock_unix_us(), .duration_us = clock_mono_us() - started_mono_us, .ok = ok};
    size_t shown = utf8_offset(target, target_size, TARGET_CHARACTERS);

    (void)snprintf(event.op, sizeof event.op, "%s", op);
    if (shown > sizeof event.target - 4)
        shown = utf8_valid_prefix(target, sizeof event.target - 4);
    memcpy(event.target, target, shown);
    if (shown < target_size)
        memcpy(event.target + shown, "\xe2\x80\xa6", 4); /* an ellipsis and its NUL */
    (void)snprintf(event.detail, sizeof event.detail, "%s", detail);
    store_event_append(session->owner->store, session->id, session->opening, &event);
}

int sessions_events(struct sessions *sessions, const char *id, uint64_t after, struct session_event **ret_events,
                    size_t *ret_count, uint64_t *ret_latest, struct error *err)
{
    auto_session struct session *session = registry_get(sessions, id, err);
    auto_free struct store_event *rows = NULL;
    struct session_event *events;
    size_t count;

    if (!session || store_events_read(sessions->store, id, session->opening, after, &rows, &count, ret_latest, err) < 0)
        return -1;
    events = alloc_array(count, sizeof *events);
    for (size_t i = 0; i < count; i++) {
        events[i] = (struct session_event){
            .seq = rows[i].seq, .at_unix_us = rows[i].at_unix_us, .duration_us = rows[i].duration_us, .ok = rows[i].ok};
        (void)snprintf(events[i].op, sizeof events[i].op, "%s", rows[i].op);
        (void)snprintf(events[i].target, sizeof events[i].target, "%s", rows[i].target);
        (void)snprintf(events[i].detail, sizeof events[i].detail, "%s", rows[i].detail);
    }
    *ret_events = events;
    *ret_count = count;
    return 0;
}
