/* util/size.h: sizes as people write them. */
#ifndef BERTH_SIZE_H
#define BERTH_SIZE_H

#include "error.h"

#include <stdint.h>

/* "512m", "1g", "1.5g", "1073741824", "64k", "2gb", "1GiB": bytes, as Docker's own tools read it (base 1024); 0 for NULL and
 * empty. INVALID otherwise, and for what is negative or over 2^63. Never blocks. */
int size_parse(const char *text, int64_t *ret_bytes, struct error *err);

#endif
