/* A tree inside as a struct tree_source: one run walks and streams, and who reads takes what it wants of it.
 *
 * The applet goes deep first, the directory met last first, as tree_glob() and tree_grep() do: what is opened next is further on in
 * the stream, behind what the reader passes over. When it is not, or there is much between (a hidden directory full of
 * objects), the walk is stopped and a new one begins where it is wanted. */
#include "session_inside_private.h"

#include "alloc.h"
#include "tree.h"

#include <errno.h>
#include <string.h>

enum { PASS_OVER_MAX_BYTES = 1024 * 1024 };

struct inside_tree {
    struct tree_source source;
    struct session_inside *inside;
    char *top;
    char *max_file_bytes; /* NULL: names only */

    struct applet applet; /* the walk; .run NULL: none */
    char *here;           /* below the top: the directory that was opened */
    struct file_record dir;
    char *dir_path;      /* below the top: a DIR that was taken and not opened yet; NULL: none */
    bool is_open;        /* entries of `here` come next */
    bool has_content;    /* the content of `name` comes next */
    struct buf name;     /* of the entry given out last */
    size_t passed_bytes; /* since the last that was wanted */
};

static struct inside_tree *tree_of(struct tree_source *source)
{
    return (struct inside_tree *)(void *)source;
}

static char *join(const char *path, const char *rest)
{
    size_t size = strlen(path);

    return alloc_format("%s%s%s", path, size && *rest && path[size - 1] != '/' ? "/" : "", rest);
}

/* -- the walk -- */

static void end_walk(struct inside_tree *tree)
{
    applet_done(&tree->applet);
    tree->is_open = tree->has_content = false;
    free(take_ptr(tree->dir_path));
}

static int begin_walk(struct inside_tree *tree, const char *path, struct error *err)
{
    const char *const arguments[] = {tree->top, path, tree->max_file_bytes, NULL};

    end_walk(tree);
    return applet_start(tree->inside, tree->max_file_bytes ? "feed" : "walk", arguments, false, &tree->applet, err);
}

/* The next record of the walk; one of a directory is put aside. 1, 0: the walk is over. */
static int next_record(struct inside_tree *tree, struct file_record *ret, struct error *err)
{
    int got = applet_next(&tree->applet, ret, err);

    if (got <= 0) {
        end_walk(tree);
        return got;
    }
    tree->passed_bytes += ret->size;
    if (ret->kind == FILE_RECORD_DONE || ret->kind == FILE_RECORD_SKIPPED)
        tree->has_content = false;
    if (ret->kind == FILE_RECORD_DIR) {
        tree->is_open = tree->has_content = false;
        tree->dir = *ret;
        free(tree->dir_path);
        tree->dir_path = alloc_str(ret->bytes);
    }
    return 1;
}

/* Go on until the directory comes. 1: it is put aside; 0: it does not come, or not soon. */
static int find_dir(struct inside_tree *tree, const char *path, struct error *err)
{
    struct file_record record;
    int got = 1;

    tree->passed_bytes = 0;
    while (got > 0 && tree->passed_bytes < PASS_OVER_MAX_BYTES) {
        if (tree->dir_path && strcmp(tree->dir_path, path) == 0)
            return 1;
        got = next_record(tree, &record, err);
    }
    return got < 0 ? -1 : 0;
}

static int inside_open(struct tree_source *source, const char *path, const struct cancel *cancel, struct error *err)
{
    struct inside_tree *tree = tree_of(source);
    int found = tree->applet.run ? find_dir(tree, path, err) : 0;

    tree->is_open = false;
    if (found < 0 || cancel_check(cancel, err) < 0)
        return -1;
    if (!found && (begin_walk(tree, path, err) < 0 || (found = find_dir(tree, path, err)) < 0))
        return -1;
    if (!found)
        return fail(err, ENGINE, "the sandbox's file applet begins with something else than was asked");
    free(take_ptr(tree->dir_path));
    if (tree->dir.sys_errno)
        return file_record_fail(tree->dir.sys_errno, err);
    free(tree->here);
    tree->here = alloc_str(path);
    tree->is_open = true;
    return 0;
}

static int give_entry(struct inside_tree *tree, const struct file_record *record, struct workspace_entry *ret,
                      struct error *err)
{
    if (record->size == 0)
        return fail(err, ENGINE, "the sandbox's file applet names an entry nothing");
    buf_clear(&tree->name);
    if (buf_append(&tree->name, record->bytes, record->size, err) < 0)
        return -1;
    tree->has_content = tree->max_file_bytes && record->type == FILE_TYPE_REGULAR;
    applet_entry(record, ret);
    ret->name = tree->name.data;
    return 1;
}

static int inside_next(struct tree_source *source, bool with_details, struct workspace_entry *ret,
                       const struct cancel *cancel, struct error *err)
{
    struct inside_tree *tree = tree_of(source);
    struct file_record record;

    while (tree->is_open) {
        bool was_content = tree->has_content;
        int got = next_record(tree, &record, err);

        if (got < 0)
            return -1;
        if (got == 0 || record.kind == FILE_RECORD_DIR)
            break;
        if (record.kind == FILE_RECORD_ENTRY)
            return give_entry(tree, &record, ret, err);
        if (record.kind == FILE_RECORD_SKIPPED && !was_content) { /* of the directory */
            tree->is_open = false;
            return file_record_fail(record.sys_errno, err);
        }
    }
    tree->is_open = false;
    return 0;
}

/* The content of the entry that was given out last, which is next in the stream. */
static int take_content(struct inside_tree *tree, struct buf *out, struct error *err)
{
    struct file_record record;
    int got;

    while ((got = next_record(tree, &record, err)) > 0) {
        if (record.kind == FILE_RECORD_DONE)
            return 0;
        if (record.kind == FILE_RECORD_SKIPPED)
            return file_record_fail(record.sys_errno, err);
        if (record.kind != FILE_RECORD_DATA)
            break;
        if (buf_append(out, record.bytes, record.size, err) < 0)
            return -1;
    }
    return got < 0 ? -1 : fail(err, ENGINE, "the sandbox's file applet leaves a file unfinished");
}

static int inside_read(struct tree_source *source, const char *name, struct buf *out, const struct cancel *cancel,
                       struct error *err)
{
    struct inside_tree *tree = tree_of(source);
    auto_free char *below = NULL;
    auto_free char *whole = NULL;

    if (tree->has_content && strcmp(buf_str(&tree->name), name) == 0)
        return take_content(tree, out, err);
    below = join(tree->here, name);
    whole = join(tree->top, below);
    return session_inside_read(tree->inside, whole, out, NULL, err);
}

static void inside_free(struct tree_source *source)
{
    struct inside_tree *tree = tree_of(source);

    end_walk(tree);
    free(tree->top);
    free(tree->max_file_bytes);
    free(tree->here);
    buf_done(&tree->name);
    free(tree);
}

int session_inside_tree(struct session_inside *inside, const char *top, size_t max_file_bytes,
                        struct tree_source **ret_source, struct error *err)
{
    static const struct tree_source_ops ops = {inside_open, inside_next, inside_read, inside_free};
    struct inside_tree *tree;

    if (!top[0])
        return error_set(err, ERROR_INVALID, EINVAL, "The path is empty");
    tree = alloc_zero(sizeof *tree);
    tree->source.ops = &ops;
    tree->inside = inside;
    tree->top = alloc_str(top);
    tree->max_file_bytes = max_file_bytes ? alloc_format("%zu", max_file_bytes) : NULL;
    tree->here = alloc_str("");
    tree->name = (struct buf)BUF_INIT(64 * 1024);
    *ret_source = &tree->source;
    return 0;
}
