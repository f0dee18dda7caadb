/* util/alloc.h: small allocations that cannot fail. Out of memory aborts (the supervisor restarts us); anything a client
 * can size goes through a capped struct buf instead. Results are zeroed and freed with free(). Threads: any. */
#ifndef BERTH_ALLOC_H
#define BERTH_ALLOC_H

#include <stddef.h>

void *alloc_zero(size_t size) __attribute__((malloc, returns_nonnull));
void *alloc_array(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
/* As realloc(); the new part is not set. */
void *alloc_grow(void *memory, size_t count, size_t size) __attribute__((returns_nonnull));
char *alloc_str(const char *text); /* NULL stays NULL */
char *alloc_str_n(const char *text, size_t size) __attribute__((malloc, returns_nonnull));
char *alloc_format(const char *format, ...) __attribute__((format(printf, 1, 2), malloc, returns_nonnull));

#endif
