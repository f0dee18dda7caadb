/* Searching files: windows of whole lines, one file open, results within bounds. */
#include "search.h"

#include "alloc.h"
#include "scan.h"
#include "utf8.h"
#include "walk.h"
#include "workspace_jail.h"
#include "workspace_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

enum {
    WINDOW_BYTES = 256 * 1024,
    LINE_MAX_BYTES = 4 * 1024 * 1024, /* a longer line is searched to here */
    SLOW_LINES_MAX = 20,              /* lines on which the expression ran away, before the search is given up */
    CANCEL_EVERY = 64,
    HELPERS_MAX = 3,
    STACK_BYTES = 2 * 1024 * 1024, /* the expressions' matcher takes some of it */
    CONTEXT_BYTES = 64,            /* shown before a match far inside a long line */
};

/* What the threads of one search share. */
struct shared {
    const struct search *search;
    const struct cancel *cancel;
    struct workspace *workspace;
    pthread_mutex_t lock; /* of the walk and the glob */
    struct walk *walk;
    atomic_size_t hits;
    atomic_bool over;
};

/* One thread's part. */
struct searching {
    struct shared *shared;
    const struct search *search;
    const struct cancel *cancel;
    struct search_pattern *pattern;
    struct search_result result;
    unsigned long passed;  /* entries that are no files to search */
    struct buf shown_path; /* of the file, as it is told */
    size_t path_at;        /* of it in the results; SIZE_MAX: not there yet */
    unsigned slow_lines;
    char *window;
    size_t window_size;
};

void search_result_done(struct search_result *result)
{
    free(result->hits);
    buf_done(&result->text);
    *result = (struct search_result){.hits = NULL};
}

static void end(struct searching *searching, const char *why)
{
    searching->result.truncated = why;
    atomic_store(&searching->shared->over, true);
}

static bool is_over(const struct searching *searching)
{
    return atomic_load_explicit(&searching->shared->over, memory_order_relaxed);
}

/* The part of a long line that is shown: it holds the beginning of the match. */
static void cut_line(const struct search *search, const char **line, size_t *size, size_t column)
{
    size_t skip = column > search->max_line_bytes / 2 ? column - CONTEXT_BYTES : 0;

    if (column < CONTEXT_BYTES)
        skip = 0;
    while (skip && skip < *size && ((unsigned char)(*line)[skip] & 0xc0) == 0x80)
        skip--; /* to the beginning of a character */
    *line += skip;
    *size -= skip;
    if (*size > search->max_line_bytes) {
        size_t whole = utf8_valid_prefix(*line, search->max_line_bytes);

        *size = whole > search->max_line_bytes - 4 ? whole : search->max_line_bytes;
    }
}

static void add_hit(struct searching *searching, const char *line, size_t size, size_t column, int64_t number)
{
    struct search_result *result = &searching->result;
    struct search_hit hit = {.number = number, .column = (int64_t)column + 1};
    struct error err = ERROR_INIT;
    size_t whole = size;

    if (atomic_fetch_add(&searching->shared->hits, 1) >= searching->search->max_hits) {
        end(searching, "matches");
        return;
    }
    if (size > searching->search->max_line_bytes)
        cut_line(searching->search, &line, &size, column);
    if (searching->path_at == SIZE_MAX) {
        searching->path_at = result->text.size;
        (void)buf_append(&result->text, buf_str(&searching->shown_path), searching->shown_path.size + 1, &err);
    }
    hit.path = searching->path_at;
    hit.line = result->text.size;
    hit.line_size = size;
    hit.cut = size < whole;
    if (buf_append(&result->text, line, size, &err) < 0 || buf_append(&result->text, "", 1, &err) < 0 ||
        err.code != ERROR_NONE) {
        end(searching, "bytes");
        return;
    }
    if (result->count == result->capacity)
        result->hits = alloc_grow(result->hits, result->capacity = result->capacity ? result->capacity * 2 : 64,
                                  sizeof *result->hits);
    result->hits[result->count++] = hit;
}

/* Whole lines; *number is that of the first, and then of the one behind the last. */
static void search_lines(struct searching *searching, const char *at, const char *stop, int64_t *number)
{
    const char *counted = at;
    const char *line;
    size_t size;
    size_t column;
    struct error err = ERROR_INIT;
    int found;

    while (at < stop && !is_over(searching) &&
           (found = search_pattern_next(searching->pattern, at, stop, &line, &size, &column, &err)) != 0) {
        if (found < 0 && ++searching->slow_lines >= SLOW_LINES_MAX)
            end(searching, "steps");
        if (found < 0)
            searching->result.truncated = "steps";
        *number += (int64_t)scan_count_newlines(counted, line);
        counted = line;
        if (found > 0)
            add_hit(searching, line, size, column, *number);
        at = line + size + 1;
    }
    *number += (int64_t)scan_count_newlines(counted, stop);
}

/* More of the file behind the `kept` bytes of an unfinished line: the count of all, or -1. Makes room for long lines. */
static ssize_t fill_window(struct searching *searching, int fd, size_t kept, bool *ret_at_end)
{
    ssize_t got;

    if (kept == searching->window_size && kept < LINE_MAX_BYTES) {
        searching->window_size *= 2;
        searching->window = alloc_grow(searching->window, searching->window_size, 1);
    }
    do {
        got = read(fd, searching->window + kept, searching->window_size - kept);
    } while (got < 0 && errno == EINTR);
    *ret_at_end = got == 0;
    return got < 0 ? -1 : (ssize_t)kept + got;
}

static void search_open_file(struct searching *searching, int fd)
{
    struct error err = ERROR_INIT;
    int64_t number = 1;
    size_t kept = 0;
    bool skips = false; /* the rest of a line that was too long */
    bool at_end = false;

    while (!at_end && !is_over(searching)) {
        ssize_t size = fill_window(searching, fd, kept, &at_end);
        char *window = searching->window;
        const char *begin = window;
        const char *stop;

        if (size < 0) {
            searching->result.unreadable++;
            return;
        }
        if (cancel_check(searching->cancel, &err) < 0) {
            end(searching, err.code == ERROR_TIMEOUT ? "deadline" : "cancelled");
            return;
        }
        if (memchr(window + kept, '\0', (size_t)size - kept)) {
            searching->result.binary++;
            return;
        }
        if (skips) {
            begin = memchr(window, '\n', (size_t)size);
            kept = 0;
            if (!begin)
                continue;
            skips = false;
        }
        stop = at_end ? window + size : memrchr(begin, '\n', (size_t)(window + size - begin));
        if (!stop && (size_t)size >= LINE_MAX_BYTES) {
            searching->result.truncated = "long line";
            skips = true;
            stop = window + size;
        } else if (!stop) {
            kept = (size_t)size;
            continue;
        } else if (!at_end) {
            stop++;
        }
        search_lines(searching, begin, stop, &number);
        kept = (size_t)(window + size - stop);
        memmove(window, stop, kept);
    }
}

static void search_regular(struct searching *searching, int fd)
{
    searching->result.files++;
    searching->path_at = SIZE_MAX;
    search_open_file(searching, fd);
}

/* The next file of the walk, opened, with its path in shown_path; -1: none that can be read, -2: there is none any more. */
static int next_file(struct searching *searching)
{
    struct shared *shared = searching->shared;
    const struct search *search = searching->search;
    struct walk_entry entry;
    struct error err = ERROR_INIT;
    struct stat status;
    auto_close int fd = -1;

    if (!walk_next(shared->walk, &entry))
        return -2;
    searching->result.unreadable += entry.trouble != 0 && entry.trouble != ENOENT;
    if (entry.type != DT_REG || entry.trouble || (search->glob && !search_glob_matches(search->glob, entry.path)))
        return -1;
    fd = openat(entry.dir_fd, entry.name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0) {
        searching->result.unreadable += errno != ENOENT && errno != ELOOP && errno != ENXIO;
        return -1;
    }
    buf_clear(&searching->shown_path);
    if (!S_ISREG(status.st_mode) || buf_append_format(&searching->shown_path, &err, "%s%s%s", search->path,
                                                      search->path[0] ? "/" : "", entry.path) < 0)
        return -1;
    return take_fd(&fd);
}

static void search_tree(struct searching *searching)
{
    struct shared *shared = searching->shared;
    struct error err = ERROR_INIT;

    while (!is_over(searching)) {
        auto_close int fd = -1;

        (void)pthread_mutex_lock(&shared->lock);
        fd = next_file(searching);
        (void)pthread_mutex_unlock(&shared->lock);
        if (fd == -2)
            return;
        if (fd >= 0)
            search_regular(searching, fd);
        else if (++searching->passed % CANCEL_EVERY == 0 && cancel_check(searching->cancel, &err) < 0)
            end(searching, err.code == ERROR_TIMEOUT ? "deadline" : "cancelled");
    }
}

/* The start is one file. */
static int search_start(struct searching *searching, struct error *err)
{
    const char *path = searching->search->path;
    auto_close int fd = workspace_jail_open(searching->shared->workspace->fd, path, O_RDONLY | O_NONBLOCK);
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0)
        return workspace_fail(searching->shared->workspace, err, "cannot open the file");
    if (!S_ISREG(status.st_mode))
        return error_set(err, ERROR_HANDOVER, ENXIO, "is a special file");
    if (buf_append_str(&searching->shown_path, path, err) < 0)
        return -1;
    search_regular(searching, fd);
    return 0;
}

/* -- threads -- */

static struct searching *searching_new(struct shared *shared, bool is_first)
{
    struct searching *searching = alloc_zero(sizeof *searching);

    searching->shared = shared;
    searching->search = shared->search;
    searching->cancel = shared->cancel;
    searching->pattern = is_first ? shared->search->pattern : search_pattern_share(shared->search->pattern);
    searching->result.text.max = shared->search->max_bytes;
    searching->shown_path.max = 32u * 1024 * 1024;
    searching->window = alloc_array(WINDOW_BYTES, 1);
    searching->window_size = WINDOW_BYTES;
    return searching;
}

static void searching_free(struct searching *searching)
{
    if (searching->pattern != searching->search->pattern)
        search_pattern_free(searching->pattern);
    search_result_done(&searching->result);
    buf_done(&searching->shown_path);
    free(searching->window);
    free(searching);
}

static void *help(void *context)
{
    struct searching *searching = context;
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    struct error err = ERROR_INIT;

    if (workspace_identity_enter(searching->shared->workspace, &guard, &err) == 0)
        search_tree(searching);
    return NULL;
}

static void add_result(struct search_result *all, const struct search_result *part)
{
    size_t base = all->text.size;
    struct error err = ERROR_INIT;

    all->files += part->files;
    all->binary += part->binary;
    all->unreadable += part->unreadable;
    if (part->truncated)
        all->truncated = part->truncated;
    if (part->count == 0)
        return;
    if (buf_append(&all->text, part->text.data, part->text.size, &err) < 0) {
        all->truncated = "bytes";
        return;
    }
    all->hits = alloc_grow(all->hits, all->capacity = all->count + part->count, sizeof *all->hits);
    for (size_t i = 0; i < part->count; i++) {
        struct search_hit hit = part->hits[i];

        hit.path += base;
        hit.line += base;
        all->hits[all->count++] = hit;
    }
}

static int by_place(const void *left, const void *right, void *text)
{
    const struct search_hit *one = left;
    const struct search_hit *two = right;
    int order = one->path == two->path ? 0 : strcmp((char *)text + one->path, (char *)text + two->path);

    return order ? order : (one->number > two->number) - (one->number < two->number);
}

/* As many as there are processors, some at most: one search must not take all of a large machine. */
static unsigned helper_count(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);

    return online < 2 ? 0 : online > HELPERS_MAX ? HELPERS_MAX : (unsigned)online - 1;
}

static void search_by_all(struct shared *shared, struct searching *own)
{
    struct searching *helpers[HELPERS_MAX];
    pthread_t threads[HELPERS_MAX];
    pthread_attr_t attributes;
    unsigned count = 0;

    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (unsigned wanted = helper_count(); count < wanted; count++) {
        helpers[count] = searching_new(shared, false);
        if (pthread_create(&threads[count], &attributes, help, helpers[count]) != 0) {
            searching_free(helpers[count]);
            break;
        }
    }
    (void)pthread_attr_destroy(&attributes);
    search_tree(own);
    for (unsigned i = 0; i < count; i++) {
        (void)pthread_join(threads[i], NULL);
        add_result(&own->result, &helpers[i]->result);
        searching_free(helpers[i]);
    }
}

static int search_all(struct shared *shared, struct searching *own, struct error *err)
{
    if (walk_new(shared->workspace, shared->search->path, &shared->walk, err) == 0) {
        search_by_all(shared, own);
        walk_free(shared->walk);
        return 0;
    }
    if (err->sys_errno != ENOTDIR)
        return -1;
    error_clear(err);
    return search_start(own, err);
}

int search_run(struct workspace *workspace, const struct search *search, const struct cancel *cancel,
               struct search_result *ret, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    struct shared shared = {
        .search = search, .cancel = cancel, .workspace = workspace, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct searching *own;
    int result;

    if (workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    own = searching_new(&shared, true);
    result = search_all(&shared, own, err);
    if (result == 0) {
        *ret = own->result;
        own->result = (struct search_result){.hits = NULL};
        if (ret->count)
            qsort_r(ret->hits, ret->count, sizeof *ret->hits, by_place, ret->text.data);
    }
    searching_free(own);
    return result;
}

/* -- names -- */

void find_result_done(struct find_result *result)
{
    for (size_t i = 0; i < result->count; i++)
        free(result->entries[i].path);
    free(result->entries);
    *result = (struct find_result){.entries = NULL};
}

static int by_path(const void *left, const void *right)
{
    return strcmp(((const struct found_entry *)left)->path, ((const struct found_entry *)right)->path);
}

static void add_entry(struct find_result *result, size_t *capacity, const char *start, const struct walk_entry *entry)
{
    struct found_entry *added;
    struct stat status;

    if (fstatat(entry->dir_fd, entry->name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
        return; /* gone meanwhile */
    if (result->count == *capacity)
        result->entries =
            alloc_grow(result->entries, *capacity = *capacity ? *capacity * 2 : 64, sizeof *result->entries);
    added = &result->entries[result->count++];
    *added = (struct found_entry){
        .path = alloc_format("%s%s%s", start, start[0] ? "/" : "", entry->path),
        .type = IFTODT(status.st_mode),
        .mode = status.st_mode & 07777,
        .size_bytes = status.st_size,
        .mtime_unix_us = (int64_t)status.st_mtim.tv_sec * 1000000 + status.st_mtim.tv_nsec / 1000,
    };
}

int find_run(struct workspace *workspace, const char *path, struct search_glob *glob, unsigned max_depth,
             size_t max_entries, const struct cancel *cancel, struct find_result *ret, struct error *err)
{
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    struct error ended = ERROR_INIT;
    struct walk_entry entry;
    struct walk *walk;
    size_t capacity = 0;

    *ret = (struct find_result){.entries = NULL};
    if (workspace_identity_enter(workspace, &guard, err) < 0 || walk_new(workspace, path, &walk, err) < 0)
        return -1;
    while (walk_next(walk, &entry)) {
        if (cancel_check(cancel, &ended) < 0) {
            ret->truncated = ended.code == ERROR_TIMEOUT ? "deadline" : "cancelled";
            break;
        }
        if (entry.trouble) {
            ret->unreadable += entry.trouble != ENOENT;
            continue;
        }
        if (entry.type == DT_DIR && entry.depth >= max_depth)
            walk_prune(walk);
        if (glob && !search_glob_matches(glob, entry.path))
            continue;
        if (ret->count == max_entries) {
            ret->truncated = "entries";
            break;
        }
        add_entry(ret, &capacity, path, &entry);
    }
    walk_free(walk);
    if (ret->count)
        qsort(ret->entries, ret->count, sizeof *ret->entries, by_path);
    return 0;
}
