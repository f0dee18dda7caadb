/* GET /events: what happens to sessions, service-wide, as server-sent events.
 *
 * A reader is a place in the store's feed, nothing is queued for it: who reads slowly falls behind, and is told so once what it has not
 * read is not kept any more. An id is "<8 hex of this store's uuid>-<number>", so that one of another store is known as such. */
#include "alloc.h"
#include "session_feed.h"
#include "wire_private.h"

#include <stdlib.h>
#include <string.h>

enum {
    PAGE_EVENTS = 50,
    LIST_EVENTS = 1000,
    PIECE_MAX_BYTES = 512 * 1024, /* of a page as text, and more than it can be */
    PING_MS = 10000,
    STORE_DIGITS = 8,
    FIELD_BYTES = 80,
};

struct feed {
    struct sessions *sessions;
    char op[FIELD_BYTES]; /* "" any */
    char session[FIELD_BYTES];
    char tenant[FIELD_BYTES];
    uint64_t after;
    struct buf text; /* to be sent … */
    size_t sent;     /* … and sent of it */
};

/* -- text -- */

static void put_event(struct wire_writer *writer, const struct feed_event *event)
{
    wire_put_open(writer, NULL, '{');
    wire_put_int(writer, "seq", (int64_t)event->seq);
    wire_put_seconds(writer, "at", event->at_unix_us);
    wire_put_str(writer, "op", event->op);
    wire_put_str(writer, "session", event->session[0] ? event->session : NULL);
    wire_put_str(writer, "tenant", event->tenant[0] ? event->tenant : NULL);
    wire_put_str(writer, "detail", event->detail);
    wire_put_close(writer, '}');
}

/* JSON has no line ends in it, so that nothing in an event can end its line. */
static int add_event(struct feed *feed, const struct feed_event *event, struct error *err)
{
    struct wire_writer writer = WIRE_WRITER(&feed->text);

    if (buf_append_format(&feed->text, err, "id: %.*s-%llu\ndata:", STORE_DIGITS, sessions_install(feed->sessions),
                          (unsigned long long)event->seq) < 0)
        return -1;
    put_event(&writer, event);
    if (wire_writer_end(&writer, err) < 0)
        return -1;
    return buf_append_format(&feed->text, err, "\n\n");
}

/* One record, and the place is the oldest that is kept. */
static int add_jump(struct feed *feed, const char *kind, const char *reason, const struct feed_page *page,
                    struct error *err)
{
    feed->after = page->first - 1;
    return buf_append_format(&feed->text, err,
                             "event: %s\nid: %.*s-%llu\ndata: {\"reason\":\"%s\",\"first\":%llu,\"latest\":%llu}\n\n",
                             kind, STORE_DIGITS, sessions_install(feed->sessions), (unsigned long long)feed->after,
                             reason, (unsigned long long)page->first, (unsigned long long)page->latest);
}

/* -- the place to begin at -- */

enum place { PLACE_NOW, PLACE_NUMBER, PLACE_FOREIGN };

static enum place parse_place(const struct sessions *sessions, const char *text, bool may_be_bare, uint64_t *ret)
{
    const char *install = sessions_install(sessions);
    size_t length;

    if (!text || !text[0])
        return PLACE_NOW;
    if (strncmp(text, install, STORE_DIGITS) == 0 && text[STORE_DIGITS] == '-')
        text += STORE_DIGITS + 1;
    else if (!may_be_bare)
        return PLACE_FOREIGN;
    length = strspn(text, "0123456789");
    if (length == 0 || length > 18 || text[length])
        return PLACE_FOREIGN;
    *ret = strtoull(text, NULL, 10);
    return PLACE_NUMBER;
}

static int begin(struct feed *feed, enum place place, uint64_t number, struct error *err)
{
    const struct feed_filter nothing = {.op = ""};
    struct feed_page page;

    if (sessions_feed_read(feed->sessions, 0, &nothing, 1, &page, err) < 0)
        return -1;
    free(page.events);
    if (buf_append_format(&feed->text, err, "retry: 2000\n\n") < 0)
        return -1;
    feed->after = place == PLACE_NOW ? page.latest : number;
    if (place == PLACE_FOREIGN)
        return add_jump(feed, "reset", "foreign", &page, err);
    if (feed->after > page.latest)
        return add_jump(feed, "reset", "future", &page, err);
    if (feed->after + 1 < page.first)
        return add_jump(feed, "reset", "stale", &page, err);
    return 0;
}

/* -- going on -- */

static const char *unless_empty(const char *text)
{
    return text[0] ? text : NULL;
}

static int add_page(struct feed *feed, const struct feed_page *page, struct error *err)
{
    for (size_t i = 0; i < page->count; i++)
        if (add_event(feed, &page->events[i], err) < 0)
            return -1;
    feed->after = page->count == PAGE_EVENTS ? page->events[page->count - 1].seq : page->latest;
    return 0;
}

/* Something to send, or -1: it is over. */
static int fill(struct feed *feed, const struct cancel *cancel, struct error *err)
{
    struct feed_filter filter = {unless_empty(feed->op), unless_empty(feed->session), unless_empty(feed->tenant), true};
    struct cancel until_ping = cancel_within(cancel, PING_MS);

    buf_done(&feed->text); /* one that waits holds no memory */
    feed->text = (struct buf)BUF_INIT(PIECE_MAX_BYTES);
    feed->sent = 0;
    while (feed->text.size == 0) {
        struct feed_page page;
        int result = 0;

        if (sessions_feed_read(feed->sessions, feed->after, &filter, PAGE_EVENTS, &page, err) < 0)
            return -1;                    /* the disk refuses; the reader comes back with its id */
        if (feed->after + 1 < page.first) /* the next piece has what is kept */
            result = add_jump(feed, "lagged", "stale", &page, err);
        else
            result = add_page(feed, &page, err);
        free(page.events);
        if (result < 0)
            return -1;
        if (feed->text.size || sessions_feed_wait(feed->sessions, &page, &until_ping, err) == 0)
            continue;
        if (err->code != ERROR_TIMEOUT)
            return -1;
        error_clear(err);
        return buf_append_format(&feed->text, err, ": ping\n\n");
    }
    return 0;
}

static int64_t feed_next(void *context, const struct cancel *cancel, char *out, size_t max)
{
    struct feed *feed = context;
    struct error err = ERROR_INIT;
    size_t size;

    if (feed->sent == feed->text.size && fill(feed, cancel, &err) < 0)
        return 0;
    size = feed->text.size - feed->sent;
    if (size > max)
        size = max;
    memcpy(out, feed->text.data + feed->sent, size);
    feed->sent += size;
    return (int64_t)size;
}

static void feed_free(void *context)
{
    struct feed *feed = context;

    sessions_feed_leave(feed->sessions);
    buf_done(&feed->text);
    free(feed);
}

/* -- the route -- */

static void read_field(struct wire_call *call, const char *key, char out[FIELD_BYTES])
{
    size_t size = 0;
    const char *text = http_request_query(call->request, key, &size);

    if (text && (size >= FIELD_BYTES || memchr(text, 0, size)))
        wire_invalid_add(&call->invalid, WIRE_AT("query", key), "string_too_long", "Not a name");
    else
        (void)snprintf(out, FIELD_BYTES, "%s", text ? text : "");
}

static int reply_list(struct wire_call *call, const struct feed *feed, uint64_t after, struct http_reply *reply,
                      struct error *err)
{
    struct feed_filter filter = {unless_empty(feed->op), unless_empty(feed->session), unless_empty(feed->tenant),
                                 false};
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct feed_page page;

    if (sessions_feed_read(call->sessions, after, &filter, LIST_EVENTS, &page, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_open(&writer, "events", '[');
    for (size_t i = 0; i < page.count; i++)
        put_event(&writer, &page.events[i]);
    wire_put_close(&writer, ']');
    wire_put_int(&writer, "first_seq", (int64_t)page.first);
    wire_put_int(&writer, "latest_seq", (int64_t)page.latest);
    wire_put_close(&writer, '}');
    free(page.events);
    return wire_reply_json(reply, &writer, err);
}

/* GET /events?after=&op=&session=&tenant=&follow=true */
int route_events(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    const char *last = http_request_header(call->request, "Last-Event-ID");
    struct feed read = {.sessions = call->sessions, .text = BUF_INIT(PIECE_MAX_BYTES)};
    enum place place;
    struct feed *feed;
    uint64_t number = 0;
    bool follow = true;
    size_t size = 0;
    const char *text = http_request_query(call->request, "follow", &size);

    wire_query_bool(&call->invalid, "follow", text, text ? size : 0, &follow);
    read_field(call, "op", read.op);
    read_field(call, "session", read.session);
    read_field(call, "tenant", read.tenant);
    if (wire_refused(call, reply))
        return 0;
    place = last ? parse_place(call->sessions, last, false, &number)
                 : parse_place(call->sessions, http_request_query(call->request, "after", NULL), true, &number);
    if (!follow)
        return reply_list(call, &read, number, reply, err);
    if (sessions_feed_enter(call->sessions, err) < 0)
        return -1;
    feed = alloc_zero(sizeof *feed);
    *feed = read;
    if (begin(feed, place, number, err) < 0) {
        feed_free(feed);
        return -1;
    }
    http_reply_header(reply, "Cache-Control", "no-cache");
    http_reply_header(reply, "X-Accel-Buffering", "no");
    http_reply_stream(reply, "text/event-stream",
                      &(struct http_stream){.next = feed_next, .free = feed_free, .context = feed});
    return 0;
}
