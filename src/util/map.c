#include "map.h"

#include "alloc.h"
#include "id.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct map_entry {
    struct map_entry *next;
    uint64_t hash;
    void *value;
    char key[];
};

enum { FIRST_BUCKETS = 64 };

static uint64_t seed;

static void make_seed(void)
{
    id_random_bytes(&seed, sizeof seed);
}

/* FNV-1a from a secret start: clients choose the keys. */
static uint64_t hash_of(const char *key)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t hash;

    (void)pthread_once(&once, make_seed);
    hash = seed;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 0x100000001b3ULL;
    return hash ^ hash >> 29;
}

static struct map_entry **find(const struct map *map, const char *key, uint64_t hash)
{
    struct map_entry **link = &map->buckets[hash & (map->bucket_count - 1)];

    while (*link && ((*link)->hash != hash || strcmp((*link)->key, key) != 0))
        link = &(*link)->next;
    return link;
}

static void grow(struct map *map)
{
    size_t bucket_count = map->bucket_count ? map->bucket_count * 2 : FIRST_BUCKETS;
    struct map_entry **buckets = alloc_array(bucket_count, sizeof(struct map_entry *));

    for (size_t i = 0; i < map->bucket_count; i++) {
        struct map_entry *next;

        for (struct map_entry *entry = map->buckets[i]; entry; entry = next) {
            struct map_entry **bucket = &buckets[entry->hash & (bucket_count - 1)];

            next = entry->next;
            entry->next = *bucket;
            *bucket = entry;
        }
    }
    free(map->buckets);
    map->buckets = buckets;
    map->bucket_count = bucket_count;
}

void *map_get(const struct map *map, const char *key)
{
    struct map_entry **link = map->count ? find(map, key, hash_of(key)) : NULL;

    return link && *link ? (*link)->value : NULL;
}

void *map_put(struct map *map, const char *key, void *value)
{
    uint64_t hash = hash_of(key);
    struct map_entry **link;
    void *old = NULL;

    if (map->count >= map->bucket_count)
        grow(map);
    link = find(map, key, hash);
    if (*link) {
        old = (*link)->value;
    } else {
        *link = alloc_zero(sizeof **link + strlen(key) + 1);
        (*link)->hash = hash;
        memcpy((*link)->key, key, strlen(key) + 1);
        map->count++;
    }
    (*link)->value = value;
    return old;
}

void *map_remove(struct map *map, const char *key)
{
    struct map_entry **link = map->count ? find(map, key, hash_of(key)) : NULL;
    struct map_entry *entry;
    void *value;

    if (!link || !*link)
        return NULL;
    entry = *link;
    value = entry->value;
    *link = entry->next;
    free(entry);
    map->count--;
    return value;
}

void map_each(const struct map *map, void (*visit)(void *value, void *context), void *context)
{
    for (size_t i = 0; i < map->bucket_count; i++) {
        struct map_entry *next;

        for (struct map_entry *entry = map->buckets[i]; entry; entry = next) {
            next = entry->next;
            visit(entry->value, context);
        }
    }
}

void map_done(struct map *map)
{
    for (size_t i = 0; i < map->bucket_count; i++) {
        struct map_entry *next;

        for (struct map_entry *entry = map->buckets[i]; entry; entry = next) {
            next = entry->next;
            free(entry);
        }
    }
    free(map->buckets);
    *map = (struct map)MAP_INIT;
}
