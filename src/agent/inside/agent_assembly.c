#include "agent_assembly.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ASSEMBLIES_MAX = 4 };

struct assembly {
    uint32_t run; /* 0: free */
    size_t size;
    size_t capacity;
    unsigned char *bytes;
};

static struct assembly assemblies[ASSEMBLIES_MAX];
static struct assembly whole; /* given out by the last call */

static void clear(struct assembly *assembly)
{
    free(assembly->bytes);
    *assembly = (struct assembly){0};
}

void agent_assembly_clear(void)
{
    clear(&whole);
    for (size_t i = 0; i < ASSEMBLIES_MAX; i++)
        clear(&assemblies[i]);
}

static struct assembly *find(uint32_t run)
{
    for (size_t i = 0; i < ASSEMBLIES_MAX; i++)
        if (assemblies[i].run == run)
            return &assemblies[i];
    return NULL;
}

/* Doubling, so that many small frames cost no more than one large. */
static int add(struct assembly *assembly, const unsigned char *bytes, size_t size)
{
    if (size > AGENT_START_MAX - assembly->size)
        return E2BIG;
    if (assembly->size + size > assembly->capacity) {
        size_t capacity = 2 * assembly->capacity;
        unsigned char *larger;

        if (capacity < assembly->size + size)
            capacity = assembly->size + size;
        larger = realloc(assembly->bytes, capacity);
        if (!larger)
            return ENOMEM;
        assembly->bytes = larger;
        assembly->capacity = capacity;
    }
    memcpy(assembly->bytes + assembly->size, bytes, size);
    assembly->size += size;
    return 0;
}

int agent_assembly_add(const struct agent_header *header, const unsigned char *payload, const unsigned char **ret_bytes,
                       size_t *ret_size, int *ret_errno)
{
    struct assembly *assembly = find(header->run);
    int error;

    clear(&whole);
    if (assembly && header->offset == 0)
        clear(assembly); /* begun anew */
    if (header->offset == 0 && !(header->flags & AGENT_FLAG_MORE)) {
        *ret_bytes = payload;
        *ret_size = header->length;
        return 1;
    }
    assembly = find(header->run);
    if (!assembly && header->offset == 0)
        assembly = find(0);
    if (!assembly) {
        *ret_errno = header->offset ? EPROTO : EAGAIN;
        return -1;
    }
    assembly->run = header->run;
    error = header->offset == assembly->size ? add(assembly, payload, header->length) : EPROTO;
    if (error) {
        clear(assembly);
        *ret_errno = error;
        return -1;
    }
    if (header->flags & AGENT_FLAG_MORE)
        return 0;
    whole = *assembly;
    *assembly = (struct assembly){0};
    *ret_bytes = whole.bytes;
    *ret_size = whole.size;
    return 1;
}
