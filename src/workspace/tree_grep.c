/* Lines by what they hold. */
#include "alloc.h"
#include "tree_grep_private.h"
#include "utf8.h"

#include <inttypes.h>
#include <string.h>

struct grepping grepping_start(struct tree_source *source, const struct tree_grep *grep, const struct cancel *cancel,
                               struct tree_hits *hits)
{
    return (struct grepping){
        .source = source,
        .grep = grep,
        .cancel = cancel,
        .hits = hits,
        .text = BUF_INIT(grep->max_bytes + grep->max_bytes / 2 + 64 * 1024 * 1024),
        .waiting = TREE_WAITING_INIT,
        .content = BUF_INIT(grep->max_file_bytes),
        .decoded = BUF_INIT(2 * grep->max_file_bytes),
    };
}

void grepping_done(struct grepping *grepping)
{
    buf_done(&grepping->text);
    tree_waiting_done(&grepping->waiting);
    buf_done(&grepping->content);
    buf_done(&grepping->decoded);
}

void tree_hits_done(struct tree_hits *hits)
{
    free(hits->hits);
    for (size_t i = 0; i < TREE_HITS_TEXTS; i++)
        free(hits->texts[i]);
    *hits = (struct tree_hits)TREE_HITS_INIT;
}

void grepping_pass_over(struct grepping *grepping, const struct error *why)
{
    if (grepping->hits->unreadable++ == 0)
        grepping->first_trouble = *why;
}

/* The line as it is given: cut at a character, with a mark, when it is too long. */
static int append_line(struct grepping *grepping, const struct match_line *line, size_t *ret_size, struct error *err)
{
    size_t start = grepping->text.size;
    size_t size = line->size;

    if (size > grepping->grep->max_line_bytes)
        size = utf8_valid_prefix(line->line, grepping->grep->max_line_bytes);
    if (buf_append(&grepping->text, line->line, size, err) < 0)
        return -1;
    if (size < line->size) {
        grepping->hits->truncated = true;
        if (buf_append_format(&grepping->text, err, "[... %zu more bytes]", line->size - size) < 0)
            return -1;
    }
    *ret_size = grepping->text.size - start;
    return buf_append(&grepping->text, "", 1, err);
}

/* Sets `full` instead of adding what has no room any more. */
static int add_hit(struct grepping *grepping, const char *path, const struct match_line *line, struct error *err)
{
    struct tree_hits *hits = grepping->hits;
    struct tree_hit hit = {.line_number = line->number, .order = grepping->seen + 1};
    size_t line_size = line->size < grepping->grep->max_line_bytes ? line->size : grepping->grep->max_line_bytes;
    size_t printed = strlen(path) + line_size + (size_t)snprintf(NULL, 0, ":%" PRId64 ":\n", line->number);

    if (printed > grepping->grep->max_bytes - grepping->printed_bytes) {
        grepping->full = hits->truncated = true;
        hits->full_at = hit.order;
        return 0;
    }
    grepping->printed_bytes += hit.printed_bytes = printed;
    if (hits->count == grepping->capacity)
        hits->hits = alloc_grow(hits->hits, grepping->capacity = grepping->capacity ? grepping->capacity * 2 : 64,
                                sizeof *hits->hits);
    if (buf_append(&grepping->text, path, strlen(path) + 1, err) < 0 ||
        append_line(grepping, line, &hit.line_size, err) < 0)
        return -1;
    hits->hits[hits->count++] = hit;
    return 0;
}

/* How a file below the top is shown. Caller frees. */
static char *shown_path(const struct tree_grep *grep, const char *path)
{
    const char *rest = path + strlen(grep->path);
    size_t size = strlen(grep->shown);

    rest += *rest == '/';
    if (!*rest)
        return alloc_str(grep->shown); /* the start itself */
    return alloc_format("%s%s%s", grep->shown, size && grep->shown[size - 1] == '/' ? "" : "/", rest);
}

/* The current file's text. `directory` and `name` tell its path below the top. */
static int search_text(struct grepping *grepping, const char *directory, const char *name, const char *text,
                       size_t size, struct error *err)
{
    auto_free char *shown = NULL; /* most files have no hit, and need none */
    struct match_line line;
    int more;

    match_grep_start(grepping->grep->expression, text, size);
    while ((more = match_grep_next(grepping->grep->expression, grepping->cancel, &line, err)) > 0) {
        if (!shown) {
            auto_free char *path = alloc_format("%s%s%s", directory, *directory ? "/" : "", name);

            shown = shown_path(grepping->grep, path);
        }
        if (add_hit(grepping, shown, &line, err) < 0)
            return -1;
        if (grepping->full)
            return 0;
    }
    return more;
}

int grepping_file(struct grepping *grepping, const char *directory, const char *name, struct error *err)
{
    struct error trouble = ERROR_INIT;
    const char *text;
    size_t size;

    if (grepping->grep->name_glob && !match_glob(grepping->grep->name_glob, name))
        return 0;
    buf_clear(&grepping->content);
    buf_clear(&grepping->decoded);
    if (grepping->source->ops->read(grepping->source, name, &grepping->content, grepping->cancel, &trouble) < 0) {
        if (trouble.code == ERROR_TOO_LARGE)
            grepping->hits->truncated = true;
        else if (tree_error_ends_the_walk(&trouble))
            return *err = trouble, -1;
        else if (trouble.code != ERROR_NOT_FOUND) /* it went away meanwhile */
            grepping_pass_over(grepping, &trouble);
        return 0;
    }
    if (!match_grep_can_match(grepping->grep->expression, buf_str(&grepping->content), grepping->content.size))
        return 0;
    if (match_grep_text(name, buf_str(&grepping->content), grepping->content.size, &grepping->decoded, &text, &size,
                        &trouble) < 0) {
        grepping->hits->truncated |= trouble.code == ERROR_TOO_LARGE;
        return 0;
    }
    return search_text(grepping, directory, name, text, size, err);
}

static int search_directory(struct grepping *grepping, const char *path, struct error *err)
{
    struct workspace_entry entry;
    int more;

    while (!grepping->full &&
           (more = grepping->source->ops->next(grepping->source, false, &entry, grepping->cancel, err)) != 0) {
        if (more < 0 || (++grepping->seen % TREE_CANCEL_EVERY == 0 && cancel_check(grepping->cancel, err) < 0))
            return -1;
        if (grepping->grep->ignore_hidden && entry.name[0] == '.')
            continue;
        if (entry.is_dir && !tree_waiting_push(&grepping->waiting, path, entry.name))
            grepping->hits->truncated = true;
        if (entry.is_regular && grepping_file(grepping, path, entry.name, err) < 0)
            return -1;
    }
    return 0;
}

/* The start is one file: it is read by way of its directory. */
static int search_start_file(struct grepping *grepping, struct error *err)
{
    const char *path = grepping->grep->path;
    const char *slash = strrchr(path, '/');
    auto_free char *parent = slash ? alloc_str_n(path, (size_t)(slash - path)) : alloc_str("");
    const char *name = slash ? slash + 1 : path;

    if (grepping->source->ops->open(grepping->source, parent, grepping->cancel, err) < 0)
        return -1;
    if (grepping_file(grepping, parent, name, err) < 0)
        return -1;
    if (grepping->hits->unreadable) {
        *err = grepping->first_trouble;
        return -1;
    }
    return 0;
}

static int walk(struct grepping *grepping, struct error *err)
{
    char *taken;

    if (grepping->source->ops->open(grepping->source, grepping->grep->path, grepping->cancel, err) < 0) {
        if (err->code != ERROR_INVALID)
            return -1;
        error_clear(err);
        return search_start_file(grepping, err);
    }
    if (search_directory(grepping, grepping->grep->path, err) < 0)
        return -1;
    while (!grepping->full && (taken = tree_waiting_take_last(&grepping->waiting)) != NULL) {
        auto_free char *path = taken;
        struct error trouble = ERROR_INIT;

        if (grepping->source->ops->open(grepping->source, path, grepping->cancel, &trouble) == 0 &&
            search_directory(grepping, path, &trouble) == 0)
            continue;
        if (tree_error_ends_the_walk(&trouble)) {
            *err = trouble;
            return -1;
        }
        if (trouble.code != ERROR_NOT_FOUND)
            grepping_pass_over(grepping, &trouble);
    }
    return 0;
}

void grepping_finish(struct grepping *grepping)
{
    struct tree_hits *hits = grepping->hits;
    const char *at;

    hits->code = grepping->first_trouble.code;
    hits->texts[0] = buf_take(&grepping->text, NULL);
    at = hits->texts[0];
    for (size_t i = 0; i < hits->count; i++) {
        hits->hits[i].path = at;
        hits->hits[i].line = at += strlen(at) + 1;
        at += hits->hits[i].line_size + 1;
    }
}

int tree_grep(struct tree_source *source, const struct tree_grep *grep, const struct cancel *cancel,
              struct tree_hits *ret, struct error *err)
{
    auto_tree_hits struct tree_hits hits = TREE_HITS_INIT;
    auto_cleanup(grepping_done) struct grepping grepping = grepping_start(source, grep, cancel, &hits);

    if (cancel_check(cancel, err) < 0 || walk(&grepping, err) < 0)
        return -1;
    grepping_finish(&grepping);
    *ret = hits;
    hits = (struct tree_hits)TREE_HITS_INIT;
    return 0;
}
