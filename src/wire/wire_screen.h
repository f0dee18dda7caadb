/* wire/wire_screen.h: which modes of a terminal the bytes written to it have set, so that a replay which begins later can set them first.
 *
 * Looks at DEC private modes (other screen, cursor keys, mouse, pasted text, cursor shown …), the keypad's and full resets only. Hostile
 * input: any bytes, in any pieces. Never blocks, owns nothing. Source: XTerm Control Sequences.
 */
#ifndef BERTH_WIRE_SCREEN_H
#define BERTH_WIRE_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_SCREEN_MODES_BYTES = 256 };

struct wire_screen {
    uint32_t modes; /* bits of the table in wire_screen.c */
    bool keypad;
    /* of a sequence that has begun */
    uint8_t state;
    uint8_t count;
    uint16_t numbers[8];
};
/* As a terminal is after its reset. */
#define WIRE_SCREEN_INIT           \
    {                              \
        .modes = WIRE_SCREEN_RESET \
    }
enum { WIRE_SCREEN_RESET = 3 }; /* lines are wrapped, the cursor is shown */

void wire_screen_scan(struct wire_screen *screen, const char *data, size_t size);
/* What brings a terminal from its reset to these modes. Returns its size. */
size_t wire_screen_modes(const struct wire_screen *screen, char out[static WIRE_SCREEN_MODES_BYTES]);

#endif
