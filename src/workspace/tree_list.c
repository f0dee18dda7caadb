/* The archive's tree: breadth first. */
#include "tree_private.h"

#include <string.h>

struct listing {
    struct tree_source *source;
    const struct cancel *cancel;
    size_t max_entries;
    bool truncated;
    unsigned long seen;
    struct tree_row_list found;
    struct tree_waiting level; /* directories of the depth we are at, in order */
    struct tree_waiting next_level;
};

static void listing_done(struct listing *listing)
{
    tree_row_list_done(&listing->found);
    tree_waiting_done(&listing->level);
    tree_waiting_done(&listing->next_level);
}

static int directories_first(const void *left, const void *right)
{
    const struct tree_row *one = left;
    const struct tree_row *other = right;

    return one->is_dir != other->is_dir ? (int)other->is_dir - (int)one->is_dir : strcmp(one->name, other->name);
}

/* As many entries of the open directory as there is room for: whatever comes first. */
static int read_directory(struct listing *listing, struct tree_row_list *batch, struct error *err)
{
    struct workspace_entry entry;
    int more;

    while ((more = listing->source->ops->next(listing->source, true, &entry, listing->cancel, err)) > 0) {
        if (++listing->seen % TREE_CANCEL_EVERY == 0 && cancel_check(listing->cancel, err) < 0)
            return -1;
        if (entry.is_link)
            continue;
        if (listing->found.count + batch->count == listing->max_entries) {
            listing->truncated = true;
            return 0;
        }
        if (tree_row_add(batch, "", "", entry.name, &entry, err) < 0)
            return -1;
    }
    return more;
}

static int keep(struct listing *listing, const char *path, bool descend, const struct tree_rows *rows,
                struct error *err)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct tree_row *row = &rows->rows[i];
        const struct workspace_entry entry = {
            .is_dir = row->is_dir, .size_bytes = row->size_bytes, .mtime_unix_us = row->mtime_unix_us};

        if (tree_row_add(&listing->found, path, path[0] ? "/" : "", row->name, &entry, err) < 0)
            return -1;
        if (row->is_dir && (!descend || !tree_waiting_push(&listing->next_level, path, row->name)))
            listing->truncated = true;
    }
    return 0;
}

/* One directory, whole or (on an error) nothing of it. */
static int list_directory(struct listing *listing, const char *path, bool descend, struct error *err)
{
    struct tree_row_list batch = TREE_ROW_LIST_INIT;
    auto_tree_rows struct tree_rows rows = TREE_ROWS_INIT;
    int done = read_directory(listing, &batch, err);

    tree_rows_finish(&batch, &rows);
    if (rows.count)
        qsort(rows.rows, rows.count, sizeof *rows.rows, directories_first);
    if (done == 0)
        return keep(listing, path, descend, &rows, err);
    return -1;
}

static int list_below(struct listing *listing, unsigned max_depth, struct error *err)
{
    for (unsigned depth = 2; listing->next_level.paths.size; depth++) {
        struct tree_waiting done = listing->level;
        char *taken;

        listing->level = listing->next_level;
        listing->next_level = done;
        while ((taken = tree_waiting_take_first(&listing->level)) != NULL) {
            auto_free char *path = taken;
            struct error trouble = ERROR_INIT;

            if (cancel_check(listing->cancel, err) < 0)
                return -1;
            if (listing->source->ops->open(listing->source, path, listing->cancel, &trouble) == 0 &&
                list_directory(listing, path, depth < max_depth, &trouble) == 0) {
                if (listing->truncated && listing->found.count == listing->max_entries)
                    return 0;
                continue;
            }
            if (tree_error_ends_the_walk(&trouble)) {
                *err = trouble;
                return -1;
            }
            listing->truncated = true;
        }
    }
    return 0;
}

int tree_list(struct tree_source *source, const char *path, unsigned max_depth, size_t max_entries,
              const struct cancel *cancel, struct tree_rows *ret, struct error *err)
{
    auto_cleanup(listing_done) struct listing listing = {
        .source = source,
        .cancel = cancel,
        .max_entries = max_entries,
        .found = TREE_ROW_LIST_INIT,
        .level = TREE_WAITING_INIT,
        .next_level = TREE_WAITING_INIT,
    };

    if (cancel_check(cancel, err) < 0 || source->ops->open(source, path, cancel, err) < 0 ||
        list_directory(&listing, path, max_depth > 1, err) < 0 || list_below(&listing, max_depth, err) < 0)
        return -1;
    tree_rows_finish(&listing.found, ret);
    ret->truncated = listing.truncated;
    return 0;
}
