/* util/clock.h: the only clocks. Never block. Threads: any.
 *
 * Wall time for people and the store, monotonic time for deadlines. Tests shift the wall clock by a file named in
 * BERTH_TEST_CLOCK (milliseconds, read again whenever its mtime changes), never by setting the machine's: one number is a clock that
 * was set; the same number twice is time that passed.
 */
#ifndef BERTH_CLOCK_H
#define BERTH_CLOCK_H

#include <stdint.h>

int64_t clock_unix_ms(void); /* since 1970, plus the test offset */
int64_t clock_unix_us(void);
int64_t clock_mono_ms(void); /* CLOCK_MONOTONIC: what deadlines are made of */
int64_t clock_mono_us(void);
int64_t clock_boot_ms(void); /* CLOCK_BOOTTIME: goes on while the machine sleeps and while no broker runs */

#endif
