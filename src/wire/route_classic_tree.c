/* Directories as the classic wire has them: ls, glob, grep. */
#include "alloc.h"
#include "wire_classic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    GREP_ANSWER_BYTES = 100000, /* of what grep would print: the wire's limit on the output of a command */
    GREP_FILE_BYTES = 32 * 1024 * 1024,
};

/* Without its slashes at the end, but for the root itself. */
static char *trimmed(struct wire_text path)
{
    size_t size = path.size;

    while (size > 1 && path.data[size - 1] == '/')
        size--;
    return alloc_str_n(path.data, size);
}

static struct wire_text text_of(const char *text)
{
    return (struct wire_text){text, strlen(text)};
}

static int record_count(struct wire_classic *classic, size_t count, const char *noun)
{
    char detail[40];

    (void)snprintf(detail, sizeof detail, "%zu %s", count, noun);
    wire_classic_done(classic, true, detail);
    return 0;
}

/* -- ls -- */

static int put_entries(struct wire_writer *writer, const char *shown, const struct workspace_list *list,
                       bool directories, struct error *err)
{
    auto_buf struct buf path = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    size_t prefix;

    if (buf_append_str(&path, strcmp(shown, "/") == 0 ? "" : shown, err) < 0 || buf_append_str(&path, "/", err) < 0)
        return -1;
    prefix = path.size;
    for (size_t i = 0; i < list->count; i++) {
        const struct workspace_entry *entry = &list->entries[i];

        if (entry->is_dir != directories)
            continue;
        path.size = prefix;
        if (buf_append_str(&path, entry->name, err) < 0)
            return -1;
        wire_put_file(writer, text_of(entry->name), (struct wire_text){path.data, path.size}, entry->is_dir,
                      entry->size_bytes, NULL);
    }
    return 0;
}

static int list_directory(struct wire_classic *classic, struct wire_text path, struct wire_writer *writer,
                          struct error *err)
{
    auto_workspace_list struct workspace_list list = WORKSPACE_LIST_INIT;
    auto_free char *shown = trimmed(path);

    wire_put_open(writer, NULL, '[');
    if (path.size && !wire_has_nul(path) &&
        session_classic_list(classic->operation, path.data, WIRE_LIST_MAX_ENTRIES, &list, err) < 0) {
        if (err->code == ERROR_TOO_LARGE)
            (void)fail(err, TOO_LARGE, "The directory holds more than %d entries", WIRE_LIST_MAX_ENTRIES);
        if (err->code == ERROR_TOO_LARGE || !wire_classic_is_told(err))
            return wire_classic_failed(classic, err);
        error_clear(err);
    }
    if (put_entries(writer, shown, &list, true, err) < 0 || put_entries(writer, shown, &list, false, err) < 0)
        return wire_classic_failed(classic, err);
    wire_put_close(writer, ']');
    return record_count(classic, list.count, "entries");
}

/* POST /sessions/{session_id}/ls: what is no directory has no entries. */
int route_classic_ls(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct wire_classic classic;
    struct wire_text path;

    (void)wire_read_text(&call->body, "path", WIRE_REQUIRED, &path);
    if (wire_refused(call, reply))
        return 0;
    if (wire_classic_begin(call, "ls", path, &classic, err) < 0)
        return -1;
    if (list_directory(&classic, path, &writer, err) < 0) {
        buf_done(&body);
        return -1;
    }
    return wire_reply_json(reply, &writer, err);
}

/* -- glob -- */

/* "", ".", "/" and blanks are the work dir. */
static bool is_work_dir(struct wire_text path)
{
    size_t i = 0;

    while (i < path.size && strchr(" \t\n\r\v\f", path.data[i]) && path.data[i])
        i++;
    return i == path.size || (path.size == 1 && (path.data[0] == '.' || path.data[0] == '/'));
}

static int find(struct wire_classic *classic, struct wire_text pattern, struct wire_text path, struct tree_rows *rows,
                struct error *err)
{
    auto_free char *shown = is_work_dir(path) ? alloc_str(".") : trimmed(path);
    const char *root = is_work_dir(path) ? "." : path.data;

    if (wire_has_nul(pattern) || wire_has_nul(path))
        return 0;
    if (session_classic_glob(classic->operation, root, shown, pattern.data, WIRE_LIST_MAX_ENTRIES, rows, err) == 0)
        return 0;
    if (!wire_classic_is_told(err))
        return -1;
    error_clear(err);
    return 0;
}

/* POST /sessions/{session_id}/glob: regular files by their whole path; a root that is none has nothing. */
int route_classic_glob(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_tree_rows struct tree_rows rows = TREE_ROWS_INIT;
    auto_buf struct buf target = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct wire_text path = {"/", 1};
    struct wire_classic classic;
    struct wire_text pattern;

    (void)wire_read_text(&call->body, "pattern", WIRE_REQUIRED, &pattern);
    (void)wire_read_text(&call->body, "path", WIRE_OPTIONAL, &path);
    if (wire_refused(call, reply))
        return 0;
    if (buf_append(&target, pattern.data, pattern.size, err) < 0 || buf_append_str(&target, " in ", err) < 0 ||
        buf_append(&target, path.data, path.size, err) < 0 ||
        wire_classic_begin(call, "glob", (struct wire_text){target.data, target.size}, &classic, err) < 0)
        return -1;
    if (find(&classic, pattern, path, &rows, err) < 0)
        return wire_classic_failed(&classic, err);
    (void)record_count(&classic, rows.count, "matches");
    wire_put_open(&writer, NULL, '[');
    for (size_t i = 0; i < rows.count; i++)
        wire_put_file(&writer, text_of(rows.rows[i].name), text_of(rows.rows[i].path), false, -1, NULL);
    wire_put_close(&writer, ']');
    return wire_reply_json(reply, &writer, err);
}

/* -- grep -- */

struct search {
    struct wire_text pattern;
    struct wire_text path;
    struct wire_text glob; /* .data NULL: none */
    bool ignore_hidden;
    struct tree_hits hits;
    struct buf error; /* in words; empty: none */
};

static void search_done(struct search *search)
{
    tree_hits_done(&search->hits);
    buf_done(&search->error);
}

static inline void cleanup_expression(struct match_grep **expression)
{
    match_grep_free(*expression);
}

/* What grep says when it gives up. */
static int explain_grep(struct search *search, const char *path, const char *words, struct error *err)
{
    if (path)
        return buf_append_format(&search->error, err, "Error: grep: %s: %s\n", path, words);
    return buf_append_format(&search->error, err, "Error: grep: %s\n", words);
}

/* A search that is not whole is not given out as one. */
static int judge(struct search *search, struct error *err)
{
    struct tree_hits *hits = &search->hits;

    if (hits->unreadable > 0)
        return buf_append_format(&search->error, err, "Error: grep: %zu files or directories cannot be read\n",
                                 hits->unreadable);
    if (hits->truncated && hits->count == 0)
        return buf_append_format(&search->error, err, "Error: grep: files over %d bytes were not searched\n",
                                 GREP_FILE_BYTES);
    return 0;
}

static int search_below(const struct wire_classic *classic, struct search *search, struct error *err)
{
    auto_cleanup(cleanup_expression) struct match_grep *expression = NULL;
    auto_free char *shown = search->path.size ? trimmed(search->path) : alloc_str(".");
    struct tree_grep grep = {.shown = shown,
                             .name_glob = search->glob.data,
                             .ignore_hidden = search->ignore_hidden,
                             .max_bytes = GREP_ANSWER_BYTES,
                             .max_line_bytes = GREP_ANSWER_BYTES,
                             .max_file_bytes = GREP_FILE_BYTES};
    const char *about = NULL;
    char words[96];

    if (wire_has_nul(search->path) || (search->glob.data && wire_has_nul(search->glob)))
        return explain_grep(search, NULL, "a NUL in a name", err);
    if (match_grep_new(MATCH_BASIC, search->pattern.data, search->pattern.size, &expression, err) == 0) {
        about = shown;
        grep.expression = expression;
        if (session_classic_grep(classic->operation, search->path.size ? search->path.data : ".", &grep, &search->hits,
                                 err) == 0)
            return judge(search, err);
    }
    if (!wire_classic_is_told(err))
        return -1;
    if (!about) {
        struct error wrong = *err;

        error_clear(err);
        return explain_grep(search, NULL, wrong.text, err);
    } else {
        struct error wrong = *err;

        error_clear(err);
        return explain_grep(search, wrong.code == ERROR_TIMEOUT ? NULL : about,
                            wire_classic_words(classic, &wrong, words), err);
    }
}

static void put_hits(struct wire_writer *writer, const struct search *search)
{
    const struct tree_hits *hits = &search->hits;

    wire_put_open(writer, NULL, '{');
    wire_put_open(writer, "matches", '[');
    for (size_t i = 0; search->error.size == 0 && i < hits->count; i++) {
        wire_put_open(writer, NULL, '{');
        wire_put_raw(writer, "\"path\":");
        wire_put_str(writer, NULL, hits->hits[i].path);
        wire_put_raw(writer, ",\"line_number\":");
        wire_put_int(writer, NULL, hits->hits[i].line_number);
        wire_put_raw(writer, ",\"line\":");
        wire_put_text(writer, NULL, hits->hits[i].line, hits->hits[i].line_size);
        wire_put_raw(writer, "}");
    }
    wire_put_close(writer, ']');
    wire_put_str(writer, "error", search->error.size ? buf_str(&search->error) : NULL);
    wire_put_close(writer, '}');
}

/* POST /sessions/{session_id}/grep */
int route_classic_grep(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_cleanup(search_done) struct search search = {
        .ignore_hidden = true, .hits = TREE_HITS_INIT, .error = BUF_INIT(WIRE_ANSWER_MAX_BYTES)};
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct wire_classic classic;

    (void)wire_read_text(&call->body, "pattern", WIRE_REQUIRED, &search.pattern);
    (void)wire_read_text(&call->body, "path", WIRE_NULLABLE, &search.path);
    (void)wire_read_text(&call->body, "glob", WIRE_NULLABLE, &search.glob);
    (void)wire_read_bool(&call->body, "ignore_hidden", WIRE_OPTIONAL, &search.ignore_hidden);
    if (wire_refused(call, reply))
        return 0;
    if (wire_classic_begin(call, "grep", search.pattern, &classic, err) < 0)
        return -1;
    if (search_below(&classic, &search, err) < 0)
        return wire_classic_failed(&classic, err);
    if (search.error.size)
        wire_classic_done(&classic, false, buf_str(&search.error));
    else
        (void)record_count(&classic, search.hits.count, "matches");
    put_hits(&writer, &search);
    return wire_reply_json(reply, &writer, err);
}
