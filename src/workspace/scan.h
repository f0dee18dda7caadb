/* workspace/scan.h: finding literals and counting lines in memory, as fast as the machine reads. Pure functions over bytes. */
#ifndef BERTH_SCAN_H
#define BERTH_SCAN_H

#include <stdbool.h>
#include <stddef.h>

enum { SCAN_LITERALS_MAX = 16 };

/* What is looked for: any of some literals. Two bytes of each are compared sixteen places at a time, then the rest. */
struct scan {
    size_t count;
    const char *literals[SCAN_LITERALS_MAX]; /* borrowed */
    size_t sizes[SCAN_LITERALS_MAX];
    size_t first_at; /* which two, the same places in all of them */
    size_t second_at;
    size_t shortest;
};
/* One literal of any size > 0, or several of two bytes at least. */
void scan_init(struct scan *scan, const char *const *literals, const size_t *sizes, size_t count);
/* In time that grows with the bytes alone, whatever they are. The first place at or behind `at` where one of them begins; NULL. */
const char *scan_find(const struct scan *scan, const char *at, const char *end);
size_t scan_count_newlines(const char *at, const char *end);

#endif
