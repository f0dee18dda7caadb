/* A search by as many threads as there are processors: one walk, from which each takes a few files at a time, so that none waits for
 * another that is slower; then their hits, in the walk's order. */
#include "alloc.h"
#include "match.h"
#include "tree_grep_private.h"
#include "walk.h"
#include "workspace_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum {
    THREADS_MAX = TREE_HITS_TEXTS,
    FILES_MAX = 32,                /* taken at once */
    STACK_BYTES = 2 * 1024 * 1024, /* the expressions' matcher takes some of it */
};

/* What the threads of one search share. */
struct shared {
    struct workspace *workspace;
    const struct tree_grep *grep;
    const struct cancel *cancel;
    pthread_mutex_t lock;    /* of all below */
    struct walk *walk;       /* NULL: it is over, or the search is */
    struct walk_entry entry; /* told by the walk and not taken yet, if has_entry */
    bool has_entry;
    unsigned long seen;
};

/* One thread's part. */
struct part {
    struct tree_source source; /* reads files of dir_fd, and nothing else */
    struct shared *shared;
    struct tree_grep grep; /* with an expression of its own */
    struct tree_hits hits;
    struct grepping grepping;
    int result;
    struct error err;
    pthread_t thread;
    /* The files taken last: of one directory. */
    int dir_fd;           /* -1: none */
    struct buf directory; /* its path below the workspace */
    size_t count;
    struct buf names;
    size_t name_at[FILES_MAX];
    unsigned long seen[FILES_MAX]; /* entries of the walk before it */
};

/* -- taking files from the walk, under its lock -- */

static int meet_trouble(struct part *part, int number)
{
    struct error trouble = ERROR_INIT;

    if (number == ENOMEM) { /* too many directories wait */
        part->hits.truncated = true;
        return 0;
    }
    errno = number;
    (void)workspace_fail(part->shared->workspace, &trouble, "cannot open the directory");
    if (tree_error_ends_the_walk(&trouble))
        return part->err = trouble, -1;
    if (trouble.code != ERROR_NOT_FOUND) /* it went away meanwhile */
        grepping_pass_over(&part->grepping, &trouble);
    return 0;
}

/* Does the entry lie where the files lie that were taken already? */
static bool lies_beside(const struct part *part, const char *directory, size_t size)
{
    return part->directory.size == size && memcmp(buf_str(&part->directory), directory, size) == 0;
}

/* 1 taken, 0 it is of another directory than those before it. */
static int take_file(struct part *part, const struct walk_entry *entry, struct error *err)
{
    size_t size = (size_t)(entry->name - entry->path);

    size -= size > 0; /* the slash */
    if (part->count > 0 && !lies_beside(part, entry->path, size))
        return 0;
    if (part->count == 0) {
        buf_clear(&part->directory);
        part->dir_fd = fcntl(entry->dir_fd, F_DUPFD_CLOEXEC, 0);
        if (part->dir_fd < 0)
            return fail_errno(err, "dup");
        if (buf_append(&part->directory, entry->path, size, err) < 0)
            return -1;
    }
    part->name_at[part->count] = part->names.size;
    part->seen[part->count++] = part->shared->seen;
    return buf_append(&part->names, entry->name, strlen(entry->name) + 1, err) < 0 ? -1 : 1;
}

/* 1 the entry is done with, 0 it waits for the next who takes files, -1. */
static int take_entry(struct part *part, const struct walk_entry *entry, struct error *err)
{
    struct shared *shared = part->shared;
    int taken = 1;

    if (entry->trouble)
        return meet_trouble(part, entry->trouble) < 0 ? -1 : 1;
    if (part->grep.ignore_hidden && entry->name[0] == '.') {
        if (entry->type == DT_DIR)
            walk_prune(shared->walk);
    } else if (entry->type == DT_REG) {
        taken = take_file(part, entry, err);
    }
    if (taken > 0 && ++shared->seen % TREE_CANCEL_EVERY == 0 && cancel_check(shared->cancel, err) < 0)
        return -1;
    return taken;
}

static void end_walk(struct shared *shared)
{
    walk_free(shared->walk);
    shared->walk = NULL;
    shared->has_entry = false;
}

static int take_files(struct part *part, struct error *err)
{
    struct shared *shared = part->shared;
    int taken = 1;

    part->count = 0;
    buf_clear(&part->names);
    (void)pthread_mutex_lock(&shared->lock);
    while (taken > 0 && shared->walk && part->count < FILES_MAX) {
        if (!shared->has_entry && !walk_next(shared->walk, &shared->entry)) {
            end_walk(shared);
            break;
        }
        taken = take_entry(part, &shared->entry, err);
        shared->has_entry = taken == 0;
    }
    (void)pthread_mutex_unlock(&shared->lock);
    return taken < 0 ? -1 : 0;
}

/* -- searching them -- */

static int part_read(struct tree_source *source, const char *name, struct buf *out, const struct cancel *cancel,
                     struct error *err)
{
    const struct part *part = (const struct part *)(const void *)source;

    return workspace_read_listed(part->shared->workspace, part->dir_fd, name, out, err);
}

static int search_files(struct part *part, struct error *err)
{
    const char *start = part->grep.path;
    const char *below = buf_str(&part->directory);
    auto_free char *directory = alloc_format("%s%s%s", start, *start && *below ? "/" : "", below);
    int result = 0;

    for (size_t i = 0; result == 0 && i < part->count && !part->grepping.full; i++) {
        part->grepping.seen = part->seen[i];
        result = grepping_file(&part->grepping, directory, buf_str(&part->names) + part->name_at[i], err);
    }
    part->count = 0;
    cleanup_fd(&part->dir_fd);
    part->dir_fd = -1;
    return result;
}

/* Until there is nothing more to take. Who is full or fails ends the walk for all: what the others took before they still search. */
static void search(struct part *part)
{
    while (part->result == 0 && !part->grepping.full) {
        if (part->count == 0)
            part->result = take_files(part, &part->err);
        if (part->result < 0 || part->count == 0)
            break;
        part->result = search_files(part, &part->err);
    }
    if (part->result < 0 || part->grepping.full) {
        (void)pthread_mutex_lock(&part->shared->lock);
        end_walk(part->shared);
        (void)pthread_mutex_unlock(&part->shared->lock);
    }
    grepping_finish(&part->grepping);
}

static void part_init(struct part *part, struct shared *shared, struct match_grep *expression)
{
    static const struct tree_source_ops ops = {.read = part_read};

    *part = (struct part){.source = {&ops},
                          .shared = shared,
                          .grep = *shared->grep,
                          .hits = TREE_HITS_INIT,
                          .err = ERROR_INIT,
                          .dir_fd = -1,
                          .directory = BUF_INIT(TREE_WAITING_MAX_BYTES),
                          .names = BUF_INIT(FILES_MAX * (NAME_MAX + 1))};
    part->grep.expression = expression;
    part->grepping = grepping_start(&part->source, &part->grep, shared->cancel, &part->hits);
}

static void part_done(struct part *part)
{
    if (part->grep.expression != part->shared->grep->expression)
        match_grep_free(part->grep.expression);
    grepping_done(&part->grepping);
    tree_hits_done(&part->hits);
    buf_done(&part->directory);
    buf_done(&part->names);
    cleanup_fd(&part->dir_fd);
}

/* As whom files are opened is a property of the thread. */
static void *help(void *context)
{
    struct part *part = context;
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;

    part->result = workspace_identity_enter(part->shared->workspace, &guard, &part->err);
    if (part->result == 0)
        search(part);
    return NULL;
}

static unsigned thread_count(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);

    return online < 1 ? 1 : online > THREADS_MAX ? THREADS_MAX : (unsigned)online;
}

/* How many parts there are in the end. Few files are nobody's help worth. */
static unsigned search_by_all(struct shared *shared, struct part *parts)
{
    unsigned count = 1;
    pthread_attr_t attributes;

    part_init(&parts[0], shared, shared->grep->expression);
    parts[0].result = take_files(&parts[0], &parts[0].err);
    if (parts[0].result == 0 && parts[0].count > 0) {
        (void)pthread_attr_init(&attributes);
        (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
        for (unsigned wanted = shared->walk ? thread_count() : 1; count < wanted; count++) {
            part_init(&parts[count], shared, match_grep_share(shared->grep->expression));
            if (pthread_create(&parts[count].thread, &attributes, help, &parts[count]) != 0) {
                part_done(&parts[count]);
                break;
            }
        }
        (void)pthread_attr_destroy(&attributes);
    }
    return count;
}

/* -- their hits -- */

static int by_order(const void *left, const void *right)
{
    const struct tree_hit *one = left, *other = right;

    if (one->order != other->order)
        return one->order < other->order ? -1 : 1;
    return (one->line_number > other->line_number) - (one->line_number < other->line_number);
}

/* All hits, in the order of the walk, up to where that would have been full. */
static void merge(struct part *parts, unsigned part_count, size_t max_bytes, struct tree_hits *ret)
{
    unsigned long full_at = 0;
    size_t count = 0;
    size_t bytes = 0;

    *ret = (struct tree_hits)TREE_HITS_INIT;
    for (unsigned i = 0; i < part_count; i++) {
        const struct tree_hits *hits = &parts[i].hits;

        count += hits->count;
        ret->truncated |= hits->truncated;
        ret->unreadable += hits->unreadable;
        if (ret->code == ERROR_NONE)
            ret->code = hits->code;
        if (hits->full_at && (!full_at || hits->full_at < full_at))
            full_at = hits->full_at;
    }
    ret->hits = alloc_array(count ? count : 1, sizeof *ret->hits);
    for (unsigned i = 0; i < part_count; i++) {
        struct tree_hits *hits = &parts[i].hits;

        ret->texts[i] = take_ptr(hits->texts[0]);
        if (hits->count)
            memcpy(ret->hits + ret->count, hits->hits, hits->count * sizeof *hits->hits);
        ret->count += hits->count;
    }
    qsort(ret->hits, ret->count, sizeof *ret->hits, by_order);
    /* A part that was full has hits behind its last that it did not keep: nothing after them is kept either. */
    for (size_t i = 0; i < ret->count; i++) {
        const struct tree_hit *hit = &ret->hits[i];

        if (hit->printed_bytes > max_bytes - bytes || (full_at && hit->order > full_at)) {
            ret->truncated = true;
            ret->count = i;
            break;
        }
        bytes += hit->printed_bytes;
    }
}

static int search_below(struct shared *shared, struct tree_hits *ret, struct error *err)
{
    struct part *parts = alloc_array(THREADS_MAX, sizeof *parts);
    unsigned count = search_by_all(shared, parts);
    const struct part *failed = NULL;

    search(&parts[0]);
    for (unsigned i = 1; i < count; i++)
        (void)pthread_join(parts[i].thread, NULL);
    for (unsigned i = count; i-- > 0;)
        failed = parts[i].result < 0 ? &parts[i] : failed;
    if (failed)
        *err = failed->err;
    else
        merge(parts, count, shared->grep->max_bytes, ret);
    for (unsigned i = 0; i < count; i++)
        part_done(&parts[i]);
    free(parts);
    return failed ? -1 : 0;
}

static int search_one_file(struct workspace *workspace, const struct tree_grep *grep, const struct cancel *cancel,
                           struct tree_hits *ret, struct error *err)
{
    struct tree_source *source = NULL;
    int result = workspace_tree_source(workspace, &source, err);

    if (result == 0)
        result = tree_grep(source, grep, cancel, ret, err);
    tree_source_free(source);
    return result;
}

int workspace_grep(struct workspace *workspace, const struct tree_grep *grep, const struct cancel *cancel,
                   struct tree_hits *ret, struct error *err)
{
    struct shared shared = {.workspace = workspace, .grep = grep, .cancel = cancel, .lock = PTHREAD_MUTEX_INITIALIZER};
    auto_identity struct identity_guard guard = IDENTITY_GUARD_INIT;
    int result;

    if (cancel_check(cancel, err) < 0 || workspace_identity_enter(workspace, &guard, err) < 0)
        return -1;
    if (walk_new(workspace, grep->path, &shared.walk, err) == 0) {
        result = search_below(&shared, ret, err);
        walk_free(shared.walk);
        return result;
    }
    if (err->code != ERROR_INVALID)
        return -1;
    error_clear(err);
    workspace_identity_leave(&guard);
    return search_one_file(workspace, grep, cancel, ret, err);
}
