#include "session_terminal.h"

#include "alloc.h"
#include "session_runs_private.h"

#include <assert.h>
#include <stdlib.h>

struct terminal {
    struct run_reader *reader; /* holds session and run */
};

static struct sessions *owner_of(const struct terminal *terminal)
{
    return terminal->reader->session->owner;
}

int session_terminal_enter(struct sessions *sessions, const char *id, const char *run_id, uint64_t tail_bytes,
                           const struct cancel *cancel, struct terminal **ret_terminal, uint64_t *ret_from,
                           uint64_t *ret_end, struct error *err)
{
    const struct run_reader place = {.wants_tail = true, .tail_bytes = tail_bytes};
    auto_session struct session *session = NULL;
    struct run_reader *reader;
    struct kept_run *kept;

    if (kept_get(sessions, id, run_id, &session, &kept, err) < 0)
        return -1;
    if (!kept->tty) {
        kept_put(sessions, kept);
        return fail(err, INVALID, "Run has no terminal: %s", run_id);
    }
    sessions_lock(sessions);
    session_touch_locked(session);
    sessions_unlock(sessions);
    if (kept_read(take_ptr(session), kept, &place, cancel, &reader, err) < 0)
        return -1;
    *ret_terminal = alloc_zero(sizeof **ret_terminal);
    (*ret_terminal)->reader = reader;
    *ret_from = reader->at[0];
    *ret_end = reader->end;
    return 0;
}

int terminal_next(struct terminal *terminal, const struct cancel *cancel, struct run_chunk *ret_chunk,
                  struct error *err)
{
    struct sessions *sessions = owner_of(terminal);
    int got = run_reader_next(terminal->reader, cancel, ret_chunk, err);

    if (got <= 0)
        return got;
    sessions_lock(sessions);
    session_touch_locked(terminal->reader->session);
    sessions_unlock(sessions);
    return got;
}

/* Only who sits there may touch it. Lock held. */
static int check_newest_locked(const struct terminal *terminal, struct error *err)
{
    const struct run_reader *reader = terminal->reader;

    if (reader->kept->reader != reader->number)
        return fail(err, CONFLICT, "Somebody else is at the terminal %s now", reader->kept->run_id);
    return 0;
}

int terminal_input(struct terminal *terminal, const void *data, size_t size, const struct cancel *cancel,
                   struct error *err)
{
    struct sessions *sessions = owner_of(terminal);
    int result;

    sessions_lock(sessions);
    result = check_newest_locked(terminal, err);
    if (result == 0)
        session_touch_locked(terminal->reader->session); /* so that it is not frozen while it is written to */
    sessions_unlock(sessions);
    return result < 0 ? -1 : kept_stdin(terminal->reader->kept, data, size, false, cancel, err);
}

int terminal_resize(struct terminal *terminal, unsigned rows, unsigned cols, struct error *err)
{
    int result;

    sessions_lock(owner_of(terminal));
    result = check_newest_locked(terminal, err);
    if (result == 0)
        kept_resize_locked(terminal->reader->kept, rows, cols);
    sessions_unlock(owner_of(terminal));
    return result;
}

int terminal_signal(struct terminal *terminal, int signal_number, struct error *err)
{
    int result;

    assert(signal_number > 0 && signal_number < 64);
    sessions_lock(owner_of(terminal));
    result = check_newest_locked(terminal, err);
    if (result == 0)
        kept_signal_locked(terminal->reader->kept, signal_number);
    sessions_unlock(owner_of(terminal));
    return result;
}

int terminal_stop(struct terminal *terminal, struct error *err)
{
    int result;

    sessions_lock(owner_of(terminal));
    result = check_newest_locked(terminal, err);
    if (result == 0)
        kept_stop_locked(terminal->reader->kept);
    sessions_unlock(owner_of(terminal));
    return result;
}

void terminal_view(struct terminal *terminal, struct run_view *ret)
{
    sessions_lock(owner_of(terminal));
    kept_view_locked(terminal->reader->kept, ret);
    sessions_unlock(owner_of(terminal));
}

void terminal_free(struct terminal *terminal)
{
    if (!terminal)
        return;
    run_reader_free(terminal->reader);
    free(terminal);
}
