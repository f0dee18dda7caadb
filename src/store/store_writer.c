#include "clock.h"
#include "log.h"
#include "store_private.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum {
    BATCH_MAX = 1000,             /* items a transaction */
    CHECKPOINT_IDLE_PAGES = 1000, /* move the log when nothing waits … */
    CHECKPOINT_PAGES = 8000,      /* … and whatever waits */
    RETRY_MS = 1000,              /* of what is queued, while the disk refuses */
};

/* One store_write(), on its caller's stack. */
struct store_call {
    pthread_cond_t answered;
    enum store_promise promise;
    bool done;
    struct error err; /* code ERROR_NONE: committed */
};

static bool is_durable(const struct store_item *item)
{
    return item->call && item->call->promise == STORE_DURABLE;
}

static void list_push(struct store_list *list, struct store_item *item)
{
    item->next = NULL;
    if (list->last)
        list->last->next = item;
    else
        list->first = item;
    list->last = item;
}

static struct store_item *list_pop(struct store_list *list)
{
    struct store_item *item = list->first;

    list->first = item->next;
    if (!list->first)
        list->last = NULL;
    return item;
}

/* Put `front` before what is in `list`. */
static void list_prepend(struct store_list *list, struct store_list *front)
{
    if (!front->first)
        return;
    front->last->next = list->first;
    list->first = front->first;
    if (!list->last)
        list->last = front->last;
}

/* -- the callers' side -- */

/* Release the lock and wake the writer if it sleeps: a system call for the first of many only. */
static void unlock_and_wake(struct store_writer *writer)
{
    bool wake = writer->asleep;

    writer->asleep = false;
    (void)pthread_mutex_unlock(&writer->queue_lock);
    if (wake)
        (void)pthread_cond_signal(&writer->wake);
}

int store_write(struct store *store, enum store_promise promise, store_write_fn *write, void *args, struct error *err)
{
    struct store_writer *writer = &store->writer;
    struct store_call call = {PTHREAD_COND_INITIALIZER, promise, false, ERROR_INIT};
    struct store_item item = {NULL, write, args, &call, false, false};

    (void)pthread_mutex_lock(&writer->queue_lock);
    list_push(&writer->queue, &item);
    writer->calls++;
    unlock_and_wake(writer);
    (void)pthread_mutex_lock(&writer->queue_lock);
    while (!call.done)
        (void)pthread_cond_wait(&call.answered, &writer->queue_lock);
    (void)pthread_mutex_unlock(&writer->queue_lock);
    (void)pthread_cond_destroy(&call.answered);
    if (call.err.code == ERROR_NONE)
        return 0;
    *err = call.err;
    return -1;
}

void store_queue(struct store *store, struct store_item *item)
{
    struct store_writer *writer = &store->writer;

    (void)pthread_mutex_lock(&writer->queue_lock);
    while (writer->queued >= STORE_QUEUE_MAX && writer->failure.code == ERROR_NONE)
        (void)pthread_cond_wait(&writer->room, &writer->queue_lock);
    if (writer->queued >= STORE_QUEUE_MAX) { /* a full disk must not stop the runs as well */
        writer->dropped++;
        (void)pthread_mutex_unlock(&writer->queue_lock);
        free(item);
        return;
    }
    item->call = NULL;
    item->kept = false;
    list_push(&writer->queue, item);
    writer->queued++;
    writer->given++;
    unlock_and_wake(writer);
}

int store_wait_queued(struct store *store, struct error *err)
{
    struct store_writer *writer = &store->writer;
    uint64_t ticket;
    int result = 0;

    (void)pthread_mutex_lock(&writer->queue_lock);
    ticket = writer->given;
    while (writer->done < ticket && writer->failure.code == ERROR_NONE)
        (void)pthread_cond_wait(&writer->committed, &writer->queue_lock);
    if (writer->done < ticket) {
        *err = writer->failure;
        result = -1;
    }
    (void)pthread_mutex_unlock(&writer->queue_lock);
    return result;
}

void store_health(struct store *store, struct store_health *ret)
{
    struct store_writer *writer = &store->writer;

    (void)pthread_mutex_lock(&writer->queue_lock);
    ret->code = writer->failure.code;
    ret->queued = writer->queued;
    ret->writing_ms = writer->writing_since_ms ? clock_mono_ms() - writer->writing_since_ms : 0;
    (void)pthread_mutex_unlock(&writer->queue_lock);
}

/* -- the writer's side -- */

struct batch {
    struct store_list items;
    bool wrote;           /* something was committed: the disk takes writes */
    bool kept;            /* something queued was refused */
    bool fed;             /* events of the feed were committed */
    struct error failure; /* the last one of the disk */
};

/* Its own mistake, as opposed to the disk's. */
static bool is_items_own(const struct error *err)
{
    return err->code == ERROR_CONFLICT || err->code == ERROR_NOT_FOUND || err->code == ERROR_INVALID;
}

static int step_literal(struct store_db *db, const char *literal, struct error *err)
{
    auto_stmt sqlite3_stmt *stmt = store_stmt(db, literal);

    return store_step(db, stmt, err);
}

/* 0: written or undone for a reason of its own, told to whoever waits. -1: the transaction is lost. */
static int write_item(struct store_db *db, struct store_item *item, struct error *err)
{
    struct error own = ERROR_INIT;

    if (step_literal(db, "SAVEPOINT item", err) < 0)
        return -1;
    if (item->write(db, item->args, &own) == 0)
        return step_literal(db, "RELEASE item", err);
    if (!is_items_own(&own) || sqlite3_get_autocommit(db->handle)) {
        *err = own;
        return -1;
    }
    if (item->call)
        item->call->err = own;
    else
        log_error("store.refused", log_e(&own));
    if (step_literal(db, "ROLLBACK TO item", err) < 0)
        return -1;
    return step_literal(db, "RELEASE item", err);
}

/* The items from `first` up to, not including, `end` in one transaction. */
static int transact(struct store_db *db, struct store_item *first, struct store_item *end, struct error *err)
{
    int synchronous = 1;
    int result;

    for (struct store_item *item = first; item != end; item = item->next) {
        if (is_durable(item))
            synchronous = 2;
        if (item->call)
            error_clear(&item->call->err);
    }
    if (store_db_set_synchronous(db, synchronous, err) < 0)
        return -1;
    result = step_literal(db, "BEGIN IMMEDIATE", err);
    for (struct store_item *item = first; result >= 0 && item != end; item = item->next)
        result = write_item(db, item, err);
    if (result >= 0)
        result = step_literal(db, "COMMIT", err);
    if (result < 0 && !sqlite3_get_autocommit(db->handle))
        (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    return result;
}

/* Each item in a transaction of its own, so that one too large for the disk does not sink the small ones. What is
 * queued keeps its order: behind one that was refused, the others are kept as well. */
static void write_one_by_one(struct store_db *db, struct batch *batch)
{
    for (struct store_item *item = batch->items.first; item; item = item->next) {
        struct error err = ERROR_INIT;

        if (!item->call && batch->kept) {
            item->kept = true;
        } else if (transact(db, item, item->next, &err) == 0) {
            batch->wrote = true;
        } else {
            batch->failure = err;
            if (item->call)
                item->call->err = err;
            else
                item->kept = batch->kept = true;
        }
    }
}

static void write_batch(struct store_db *db, struct batch *batch)
{
    if (transact(db, batch->items.first, NULL, &batch->failure) == 0) {
        batch->wrote = true;
        return;
    }
    store_db_checkpoint(db); /* gives the log's space back for use */
    write_one_by_one(db, batch);
}

/* While the disk refuses, only callers make it try before the time has come. */
static bool calls_only_locked(const struct store_writer *writer)
{
    return writer->failure.code != ERROR_NONE && !writer->closing && clock_mono_ms() < writer->retry_at_ms;
}

static void wait_for_work_locked(struct store_writer *writer)
{
    for (;;) {
        bool calls_only = calls_only_locked(writer);
        struct timespec until = {writer->retry_at_ms / 1000, writer->retry_at_ms % 1000 * 1000000};

        if (writer->closing || writer->calls || (writer->queue.first && !calls_only))
            return;
        writer->asleep = true;
        if (calls_only)
            (void)pthread_cond_timedwait(&writer->wake, &writer->queue_lock, &until);
        else
            (void)pthread_cond_wait(&writer->wake, &writer->queue_lock);
        writer->asleep = false;
    }
}

/* The next transaction. One that begins without a durable item ends before the first: nobody waits for an fsync that is
 * not in front of him. One that begins with a durable item takes whatever is there: they share the fsync. */
static void take_batch_locked(struct store_writer *writer, struct batch *batch)
{
    bool calls_only = calls_only_locked(writer);
    bool durable = calls_only || is_durable(writer->queue.first);
    struct store_list left = {NULL, NULL};

    for (size_t count = 0; count < BATCH_MAX && writer->queue.first;) {
        struct store_item *item;

        if (!durable && is_durable(writer->queue.first))
            break;
        item = list_pop(&writer->queue);
        if (calls_only && !item->call) {
            list_push(&left, item);
            continue;
        }
        writer->calls -= item->call != NULL;
        list_push(&batch->items, item);
        count++;
    }
    list_prepend(&writer->queue, &left);
}

/* Answer the callers (whose items lie on their stacks: not to be touched after), put back what the disk refused, and
 * leave in *ret_garbage what can be freed. */
static void settle_locked(struct store_writer *writer, struct batch *batch, struct store_list *ret_garbage)
{
    struct store_list kept = {NULL, NULL};

    while (batch->items.first) {
        struct store_item *item = list_pop(&batch->items);

        if (item->call) {
            item->call->done = true;
            (void)pthread_cond_signal(&item->call->answered);
        } else if (item->kept && !writer->closing) {
            item->kept = false;
            list_push(&kept, item);
        } else {
            writer->dropped += item->kept;
            batch->fed = batch->fed || (item->feeds && !item->kept);
            writer->queued--;
            writer->done++;
            list_push(ret_garbage, item);
        }
    }
    list_prepend(&writer->queue, &kept);
    if (batch->kept) {
        writer->failure = batch->failure;
        writer->retry_at_ms = clock_mono_ms() + RETRY_MS;
    } else if (batch->wrote) {
        error_clear(&writer->failure);
    }
    (void)pthread_cond_broadcast(&writer->room);
    (void)pthread_cond_broadcast(&writer->committed);
}

/* One transaction. False: closing, and nothing is left. */
static bool turn(struct store *store)
{
    struct store_writer *writer = &store->writer;
    struct batch batch = {{NULL, NULL}, false, false, false, ERROR_INIT};
    struct store_list garbage = {NULL, NULL};
    uint64_t dropped = 0;
    bool failed_before;
    bool fails;
    bool idle;

    (void)pthread_mutex_lock(&writer->queue_lock);
    wait_for_work_locked(writer);
    if (writer->queue.first)
        take_batch_locked(writer, &batch);
    writer->writing_since_ms = clock_mono_ms();
    (void)pthread_mutex_unlock(&writer->queue_lock);
    if (!batch.items.first)
        return false;

    write_batch(&store->write_db, &batch);

    (void)pthread_mutex_lock(&writer->queue_lock);
    writer->writing_since_ms = 0;
    failed_before = writer->failure.code != ERROR_NONE;
    settle_locked(writer, &batch, &garbage);
    fails = writer->failure.code != ERROR_NONE;
    if (!fails || writer->closing) {
        dropped = writer->dropped;
        writer->dropped = 0;
    }
    idle = !writer->queue.first;
    (void)pthread_mutex_unlock(&writer->queue_lock);

    if (batch.fed)
        store_feed_committed(store);
    while (garbage.first)
        free(list_pop(&garbage));
    if (fails && !failed_before)
        log_error("store.refuses", log_e(&batch.failure));
    if (!fails && failed_before)
        log_info("store.writes_again");
    if (dropped)
        log_error("store.lost", log_i("events", (int64_t)dropped));
    if (store->write_db.wal_pages >= (idle ? CHECKPOINT_IDLE_PAGES : CHECKPOINT_PAGES))
        store_db_checkpoint(&store->write_db);
    return true;
}

static void *writer_main(void *arg)
{
    while (turn(arg))
        ;
    return NULL;
}

int store_writer_start(struct store *store, struct error *err)
{
    struct store_writer *writer = &store->writer;
    pthread_condattr_t monotonic;
    sigset_t all;
    sigset_t before;

    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&writer->queue_lock, NULL);
    (void)pthread_cond_init(&writer->wake, &monotonic);
    (void)pthread_cond_init(&writer->room, NULL);
    (void)pthread_cond_init(&writer->committed, NULL);
    (void)pthread_condattr_destroy(&monotonic);

    (void)sigfillset(&all); /* signals are main's */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = pthread_create(&writer->thread, NULL, writer_main, store);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (errno)
        return fail_errno(err, "store: writer thread");
    writer->running = true;
    return 0;
}

void store_writer_stop(struct store *store)
{
    struct store_writer *writer = &store->writer;

    if (!writer->running)
        return;
    (void)pthread_mutex_lock(&writer->queue_lock);
    writer->closing = true;
    unlock_and_wake(writer);
    (void)pthread_join(writer->thread, NULL);
    (void)pthread_cond_destroy(&writer->wake);
    (void)pthread_cond_destroy(&writer->room);
    (void)pthread_cond_destroy(&writer->committed);
    (void)pthread_mutex_destroy(&writer->queue_lock);
    writer->running = false;
}
