/* Rows and waiting directories. */
#include "alloc.h"
#include "tree_private.h"

#include <string.h>

bool tree_error_ends_the_walk(const struct error *err)
{
    return err->code == ERROR_CANCELLED || err->code == ERROR_UNAVAILABLE || err->code == ERROR_TIMEOUT ||
           err->code == ERROR_GONE || err->code == ERROR_LIMIT || err->code == ERROR_ENGINE ||
           err->code == ERROR_TOO_LARGE;
}

bool tree_waiting_push(struct tree_waiting *waiting, const char *dir, const char *name)
{
    struct error full = ERROR_INIT;
    size_t before = waiting->paths.size;

    if (buf_append(&waiting->paths, "", 1, &full) == 0 && buf_append_str(&waiting->paths, dir, &full) == 0 &&
        (dir[0] == '\0' || name[0] == '\0' || buf_append(&waiting->paths, "/", 1, &full) == 0) &&
        buf_append(&waiting->paths, name, strlen(name) + 1, &full) == 0)
        return true;
    waiting->paths.size = before;
    return false;
}

char *tree_waiting_take_first(struct tree_waiting *waiting)
{
    char *path;

    if (waiting->first == waiting->paths.size)
        return NULL;
    path = alloc_str(waiting->paths.data + waiting->first + 1);
    waiting->first += strlen(path) + 2;
    if (waiting->first > waiting->paths.size / 2) {
        buf_consume(&waiting->paths, waiting->first);
        waiting->first = 0;
    }
    return path;
}

char *tree_waiting_take_last(struct tree_waiting *waiting)
{
    const char *start;
    size_t size = waiting->paths.size;

    if (size == 0)
        return NULL;
    start = memrchr(waiting->paths.data, '\0', size - 1); /* behind the NUL at its end is the one in front of it */
    waiting->paths.size = (size_t)(start - waiting->paths.data);
    return alloc_str(start + 1);
}

int tree_row_add(struct tree_row_list *list, const char *before, const char *middle, const char *name,
                 const struct workspace_entry *entry, struct error *err)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 128;
        struct tree_row *rows = reallocarray(list->rows, capacity, sizeof *rows);

        if (!rows)
            return fail(err, TOO_LARGE, "no memory for %zu entries", capacity);
        list->rows = rows;
        list->capacity = capacity;
    }
    list->rows[list->count++] = (struct tree_row){
        .is_dir = entry->is_dir, .size_bytes = entry->size_bytes, .mtime_unix_us = entry->mtime_unix_us};
    if (buf_append_str(&list->paths, before, err) < 0 || buf_append_str(&list->paths, middle, err) < 0 ||
        buf_append(&list->paths, name, strlen(name) + 1, err) < 0)
        return -1;
    return 0;
}

void tree_rows_finish(struct tree_row_list *list, struct tree_rows *ret)
{
    const char *path;

    ret->paths = buf_take(&list->paths, NULL);
    ret->rows = take_ptr(list->rows);
    ret->count = list->count;
    path = ret->paths;
    for (size_t i = 0; i < ret->count; i++) {
        const char *slash = strrchr(path, '/');

        ret->rows[i].path = path;
        ret->rows[i].name = slash ? slash + 1 : path;
        path += strlen(path) + 1;
    }
}

void tree_row_list_done(struct tree_row_list *list)
{
    free(list->rows);
    buf_done(&list->paths);
}

void tree_rows_done(struct tree_rows *rows)
{
    free(rows->rows);
    free(rows->paths);
    *rows = (struct tree_rows)TREE_ROWS_INIT;
}
