/* What comes out of watched runs, and what goes in. */
#include "session_runs_private.h"

#include "alloc.h"

#include <stdlib.h>
#include <string.h>

enum {
    HOLD_MS = 10000,           /* a run whose reader was cut is slowed for so long: time to come back */
    CHUNK_MAX = 1024 * 1024,   /* more than the agent's window */
    ATTACH_TIMEOUT_MS = 30000, /* for input to a run whose link is being mended */
};

static int superseded(const struct run_reader *reader, struct error *err)
{
    return fail(err, CONFLICT, "Somebody else reads run %s now", reader->kept->run_id);
}

/* Be the one inside the provider: whoever is must leave first. Lock held, released meanwhile. */
static int enter_locked(struct run_reader *reader, const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = reader->session->owner;
    struct kept_run *kept = reader->kept;

    while (kept->reader == reader->number && kept->in_next) {
        if (kept->handle)
            sessions->provider->ops->run_interrupt(kept->handle->run);
        if (waitq_wait(&sessions->runs_changed, &sessions->lock, cancel, err) < 0)
            return -1;
    }
    if (kept->reader != reader->number)
        return superseded(reader, err);
    kept->in_next = true;
    return 0;
}

static void leave_locked(struct run_reader *reader)
{
    reader->kept->in_next = false;
    waitq_wake_all(&reader->session->owner->runs_changed);
}

static void unpin_locked(struct run_reader *reader)
{
    handle_unref_locked(reader->session->owner, reader->pin);
    reader->pin = NULL;
}

/* At its place. Lock not held. */
static int seek(struct run_reader *reader, struct sandbox_run *run, const struct cancel *cancel, struct error *err)
{
    const struct provider_ops *ops = reader->session->owner->provider->ops;
    uint64_t place;

    if (reader->wants_tail) {
        if (ops->run_seek(run, UINT64_MAX, 0, cancel, &place, err) < 0)
            return -1;
        if (ops->run_cut(run))
            return 0; /* run_next() tells; the next link is asked again */
        reader->end = place;
        reader->at[0] = place > reader->tail_bytes ? place - reader->tail_bytes : 0;
        reader->wants_tail = false;
    }
    return ops->run_seek(run, reader->at[0], reader->at[1], cancel, &place, err);
}

/* Have a handle, placed where this reader is. 1: pinned; 0: there is none and will be none: the output is gone. in_next is
 * held when it returns 1 or 0. Lock held, released meanwhile. */
static int pin_locked(struct run_reader *reader, const struct cancel *cancel, struct error *err)
{
    struct sessions *sessions = reader->session->owner;
    struct kept_run *kept = reader->kept;

    while (!reader->pin) {
        struct run_handle *handle = kept->handle;

        if (kept->reader != reader->number)
            return superseded(reader, err);
        if ((!handle || handle->serial == reader->dead) && (kept->state != RUN_STATE_ENDED || !kept->is_gone)) {
            if (waitq_wait(&sessions->runs_changed, &sessions->lock, cancel, err) < 0)
                return -1;
            continue;
        }
        if (enter_locked(reader, cancel, err) < 0)
            return -1;
        if (kept->handle != handle) { /* attached anew meanwhile */
            leave_locked(reader);
            continue;
        }
        if (!handle)
            return 0;
        reader->pin = handle_ref_locked(handle);
        sessions_unlock(sessions);
        if (seek(reader, handle->run, cancel, err) < 0) {
            sessions_lock(sessions);
            unpin_locked(reader);
            leave_locked(reader);
            return err->code == ERROR_CONFLICT ? superseded(reader, err) : -1;
        }
        sessions_lock(sessions);
        return 1;
    }
    return enter_locked(reader, cancel, err) < 0 ? -1 : 1;
}

/* All that will come was given: what is missing behind it, and the end. in_next is not held. */
static int finish_locked(struct run_reader *reader, const struct cancel *cancel, struct run_chunk *ret_chunk,
                         struct error *err)
{
    struct sessions *sessions = reader->session->owner;
    struct kept_run *kept = reader->kept;

    while (kept->state != RUN_STATE_ENDED)
        if (waitq_wait(&sessions->runs_changed, &sessions->lock, cancel, err) < 0)
            return -1;
    for (int stream = 0; stream < 2; stream++) {
        uint64_t total = stream ? kept->exit.stderr_bytes : kept->exit.stdout_bytes;

        if (reader->at[stream] >= total)
            continue;
        *ret_chunk =
            (struct run_chunk){.stream = stream, .data = "", .offset = total, .dropped = total - reader->at[stream]};
        reader->at[stream] = total;
        return 1;
    }
    reader->is_complete = true;
    return 0;
}

static int take_chunk(struct run_reader *reader, const struct run_chunk *chunk, struct run_chunk *ret_chunk,
                      struct error *err)
{
    buf_clear(&reader->held);
    if (buf_append(&reader->held, chunk->data, chunk->size, err) < 0)
        return -1;
    *ret_chunk = *chunk;
    ret_chunk->data = buf_str(&reader->held);
    reader->at[chunk->stream] = chunk->offset + chunk->size;
    return 1;
}

int run_reader_next(struct run_reader *reader, const struct cancel *cancel, struct run_chunk *ret_chunk,
                    struct error *err)
{
    struct sessions *sessions = reader->session->owner;
    const struct provider_ops *ops = sessions->provider->ops;
    struct run_chunk chunk;
    int result;

    sessions_lock(sessions);
    for (;;) {
        result = pin_locked(reader, cancel, err);
        if (result < 0)
            break;
        if (result > 0) {
            sessions_unlock(sessions);
            result = ops->run_next(reader->pin->run, cancel, &chunk, err);
            if (result > 0)
                result = take_chunk(reader, &chunk, ret_chunk, err);
            sessions_lock(sessions);
        }
        leave_locked(reader);
        if (result > 0)
            break;
        if (result < 0) {
            if (err->code == ERROR_CONFLICT)
                result = superseded(reader, err);
            break;
        }
        if (reader->pin && ops->run_cut(reader->pin->run) && !reader->kept->is_gone) {
            if (!ops->sandbox_alive(reader->pin->run->sandbox)) {
                reader->dead = reader->pin->serial; /* go on with the next link */
                unpin_locked(reader);
                sessions_unlock(sessions);
                recover_doubt(sessions);
                sessions_lock(sessions);
                continue;
            }
            reader->kept->is_gone = true; /* the agent gave its output up */
        }
        result = finish_locked(reader, cancel, ret_chunk, err);
        break;
    }
    sessions_unlock(sessions);
    return result;
}

void run_reader_free(struct run_reader *reader)
{
    struct sessions *sessions;

    if (!reader)
        return;
    sessions = reader->session->owner;
    sessions_lock(sessions);
    if (reader->pin && reader->kept->reader == reader->number)
        sessions->provider->ops->run_leave(reader->pin->run, reader->is_complete ? 0 : HOLD_MS);
    unpin_locked(reader);
    kept_unref_locked(reader->kept);
    sessions_unlock(sessions);
    session_unref(reader->session);
    buf_done(&reader->held);
    free(reader);
}

int kept_read(struct session *session, struct kept_run *kept, const struct run_reader *place,
              const struct cancel *cancel, struct run_reader **ret_reader, struct error *err)
{
    struct sessions *sessions = session->owner;
    struct run_reader *reader = alloc_zero(sizeof *reader);
    int result;

    *reader = *place;
    reader->session = session;
    reader->kept = kept;
    reader->held = (struct buf)BUF_INIT(CHUNK_MAX);
    sessions_lock(sessions);
    reader->number = ++kept->reader;
    waitq_wake_all(&sessions->runs_changed);
    result = session_thaw_for_use_locked(session, cancel, err);
    if (result == 0)
        result = pin_locked(reader, cancel, err);
    if (result >= 0)
        leave_locked(reader);
    if (result == 0 && reader->wants_tail) { /* its output is gone */
        reader->wants_tail = false;
        reader->end = reader->at[0] = kept->exit.stdout_bytes;
    }
    sessions_unlock(sessions);
    if (result < 0) {
        run_reader_free(reader);
        return -1;
    }
    *ret_reader = reader;
    return 0;
}

int session_runs_read(struct sessions *sessions, const char *id, const char *run_id, uint64_t out_from,
                      uint64_t err_from, const struct cancel *cancel, struct run_reader **ret_reader, struct error *err)
{
    const struct run_reader place = {.at = {out_from, err_from}};
    auto_session struct session *session = NULL;
    struct kept_run *kept;

    if (kept_get(sessions, id, run_id, &session, &kept, err) < 0)
        return -1;
    return kept_read(take_ptr(session), kept, &place, cancel, ret_reader, err);
}

/* -- input -- */

/* Be the one that writes, with a link. NULL in *ret_pin: it has ended. Lock held, released meanwhile. */
static int writer_enter_locked(struct kept_run *kept, const struct cancel *cancel, struct run_handle **ret_pin,
                               struct error *err)
{
    struct sessions *sessions = kept->session->owner;
    struct cancel bounded = cancel_within(cancel, ATTACH_TIMEOUT_MS);

    while (kept->state != RUN_STATE_ENDED && (kept->in_write || !kept->handle))
        if (waitq_wait(&sessions->runs_changed, &sessions->lock, kept->in_write ? cancel : &bounded, err) < 0)
            return -1;
    *ret_pin = kept->state == RUN_STATE_ENDED ? NULL : handle_ref_locked(kept->handle);
    kept->in_write = *ret_pin != NULL;
    return 0;
}

int kept_stdin(struct kept_run *kept, const void *data, size_t size, bool eof, const struct cancel *cancel,
               struct error *err)
{
    struct sessions *sessions = kept->session->owner;
    struct run_handle *pin = NULL;
    int result;

    sessions_lock(sessions);
    result = session_thaw_for_use_locked(kept->session, cancel, err);
    if (result == 0)
        result = writer_enter_locked(kept, cancel, &pin, err);
    if (result == 0 && !pin)
        result = fail(err, GONE, "Run has ended: %s", kept->run_id);
    sessions_unlock(sessions);
    if (result == 0)
        result = sessions->provider->ops->run_stdin_write(pin->run, data, size, cancel, err);
    if (result < 0 && pin && err->code == ERROR_GONE)
        err->code = ERROR_UNAVAILABLE; /* the link is gone, not the run */
    if (result == 0 && eof)
        sessions->provider->ops->run_stdin_eof(pin->run);
    if (pin) {
        sessions_lock(sessions);
        kept->in_write = false;
        handle_unref_locked(sessions, pin);
        waitq_wake_all(&sessions->runs_changed);
        sessions_unlock(sessions);
    }
    return result;
}

int session_runs_stdin(struct sessions *sessions, const char *id, const char *run_id, const void *data, size_t size,
                       bool eof, const struct cancel *cancel, struct error *err)
{
    auto_session struct session *session = NULL;
    struct kept_run *kept;
    int result;

    if (kept_get(sessions, id, run_id, &session, &kept, err) < 0)
        return -1;
    result = kept_stdin(kept, data, size, eof, cancel, err);
    kept_put(sessions, kept);
    return result;
}
