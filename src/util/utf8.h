/* util/utf8.h: checking and mending UTF-8 (RFC 3629). Never blocks. */
#ifndef BERTH_UTF8_H
#define BERTH_UTF8_H

#include "buf.h"

#include <stdbool.h>
#include <stdint.h>

/* Length of the valid prefix; == size if all is valid. Surrogates, overlong forms and values over U+10FFFF are invalid. */
size_t utf8_valid_prefix(const char *text, size_t size);
bool utf8_valid(const char *text, size_t size);

/* Append `text` with U+FFFD for each maximal bad subpart, as Python's errors="replace" does. */
int utf8_append_lossy(struct buf *out, const char *text, size_t size, struct error *err);

/* Decode one character of valid UTF-8 at `text`; *ret_size its bytes. For invalid input returns 0xFFFD and the size of
 * the maximal bad subpart (at least 1). `size` >= 1. */
uint32_t utf8_next(const char *text, size_t size, size_t *ret_size);
size_t utf8_encode(uint32_t character, char out[4]);

/* Number of characters of valid UTF-8. */
size_t utf8_count(const char *text, size_t size);

/* Bytes of the first `characters` characters (all, if there are fewer). */
size_t utf8_offset(const char *text, size_t size, size_t characters);

#endif
