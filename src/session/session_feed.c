/* The service-wide feed. */
#include "session_feed.h"

#include "alloc.h"
#include "clock.h"
#include "log.h"
#include "metric.h"
#include "session_private.h"

#include <stdlib.h>
#include <string.h>

void feed_record(struct sessions *sessions, const char *op, const char *session_id, const char *tenant,
                 const char *detail)
{
    struct store_feed_event event = {.at_unix_us = clock_unix_us()};

    metric_count(events, metric_op_of(op));
    (void)snprintf(event.op, sizeof event.op, "%s", op);
    (void)snprintf(event.session, sizeof event.session, "%s", session_id);
    (void)snprintf(event.tenant, sizeof event.tenant, "%s", tenant);
    (void)snprintf(event.detail, sizeof event.detail, "%s", detail);
    (void)snprintf(event.trace, sizeof event.trace, "%s", log_work()->trace);
    store_feed_append(sessions->store, &event);
}

const char *sessions_install(const struct sessions *sessions)
{
    return store_install(sessions->store);
}

int sessions_feed_read(struct sessions *sessions, uint64_t after, const struct feed_filter *filter, size_t limit,
                       struct feed_page *ret, struct error *err)
{
    struct store_feed_filter wanted = {filter->op, filter->session, filter->tenant, filter->is_following};
    auto_free struct store_feed_event *rows = NULL;

    *ret = (struct feed_page){.commits = store_feed_commits(sessions->store)};
    if (store_feed_read(sessions->store, after, &wanted, limit, &rows, &ret->count, &ret->first, &ret->latest, err) < 0)
        return -1;
    ret->events = alloc_array(ret->count, sizeof *ret->events);
    for (size_t i = 0; i < ret->count; i++) {
        struct feed_event *event = &ret->events[i];

        *event = (struct feed_event){.seq = rows[i].seq, .at_unix_us = rows[i].at_unix_us};
        memcpy(event->op, rows[i].op, sizeof event->op);
        memcpy(event->session, rows[i].session, sizeof event->session);
        memcpy(event->tenant, rows[i].tenant, sizeof event->tenant);
        memcpy(event->detail, rows[i].detail, sizeof event->detail);
    }
    return 0;
}

int sessions_feed_wait(struct sessions *sessions, const struct feed_page *page, const struct cancel *cancel,
                       struct error *err)
{
    return store_feed_wait(sessions->store, page->commits, cancel, err);
}

int sessions_feed_enter(struct sessions *sessions, struct error *err)
{
    int result = 0;

    sessions_lock(sessions);
    if (sessions->feed_readers >= FEED_READERS_MAX)
        result = fail(err, LIMIT, "%d are reading events already", FEED_READERS_MAX);
    else
        sessions->feed_readers++;
    sessions_unlock(sessions);
    return result;
}

void sessions_feed_leave(struct sessions *sessions)
{
    sessions_lock(sessions);
    sessions->feed_readers--;
    sessions_unlock(sessions);
}
