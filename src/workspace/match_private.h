/* workspace/match_private.h: between match_basic.c, match_literal.c and match_grep.c. */
#ifndef BERTH_MATCH_PRIVATE_H
#define BERTH_MATCH_PRIVATE_H

#include "cleanup.h"
#include "match.h"

/* An expression and its translation: what a client may send, and what that can become. */
enum { PATTERN_MAX_BYTES = 64 * 1024, TRANSLATION_MAX_BYTES = 1024 * 1024 };

/* Append the longest run of printable ASCII that stands in every match, as far as is easily told; nothing when none is known. */
int match_grep_literal(enum match_syntax syntax, const char *pattern, size_t size, struct buf *out, struct error *err);

#endif
