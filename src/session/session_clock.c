/* A clock that is set: times of sessions move along, so that nobody is closed, or kept, for it.
 *
 * Within a boot, time that passed is told by CLOCK_BOOTTIME, which goes on while no broker runs. Over a boot only the wall clock is left:
 * a time in the future counts as now, and nobody is closed in the first moments after a start. */
#include "session_private.h"

#include "clock.h"
#include "fd.h"
#include "log.h"

#include <fcntl.h>
#include <string.h>

enum { JUMP_MS = 1000 };

static void read_boot(char boot[40])
{
    auto_close int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, boot, 39);

    boot[size < 0 ? 0 : size] = '\0';
    boot[strcspn(boot, "\n")] = '\0';
}

static int64_t ahead_ms(void)
{
    return clock_unix_ms() - clock_boot_ms();
}

static bool is_jump(int64_t shift_ms)
{
    return shift_ms >= JUMP_MS || shift_ms <= -JUMP_MS;
}

int clock_load(struct sessions *sessions, struct error *err)
{
    char boot[40];
    int64_t before_ms;
    int64_t shift_ms;

    read_boot(sessions->boot);
    sessions->started_mono_us = clock_mono_us();
    sessions->clock_ahead_ms = ahead_ms();
    if (store_clock_get(sessions->store, boot, &before_ms, err) < 0)
        return -1;
    shift_ms = sessions->clock_ahead_ms - before_ms;
    if (strcmp(boot, sessions->boot) != 0)
        return store_clock_put(sessions->store, sessions->boot, sessions->clock_ahead_ms, 0, err);
    if (!is_jump(shift_ms)) {
        sessions->clock_ahead_ms = before_ms;
        return 0;
    }
    log_warn("clock.jumped", log_i("ms", shift_ms));
    return store_clock_put(sessions->store, sessions->boot, sessions->clock_ahead_ms, shift_ms, err);
}

static void move_locked(struct sessions *sessions)
{
    int64_t now_unix_us = clock_unix_us();
    int64_t now_mono_us = clock_mono_us();

    for (struct session *session = sessions->order_first; session; session = session->order_next) {
        session->last_activity_unix_us = now_unix_us - (now_mono_us - session->last_activity_mono_us);
        session->activity_unsaved = true;
    }
}

void clock_look(struct sessions *sessions)
{
    int64_t now_ms = ahead_ms();
    int64_t shift_ms = now_ms - sessions->clock_ahead_ms;
    struct error err = ERROR_INIT;

    if (!is_jump(shift_ms))
        return;
    log_warn("clock.jumped", log_i("ms", shift_ms));
    if (store_clock_put(sessions->store, sessions->boot, now_ms, shift_ms, &err) < 0) {
        log_warn("clock.not_noted", log_e(&err)); /* tried again at the next tick */
        return;
    }
    sessions->clock_ahead_ms = now_ms;
    sessions_lock(sessions);
    move_locked(sessions);
    sessions_unlock(sessions);
}
