/* workspace/edit.h: the wire's edit: one string for another. Pure functions over bytes. */
#ifndef BERTH_EDIT_H
#define BERTH_EDIT_H

#include "buf.h"

#include <stdbool.h>
#include <stdint.h>

/* Count non-overlapping occurrences of `old`; an empty one is found before every character and at the end, as Python has it. */
int64_t edit_count(const char *text, size_t size, const char *old, size_t old_size);

/* Append the text with the first occurrence replaced, or `all` of them; only the matched bytes change. TOO_LARGE. */
int edit_replace(const char *text, size_t size, const char *old, size_t old_size, const char *new, size_t new_size,
                 bool all, struct buf *out, struct error *err);

#endif
