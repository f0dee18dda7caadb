/* Modes of a terminal, found in what was written to it. */
#include "wire_screen.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

/* In pieces of every size, the same is found. */
static void expect(const char *written, const char *modes)
{
    const size_t size = strlen(written);

    for (size_t piece = 1; piece <= size + 1; piece++) {
        struct wire_screen screen = WIRE_SCREEN_INIT;
        char out[WIRE_SCREEN_MODES_BYTES];
        size_t made;

        for (size_t at = 0; at < size; at += piece)
            wire_screen_scan(&screen, written + at, size - at < piece ? size - at : piece);
        made = wire_screen_modes(&screen, out);
        cr_assert(eq(sz, made, strlen(modes)), "%s: %.*s", written + 1, (int)made, out);
        cr_assert(memcmp(out, modes, made) == 0, "%s", written + 1);
    }
}

Test(screen, finds_what_is_set_and_forgets_what_is_set_back)
{
    expect("plain text\r\n", "");
    expect("\033[?1049h\033[22;0;0t", "\033[?1049h");
    expect("\033[?2004h$ vim\r\n\033[?2004l\033[?1049h\033[?1h\033=\033[?25l", "\033[?25l\033[?1049h\033[?1h\033=");
    expect("\033[?1049h\033[?1049l", "");
    expect("\033[?1000;1006h", "\033[?1000h\033[?1006h");
    expect("\033[?7l", "\033[?7l");
    expect("\033[?1049h\033=\033c", "");
}

Test(screen, is_not_misled)
{
    expect("\033[1049h", "");   /* not private */
    expect("[?1049h", "");      /* no escape */
    expect("\033[?1049$p", ""); /* a question */
    expect("\033[?10\030"
           "49h",
           "");                                                  /* cancelled */
    expect("\033[?10\r49h", "\033[?1049h");                      /* a control within, as terminals have it */
    expect("\033[?1;2;3;4;5;6;7;8;9;1049h", "");                 /* more than anybody sends */
    expect("\033[?99999999999999999999h\033[?25l", "\033[?25l"); /* no such number */
    expect("\033[?\033[?1049h", "\033[?1049h");
    expect("\033[", "");
    expect("\033", "");
}

Test(screen, fits_all_at_once)
{
    struct wire_screen screen = {.modes = ~(uint32_t)WIRE_SCREEN_RESET, .keypad = true};
    char out[WIRE_SCREEN_MODES_BYTES];

    cr_assert(lt(sz, wire_screen_modes(&screen, out), sizeof out));
}
