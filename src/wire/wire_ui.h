/* wire/wire_ui.h: the files of the page, as the build of ui/ left them in this program.
 *
 * Made by ui/embed.mjs. Without Node, or with --without-ui, there are none. All of it is static.
 */
#ifndef BERTH_WIRE_UI_H
#define BERTH_WIRE_UI_H

#include <stdbool.h>
#include <stddef.h>

struct wire_ui_bytes {
    const char *data;
    size_t size; /* 0: there is no such form of it */
};

struct wire_ui_file {
    const char *name; /* "index.html": the page itself */
    const char *type;
    const char *digest; /* of the plain bytes, in hex */
    bool is_hashed;     /* the name changes with the bytes: it may be kept for ever */
    struct wire_ui_bytes plain, gzip, brotli;
};

extern const struct wire_ui_file wire_ui_files[];
extern const size_t wire_ui_file_count;

#endif
