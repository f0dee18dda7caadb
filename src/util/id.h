/* util/id.h: the names of things: their patterns and how new ones are made. Never block. Threads: any. */
#ifndef BERTH_ID_H
#define BERTH_ID_H

#include <stdbool.h>
#include <stddef.h>

enum {
    ID_NAME_MAX = 64,  /* session id, tenant, alias */
    ID_RUN_BYTES = 32, /* hex digits of a run id */
};

/* ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$ over exactly `size` bytes: session ids and tenants (wires/sandboxd-current.md, 1.1). */
bool id_name_valid(const char *text, size_t size);

/* ^[0-9a-f]{32}$ */
bool id_run_valid(const char *text, size_t size);

/* `digits` random lower-case hex digits and a NUL into `out` (digits + 1 bytes), from the kernel. */
void id_random_hex(char *out, size_t digits);
void id_random_bytes(void *out, size_t size);

#endif
