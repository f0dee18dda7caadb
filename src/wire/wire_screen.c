#include "wire_screen.h"

#include <stdio.h>

/* The first two are set after a reset (WIRE_SCREEN_RESET). The other screens come before what is set on them. */
static const uint16_t modes[] = {7,    25,   47,   1047, 1049, 1,    5,    6,    9,
                                 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 2004};
enum { MODE_COUNT = sizeof modes / sizeof modes[0], NUMBERS_MAX = 8, NUMBER_MAX = 9999 };

enum state { PLAIN, ESCAPE, SEQUENCE, PRIVATE, OTHER };

static void set_mode(struct wire_screen *screen, unsigned number, bool is_set)
{
    for (unsigned i = 0; i < MODE_COUNT; i++) {
        if (modes[i] != number)
            continue;
        if (is_set)
            screen->modes |= 1u << i;
        else
            screen->modes &= ~(1u << i);
    }
}

static enum state begin_escape(struct wire_screen *screen, unsigned char c)
{
    if (c == '[') {
        screen->count = 0;
        screen->numbers[0] = 0;
        return SEQUENCE;
    }
    if (c == 'c')
        *screen = (struct wire_screen)WIRE_SCREEN_INIT;
    if (c == '=' || c == '>')
        screen->keypad = c == '=';
    return PLAIN;
}

static enum state take_private(struct wire_screen *screen, unsigned char c)
{
    uint16_t *number = &screen->numbers[screen->count];

    if (c >= '0' && c <= '9') {
        *number = (uint16_t)(*number * 10 + (c - '0') > NUMBER_MAX ? NUMBER_MAX : *number * 10 + (c - '0'));
        return PRIVATE;
    }
    if (c == ';') {
        if (screen->count == NUMBERS_MAX - 1)
            return OTHER;
        screen->numbers[++screen->count] = 0;
        return PRIVATE;
    }
    if (c == 'h' || c == 'l')
        for (unsigned i = 0; i <= screen->count; i++)
            set_mode(screen, screen->numbers[i], c == 'h');
    return c >= 0x40 && c <= 0x7e ? PLAIN : OTHER;
}

static enum state next_state(struct wire_screen *screen, unsigned char c)
{
    if (c == 0x1b)
        return ESCAPE;
    if (c == 0x18 || c == 0x1a) /* cancelled */
        return PLAIN;
    if (c < 0x20) /* carried out where it stands */
        return (enum state)screen->state;
    switch ((enum state)screen->state) {
    case PLAIN:
        return PLAIN;
    case ESCAPE:
        return begin_escape(screen, c);
    case SEQUENCE:
        if (c == '?')
            return PRIVATE;
        return c >= 0x40 && c <= 0x7e ? PLAIN : OTHER;
    case PRIVATE:
        return take_private(screen, c);
    case OTHER:
        return c >= 0x40 && c <= 0x7e ? PLAIN : OTHER;
    }
    return PLAIN;
}

void wire_screen_scan(struct wire_screen *screen, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        screen->state = (uint8_t)next_state(screen, (unsigned char)data[i]);
}

size_t wire_screen_modes(const struct wire_screen *screen, char out[static WIRE_SCREEN_MODES_BYTES])
{
    uint32_t changed = screen->modes ^ WIRE_SCREEN_RESET;
    size_t size = 0;

    for (unsigned i = 0; i < MODE_COUNT; i++)
        if (changed & 1u << i)
            size += (size_t)snprintf(out + size, WIRE_SCREEN_MODES_BYTES - size, "\033[?%u%c", modes[i],
                                     screen->modes & 1u << i ? 'h' : 'l');
    if (screen->keypad)
        size += (size_t)snprintf(out + size, WIRE_SCREEN_MODES_BYTES - size, "\033=");
    return size;
}
