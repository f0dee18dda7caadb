/* util/base64.h: standard, padded base64 (RFC 4648, section 4), strict. Never blocks. */
#ifndef BERTH_BASE64_H
#define BERTH_BASE64_H

#include "buf.h"

int base64_encode(const void *data, size_t size, struct buf *out, struct error *err);
/* INVALID for any byte outside the alphabet, wrong padding, white space, bits behind the end. */
int base64_decode(const char *text, size_t size, struct buf *out, struct error *err);
/* URL-safe without padding (section 5): `out` holds 4 * ((size + 2) / 3) + 1 bytes. */
void base64_url(const void *data, size_t size, char *out);

#endif
