/* workspace/text.h: bytes of a file to lines of text, as the wire's reads want them (wires/sandboxd-current.md 4.8,
 * classic 4).
 *
 * Decoding: BOM (UTF-8, UTF-16, UTF-32) -> that encoding, BOM dropped; valid UTF-8 -> that; a known text extension ->
 * Latin-1; else NUL or bad bytes -> binary (INVALID "[Binary File]"). A PDF is refused. Lines end as Python's str.splitlines() has it:
 * LF, CRLF, CR, VT, FF, FS, GS, RS, NEL, U+2028, U+2029. Pure functions over bytes.
 */
#ifndef BERTH_TEXT_H
#define BERTH_TEXT_H

#include "buf.h"

#include <stdint.h>

/* UTF-8 into `out`. `name` decides by its extension. */
int text_decode(const char *name, const char *data, size_t size, struct buf *out, struct error *err);

/* Lines [offset, offset + limit) of UTF-8 text joined by LF; more left: "\n\n[... N more lines. Use offset=M to read
 * more.]"; offset >= line count: "[End of file]". Offsets and limits are unbounded integers: anything over INT64_MAX is
 * passed as that. */
int text_slice(const char *text, size_t size, int64_t offset, int64_t limit, struct buf *out, struct error *err);

#endif
