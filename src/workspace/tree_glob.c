/* Files by the name of their path. */
#include "alloc.h"
#include "tree_private.h"

#include <string.h>

struct globbing {
    struct tree_source *source;
    const struct cancel *cancel;
    const char *shown;   /* of the start, with its slash */
    const char *pattern; /* of whole paths */
    size_t skip;         /* bytes of `path` that `shown` stands for */
    bool hide_dot;       /* rows without the "./" that they were matched with */
    size_t max_entries;
    bool truncated;
    unsigned long seen;
    struct tree_row_list found;
    struct tree_waiting waiting;
    struct buf full; /* the path being looked at */
};

static void globbing_done(struct globbing *globbing)
{
    tree_row_list_done(&globbing->found);
    tree_waiting_done(&globbing->waiting);
    buf_done(&globbing->full);
}

/* A regular file. `directory` is its directory below the start, with a slash behind, or "". */
static int look_at(struct globbing *globbing, const char *directory, const struct workspace_entry *entry,
                   struct error *err)
{
    buf_clear(&globbing->full);
    if (buf_append_str(&globbing->full, globbing->shown, err) < 0 ||
        buf_append_str(&globbing->full, directory, err) < 0 || buf_append_str(&globbing->full, entry->name, err) < 0)
        return -1;
    if (!match_glob(globbing->pattern, buf_str(&globbing->full)))
        return 0;
    if (globbing->found.count == globbing->max_entries) {
        globbing->truncated = true;
        return 0;
    }
    return tree_row_add(&globbing->found, globbing->hide_dot ? "" : globbing->shown, directory, entry->name, entry,
                        err);
}

static int read_directory(struct globbing *globbing, const char *path, struct error *err)
{
    auto_free char *directory = NULL;
    const char *rest = path + globbing->skip;
    struct workspace_entry entry;
    int more;

    rest += *rest == '/';
    directory = alloc_format("%s%s", rest, *rest ? "/" : "");
    while ((more = globbing->source->ops->next(globbing->source, false, &entry, globbing->cancel, err)) > 0) {
        if (++globbing->seen % TREE_CANCEL_EVERY == 0 && cancel_check(globbing->cancel, err) < 0)
            return -1;
        if (entry.is_dir && !tree_waiting_push(&globbing->waiting, path, entry.name))
            globbing->truncated = true;
        if (entry.is_regular && look_at(globbing, directory, &entry, err) < 0)
            return -1;
        if (globbing->truncated && globbing->found.count == globbing->max_entries)
            return 0;
    }
    return more;
}

static int by_path(const void *left, const void *right)
{
    return strcmp(((const struct tree_row *)left)->path, ((const struct tree_row *)right)->path);
}

static int walk(struct globbing *globbing, const char *start, struct error *err)
{
    char *taken;

    if (globbing->source->ops->open(globbing->source, start, globbing->cancel, err) < 0 ||
        read_directory(globbing, start, err) < 0)
        return -1;
    while ((taken = tree_waiting_take_last(&globbing->waiting)) != NULL) {
        auto_free char *path = taken;
        struct error trouble = ERROR_INIT;

        if (globbing->truncated && globbing->found.count == globbing->max_entries)
            return 0;
        if (globbing->source->ops->open(globbing->source, path, globbing->cancel, &trouble) == 0 &&
            read_directory(globbing, path, &trouble) == 0)
            continue;
        if (tree_error_ends_the_walk(&trouble)) {
            *err = trouble;
            return -1;
        }
        globbing->truncated = true;
    }
    return 0;
}

int tree_glob(struct tree_source *source, const char *path, const char *shown, const char *pattern, size_t max_entries,
              const struct cancel *cancel, struct tree_rows *ret, struct error *err)
{
    size_t shown_size = strlen(shown);
    auto_free char *prefix = alloc_format("%s%s", shown, shown_size && shown[shown_size - 1] == '/' ? "" : "/");
    auto_free char *whole = alloc_format("*/%s", strncmp(pattern, "**/", 3) == 0 ? pattern + 3 : pattern);
    auto_cleanup(globbing_done) struct globbing globbing = {
        .source = source,
        .cancel = cancel,
        .shown = prefix,
        .pattern = whole,
        .skip = strlen(path),
        .hide_dot = strcmp(shown, ".") == 0,
        .max_entries = max_entries,
        .found = TREE_ROW_LIST_INIT,
        .waiting = TREE_WAITING_INIT,
        .full = BUF_INIT(TREE_WAITING_MAX_BYTES),
    };

    if (cancel_check(cancel, err) < 0 || walk(&globbing, path, err) < 0)
        return -1;
    tree_rows_finish(&globbing.found, ret);
    ret->truncated = globbing.truncated;
    if (ret->count)
        qsort(ret->rows, ret->count, sizeof *ret->rows, by_path);
    return 0;
}
