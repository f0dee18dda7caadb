/* The threads that deliver.
 *
 * A window of events behind the feed's place is in memory. Whichever thread is free takes the first that is due and of whose session
 * nothing earlier is left in the window: sessions go beside each other, the events of one after each other. The place is the last event
 * before which everything is delivered: after a death what lay in the window and was delivered may come again, nothing is left out.
 */
#include "webhook.h"

#include "alloc.h"
#include "clock.h"
#include "id.h"
#include "log.h"
#include "metric.h"
#include "net_http.h"
#include "waitq.h"
#include "webhook_private.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORKERS = 4,
    WINDOW = 256,
    ATTEMPT_MS = 10000,
    FIRST_PAUSE_MS = 500,
    LONGEST_PAUSE_MS = 300000,
    STORE_PAUSE_MS = 2000,
    ANSWER_BYTES = 64 * 1024, /* read of an answer, and thrown away */
    STACK_BYTES = 512 * 1024,
};
static const int64_t give_up_us = INT64_C(7) * 24 * 3600 * 1000000; /* as long as the feed keeps events */

struct delivery {
    struct delivery *next; /* the next later one */
    struct store_feed_event event;
    bool is_sending;
    unsigned refusals; /* answers that were none of 2xx */
    int64_t due_mono_ms;
};

struct webhooks {
    struct store *store;
    char *url;
    int stop_fd;
    struct webhook_key keys[WEBHOOK_SECRETS_MAX];
    size_t key_count;

    pthread_mutex_t lock; /* guards what follows; never held while anything blocks */
    struct waitq changed;
    struct delivery *first; /* by number */
    struct delivery *last;
    unsigned count;
    uint64_t loaded;        /* the last number that came into the window */
    uint64_t place;         /* as the store has it */
    bool is_loading;        /* a thread reads the feed */
    uint64_t commits;       /* of the feed, before it was read last */
    bool more;              /* there may be more behind `loaded` already */
    unsigned unreached;     /* attempts in a row without any answer */
    int64_t quiet_until_ms; /* nobody is asked before: the receiver is not there */

    pthread_t threads[WORKERS];
    unsigned thread_count;
};

/* -- the window, lock held -- */

static void append_locked(struct webhooks *hooks, const struct store_feed_event *event)
{
    struct delivery *made = alloc_zero(sizeof *made);

    made->event = *event;
    *(hooks->last ? &hooks->last->next : &hooks->first) = made;
    hooks->last = made;
    hooks->count++;
}

static void remove_locked(struct webhooks *hooks, struct delivery *done)
{
    struct delivery *before = NULL;

    for (struct delivery *at = hooks->first; at != done; at = at->next)
        before = at;
    *(before ? &before->next : &hooks->first) = done->next;
    if (hooks->last == done)
        hooks->last = before;
    hooks->count--;
    free(done);
}

static bool is_blocked_locked(const struct webhooks *hooks, const struct delivery *wanted)
{
    for (const struct delivery *at = hooks->first; at != wanted; at = at->next)
        if (strcmp(at->event.session, wanted->event.session) == 0)
            return true;
    return false;
}

/* The next that may be sent now; NULL: none, and *ret_wait_ms says when to look again (-1: when something happens). */
static struct delivery *pick_locked(struct webhooks *hooks, int64_t *ret_wait_ms)
{
    int64_t now_ms = clock_mono_ms();
    int64_t next_ms = INT64_MAX;

    *ret_wait_ms = -1;
    if (hooks->quiet_until_ms > now_ms) {
        *ret_wait_ms = hooks->quiet_until_ms - now_ms;
        return NULL;
    }
    for (struct delivery *at = hooks->first; at; at = at->next) {
        if (at->is_sending || is_blocked_locked(hooks, at))
            continue;
        if (at->due_mono_ms <= now_ms)
            return at;
        next_ms = at->due_mono_ms < next_ms ? at->due_mono_ms : next_ms;
    }
    if (next_ms != INT64_MAX)
        *ret_wait_ms = next_ms - now_ms;
    return NULL;
}

/* Everything up to here is delivered: to be written down when it moves. */
static uint64_t settled_locked(const struct webhooks *hooks)
{
    return hooks->first ? hooks->first->event.seq - 1 : hooks->loaded;
}

/* Twice as long each time, and of that a half by chance, so that many brokers do not knock at once. */
static int64_t pause_ms(unsigned attempts)
{
    int64_t most_ms = attempts > 10 ? LONGEST_PAUSE_MS : (int64_t)FIRST_PAUSE_MS << attempts;
    uint32_t chance;

    if (most_ms > LONGEST_PAUSE_MS)
        most_ms = LONGEST_PAUSE_MS;
    id_random_bytes(&chance, sizeof chance);
    return most_ms / 2 + (int64_t)(chance % (uint32_t)(most_ms / 2 + 1));
}

/* -- reading the feed -- */

/* What the feed has forgotten before it could be delivered is told in its place. */
static void tell_lost_locked(struct webhooks *hooks, uint64_t first)
{
    struct store_feed_event lost = {.seq = first - 1, .at_unix_us = clock_unix_us(), .op = "lost"};

    (void)snprintf(lost.detail, sizeof lost.detail, "%llu events were forgotten before they could be delivered",
                   (unsigned long long)(first - 1 - hooks->loaded));
    log_error("webhook.lost", log_i("events", (int64_t)(first - 1 - hooks->loaded)));
    append_locked(hooks, &lost);
}

/* Lock held, released meanwhile. */
static void load_locked(struct webhooks *hooks)
{
    static const struct store_feed_filter all = {.only_committed = true};
    auto_free struct store_feed_event *events = NULL;
    struct error err = ERROR_INIT;
    uint64_t commits = store_feed_commits(hooks->store);
    uint64_t after = hooks->loaded;
    size_t room = WINDOW - hooks->count;
    uint64_t first = 0;
    uint64_t latest = 0;
    size_t count = 0;
    int result;

    hooks->is_loading = true;
    (void)pthread_mutex_unlock(&hooks->lock);
    result = store_feed_read(hooks->store, after, &all, room, &events, &count, &first, &latest, &err);
    (void)pthread_mutex_lock(&hooks->lock);
    hooks->is_loading = false;
    hooks->commits = commits;
    if (result < 0) {
        log_warn("webhook.feed", log_e(&err));
        hooks->quiet_until_ms = clock_mono_ms() + STORE_PAUSE_MS;
        return;
    }
    if (latest < hooks->loaded)
        hooks->loaded = hooks->place = latest; /* a store that was put back */
    else if (first > after + 1 && latest > after)
        tell_lost_locked(hooks, first);
    for (size_t i = 0; i < count; i++)
        append_locked(hooks, &events[i]);
    if (count)
        hooks->loaded = events[count - 1].seq;
    else if (first > after + 1 && latest > after)
        hooks->loaded = first - 1;
    hooks->more = count == room;
    waitq_wake_all(&hooks->changed);
}

/* -- sending -- */

/* True: the receiver has taken it. *ret_status 0: it gave no answer. */
static bool attempt(struct webhooks *hooks, const struct store_feed_event *event, const struct cancel *cancel,
                    int *ret_status, struct error *err)
{
    struct cancel bounded = cancel_within(cancel, ATTEMPT_MS);
    auto_buf struct buf body = BUF_INIT(16 * 1024);
    auto_buf struct buf signature = BUF_INIT(256);
    auto_buf struct buf answer = BUF_INIT(ANSWER_BYTES);
    char id[64], headers[5][384], span[17];
    const char *lines[6] = {headers[0], headers[1], headers[2], headers[3], NULL, NULL};
    struct net_http_request request = {.url = hooks->url, .method = "POST", .headers = lines};
    int64_t now_s = clock_unix_ms() / 1000;
    int64_t began_us = clock_mono_us();
    int result;

    *ret_status = 0;
    (void)snprintf(id, sizeof id, "msg_%.8s_%llu%s", store_install(hooks->store), (unsigned long long)event->seq,
                   strcmp(event->op, "lost") == 0 ? "_lost" : "");
    if (webhook_body(event, &body, err) < 0 ||
        webhook_sign(hooks->keys, hooks->key_count, id, now_s, &body, &signature, err) < 0)
        return false;
    (void)snprintf(headers[0], sizeof headers[0], "webhook-id: %s", id);
    (void)snprintf(headers[1], sizeof headers[1], "webhook-timestamp: %lld", (long long)now_s);
    (void)snprintf(headers[2], sizeof headers[2], "webhook-signature: %s", buf_str(&signature));
    (void)snprintf(headers[3], sizeof headers[3], "webhook-key-id: %s", hooks->keys[0].id);
    if (event->trace[0]) {
        id_random_hex(span, sizeof span - 1);
        (void)snprintf(headers[4], sizeof headers[4], "traceparent: 00-%s-%s-01", event->trace, span);
        lines[4] = headers[4];
    }
    request.body = body.data;
    request.body_size = body.size;
    result = net_http_fetch(&request, &bounded, ret_status, &answer, err);
    metric_observe(&metrics.webhook_durations[METRIC_ONE_ALL], clock_mono_us() - began_us);
    /* The status is its answer, however much it says behind that. */
    return (result == 0 || err->code == ERROR_TOO_LARGE) && *ret_status >= 200 && *ret_status < 300;
}

/* What became of an attempt. Lock held. */
static void judge_locked(struct webhooks *hooks, struct delivery *done, bool taken, int status, const struct error *err)
{
    const struct store_feed_event *event = &done->event;
    bool too_old = clock_unix_us() - event->at_unix_us > give_up_us;

    done->is_sending = false;
    if (status) {
        if (hooks->unreached)
            log_info("webhook.reached", log_i("attempts", hooks->unreached));
        hooks->unreached = 0;
    }
    if (taken || too_old) {
        if (!taken)
            log_error("webhook.given_up", log_i("seq", (int64_t)event->seq), log_s("op", event->op),
                      log_s("session", event->session));
        metric_count(webhooks, taken ? METRIC_WEBHOOK_DELIVERED : METRIC_WEBHOOK_GIVEN_UP);
        remove_locked(hooks, done);
    } else if (status) {
        metric_count(webhooks, METRIC_WEBHOOK_REFUSED);
        done->due_mono_ms = clock_mono_ms() + pause_ms(done->refusals++);
        if (done->refusals == 1)
            log_warn("webhook.refused", log_i("status", status), log_i("seq", (int64_t)event->seq),
                     log_s("op", event->op), log_s("session", event->session));
    } else {
        metric_count(webhooks, METRIC_WEBHOOK_UNREACHED);
        hooks->quiet_until_ms = clock_mono_ms() + pause_ms(hooks->unreached);
        if (hooks->unreached++ == 0)
            log_warn("webhook.unreached", log_e(err));
    }
    waitq_wake_all(&hooks->changed);
}

/* Lock held, released meanwhile. */
static void deliver_locked(struct webhooks *hooks, struct delivery *wanted, const struct cancel *cancel)
{
    struct store_feed_event event = wanted->event;
    struct error err = ERROR_INIT;
    struct error stopped = ERROR_INIT;
    uint64_t place;
    int status;
    bool taken;

    wanted->is_sending = true;
    (void)pthread_mutex_unlock(&hooks->lock);
    log_begin("", event.trace);
    taken = attempt(hooks, &event, cancel, &status, &err);
    (void)pthread_mutex_lock(&hooks->lock);
    if (!taken && cancel_check(cancel, &stopped) < 0) {
        wanted->is_sending = false;
        return;
    }
    judge_locked(hooks, wanted, taken, status, &err);
    log_begin("", "");
    place = settled_locked(hooks);
    if (place > hooks->place) {
        hooks->place = place;
        store_webhook_place_set(
            hooks->store, place); /* in order, as the lock is held: queued, and blocks only while the disk lags far */
    }
}

/* -- the threads -- */

/* Until the feed has more, for the one thread that looks; the others wait for it. Lock held, released meanwhile. */
static int wait_feed_locked(struct webhooks *hooks, const struct cancel *cancel, struct error *err)
{
    uint64_t commits = hooks->commits;
    int result;

    hooks->is_loading = true;
    (void)pthread_mutex_unlock(&hooks->lock);
    result = store_feed_wait(hooks->store, commits, cancel, err);
    (void)pthread_mutex_lock(&hooks->lock);
    hooks->is_loading = false;
    if (result == 0)
        hooks->more = true;
    waitq_wake_all(&hooks->changed);
    return result;
}

static void *work(void *context)
{
    struct webhooks *hooks = context;
    const struct cancel cancel = {.stop_fd = hooks->stop_fd, .client_fd = -1};
    struct error err = ERROR_INIT;

    (void)pthread_mutex_lock(&hooks->lock);
    while (cancel_check(&cancel, &err) == 0) {
        bool has_room = hooks->count < WINDOW && !hooks->is_loading && hooks->quiet_until_ms <= clock_mono_ms();
        struct delivery *wanted;
        struct cancel until = cancel;
        int64_t wait_ms;

        if (has_room && hooks->more) {
            load_locked(hooks);
            continue;
        }
        wanted = pick_locked(hooks, &wait_ms);
        if (wanted) {
            deliver_locked(hooks, wanted, &cancel);
            continue;
        }
        if (wait_ms >= 0)
            until = cancel_within(&cancel, wait_ms);
        if (has_room && !hooks->more)
            (void)wait_feed_locked(hooks, &until, &err);
        else
            (void)waitq_wait(&hooks->changed, &hooks->lock, &until, &err);
        error_clear(&err);
    }
    (void)pthread_mutex_unlock(&hooks->lock);
    return NULL;
}

static int start_threads(struct webhooks *hooks, struct error *err)
{
    pthread_attr_t attributes;
    int number = 0;

    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    while (number == 0 && hooks->thread_count < WORKERS) {
        number = pthread_create(&hooks->threads[hooks->thread_count], &attributes, work, hooks);
        hooks->thread_count += number == 0;
    }
    (void)pthread_attr_destroy(&attributes);
    errno = number;
    return number && hooks->thread_count == 0 ? fail_errno(err, "starting a thread") : 0;
}

int webhooks_start(const struct webhook_settings *settings, struct store *store, struct webhooks **ret_webhooks,
                   struct error *err)
{
    struct webhooks *hooks = alloc_zero(sizeof *hooks);

    net_http_init();
    hooks->store = store;
    hooks->url = alloc_str(settings->url);
    hooks->stop_fd = settings->stop_fd;
    hooks->more = true;
    (void)pthread_mutex_init(&hooks->lock, NULL);
    if (webhook_url_check(hooks->url, err) < 0 ||
        webhook_keys_parse(settings->secret, hooks->keys, &hooks->key_count, err) < 0 ||
        store_webhook_place(store, &hooks->place, err) < 0) {
        webhooks_stop(hooks);
        return -1;
    }
    hooks->loaded = hooks->place;
    if (start_threads(hooks, err) < 0) {
        webhooks_stop(hooks);
        return -1;
    }
    *ret_webhooks = hooks;
    return 0;
}

void webhooks_stop(struct webhooks *hooks)
{
    if (!hooks)
        return;
    for (unsigned i = 0; i < hooks->thread_count; i++)
        (void)pthread_join(hooks->threads[i], NULL);
    while (hooks->first)
        remove_locked(hooks, hooks->first);
    (void)pthread_mutex_destroy(&hooks->lock);
    explicit_bzero(hooks->keys, sizeof hooks->keys);
    free(hooks->url);
    free(hooks);
}

void webhooks_forget(struct store *store)
{
    store_webhook_forget(store);
}
