/* util/map.h: strings to pointers, in a hash table. Keys are copied, values borrowed. Threads: one owner (lock outside). */
#ifndef BERTH_MAP_H
#define BERTH_MAP_H

#include <stddef.h>

struct map_entry;
struct map {
    struct map_entry **buckets;
    size_t bucket_count;
    size_t count;
};

#define MAP_INIT   \
    {              \
        NULL, 0, 0 \
    }

void *map_get(const struct map *map, const char *key);        /* NULL: not there */
void *map_put(struct map *map, const char *key, void *value); /* returns what it replaced, or NULL */
void *map_remove(struct map *map, const char *key);           /* returns what was there, or NULL */
void map_each(const struct map *map, void (*visit)(void *value, void *context), void *context);
void map_done(struct map *map);

#endif
