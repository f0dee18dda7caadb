#include "session_inside_private.h"

#include "alloc.h"
#include "clock.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { ENTRY_BYTES = 256 }; /* what one of a list may take of memory: its struct and a long name */

int session_inside_begin(struct sessions *sessions, const char *id, const struct cancel *cancel,
                         struct session_inside **ret_inside, struct error *err)
{
    static const struct active_run nameless = {.run = NULL};
    auto_session struct session *session = registry_get(sessions, id, err);
    auto_policy struct policy *policy = sessions_policy(sessions);
    struct cancel within = cancel_within(cancel, policy->execute_timeout_s * 1000);
    struct session_inside *inside;

    if (!session || session_command_take(session, &nameless, &within, err) < 0)
        return -1;
    inside = alloc_zero(sizeof *inside);
    *inside = (struct session_inside){.session = take_ptr(session), .cancel = within};
    *ret_inside = inside;
    return 0;
}

void session_inside_end(struct session_inside *inside)
{
    if (!inside)
        return;
    session_command_give(inside->session);
    session_unref(inside->session);
    free(inside);
}

/* -- one run of the applet -- */

static const struct provider_ops *ops_of(const struct session_inside *inside)
{
    return inside->session->owner->provider->ops;
}

int applet_start(struct session_inside *inside, const char *verb, const char *const *arguments, bool stdin_open,
                 struct applet *ret, struct error *err)
{
    const char *argv[3 + APPLET_ARGUMENTS_MAX] = {ops_of(inside)->agent_path, "file", verb};
    struct run_spec spec = {.argv = argv, .argc = 3, .has_reader = true, .stdin_open = stdin_open};
    uint32_t number;

    for (; *arguments; arguments++)
        argv[spec.argc++] = *arguments;
    if (!argv[3][0])
        return error_set(err, ERROR_INVALID, EINVAL, "The path is empty");
    if (cancel_check(&inside->cancel, err) < 0)
        return -1;
    *ret = (struct applet){.inside = inside};
    spec.timeout_ms = cancel_remaining_ms(&inside->cancel);
    if (spec.timeout_ms == 0)
        spec.timeout_ms = 1; /* 0 would be none */
    if (session_run_begin(inside->session, &spec, NULL, &inside->cancel, &ret->sandbox, &ret->run, &number, err) < 0)
        return -1;
    file_reader_init(&ret->reader);
    return 0;
}

void applet_done(struct applet *applet)
{
    if (!applet->run)
        return;
    ops_of(applet->inside)->run_free(applet->run);
    sandbox_unref(applet->sandbox);
    session_leave(applet->inside->session);
    file_reader_done(&applet->reader);
    applet->run = NULL;
}

/* It ended without END: why. Always -1. */
static int cut_off(const struct applet *applet, struct error *err)
{
    const struct run_exit *exit = ops_of(applet->inside)->run_exit(applet->run);

    if (exit->lost)
        return fail(err, GONE, "The sandbox of session %s went away meanwhile", applet->inside->session->id);
    if (exit->timed_out)
        return fail(err, TIMEOUT, "The sandbox did not answer in time");
    if (exit->spawn_failed && exit->spawn_cwd)
        return error_set(err, ERROR_NOT_FOUND, exit->spawn_errno, "The work dir cannot be entered");
    if (exit->spawn_failed)
        return error_set(err, ERROR_ENGINE, exit->spawn_errno, "the sandbox cannot start its file applet");
    return fail(err, ENGINE, "the sandbox's file applet ended early: %s %d", exit->signal ? "signal" : "exit code",
                exit->signal ? exit->signal : exit->exit_code);
}

/* More bytes. 1; 0: the run has ended. */
static int gather(struct applet *applet, struct error *err)
{
    struct session *session = applet->inside->session;
    struct cancel waiting = applet->inside->cancel;
    struct run_chunk chunk;
    int got;

    waiting.deadline_ms += SESSION_RUN_GRACE_MS; /* the agent keeps the deadline; this is for one that does not */
    do
        got = ops_of(applet->inside)->run_next(applet->run, &waiting, &chunk, err);
    while (got > 0 && chunk.stream != RUN_STDOUT);
    if (got < 0 && err->code == ERROR_TIMEOUT)
        session_run_overdue(session, applet->sandbox);
    if (got > 0 && chunk.dropped)
        return fail(err, ENGINE, "output of the file applet is missing");
    return got > 0 && file_reader_put(&applet->reader, chunk.data, chunk.size, err) < 0 ? -1 : got;
}

int applet_next(struct applet *applet, struct file_record *ret, struct error *err)
{
    for (;;) {
        int got = file_reader_next(&applet->reader, ret, err);

        if (got > 0 && ret->kind == FILE_RECORD_FAILED)
            return file_record_fail(ret->sys_errno, err);
        if (got < 0 || (got > 0 && ret->kind != FILE_RECORD_END))
            return got;
        if (got == 0 && (got = gather(applet, err)) <= 0)
            return got < 0 ? -1 : file_reader_over(&applet->reader) ? 0 : cut_off(applet, err);
    }
}

void applet_entry(const struct file_record *record, struct workspace_entry *ret)
{
    *ret = (struct workspace_entry){.is_dir = record->type == FILE_TYPE_DIRECTORY,
                                    .is_link = record->type == FILE_TYPE_LINK,
                                    .is_regular = record->type == FILE_TYPE_REGULAR,
                                    .size_bytes = record->size_bytes,
                                    .mtime_unix_us = record->mtime_unix_us,
                                    .mode = record->mode & 0777,
                                    .inode = record->inode};
}

/* A record that must come. */
static int expect(struct applet *applet, enum file_record_kind kind, struct file_record *ret, struct error *err)
{
    int got = applet_next(applet, ret, err);

    if (got < 0)
        return -1;
    return got > 0 && ret->kind == kind ? 0 : fail(err, ENGINE, "the sandbox's file applet leaves something out");
}

/* END, and nothing before it. */
static int expect_end(struct applet *applet, struct error *err)
{
    struct file_record record;
    int got = applet_next(applet, &record, err);

    return got > 0 ? fail(err, ENGINE, "the sandbox's file applet says more than was asked") : got;
}

#define auto_applet auto_cleanup(applet_done)

/* -- verbs -- */

int session_inside_stat(struct session_inside *inside, const char *path, struct workspace_entry *ret_link,
                        struct workspace_entry *ret_target, struct error *err)
{
    auto_applet struct applet applet = {NULL};
    struct workspace_entry link;
    struct file_record record;

    if (applet_start(inside, "stat", (const char *[]){path, NULL}, false, &applet, err) < 0 ||
        expect(&applet, FILE_RECORD_ENTRY, &record, err) < 0)
        return -1;
    applet_entry(&record, &link);
    if (applet_next(&applet, &record, err) <= 0 ||
        (record.kind != FILE_RECORD_ENTRY && record.kind != FILE_RECORD_SKIPPED))
        return err->code ? -1 : fail(err, ENGINE, "the sandbox's file applet leaves something out");
    if (record.kind == FILE_RECORD_SKIPPED && ret_target)
        return file_record_fail(record.sys_errno, err);
    if (ret_target)
        applet_entry(&record, ret_target);
    if (ret_link)
        *ret_link = link;
    return expect_end(&applet, err);
}

int session_inside_read(struct session_inside *inside, const char *path, struct buf *out, int64_t *ret_size_bytes,
                        struct error *err)
{
    auto_applet struct applet applet = {NULL};
    const size_t before = out->size;
    struct file_record record;
    char max[24];
    int got;

    (void)snprintf(max, sizeof max, "%zu", out->max - before);
    if (applet_start(inside, "read", (const char *[]){path, max, NULL}, false, &applet, err) < 0 ||
        expect(&applet, FILE_RECORD_ENTRY, &record, err) < 0)
        return -1;
    if (ret_size_bytes)
        *ret_size_bytes = record.size_bytes;
    while ((got = applet_next(&applet, &record, err)) > 0)
        if (record.kind != FILE_RECORD_DATA || buf_append(out, record.bytes, record.size, err) < 0)
            return err->code ? -1 : fail(err, ENGINE, "the sandbox's file applet says more than was asked");
    if (got == 0 && ret_size_bytes)
        *ret_size_bytes = (int64_t)(out->size - before);
    if (got < 0 && err->code == ERROR_TOO_LARGE && ret_size_bytes && *ret_size_bytes <= (int64_t)(out->max - before))
        *ret_size_bytes = (int64_t)(out->max - before) + 1; /* it grew while it was read, or does not tell its size */
    return got;
}

int session_inside_write(struct session_inside *inside, const char *path, const void *data, size_t size,
                         struct error *err)
{
    auto_applet struct applet applet = {NULL};
    struct file_record record;
    char told[24];

    (void)snprintf(told, sizeof told, "%zu", size);
    if (applet_start(inside, "write", (const char *[]){path, told, "644", NULL}, true, &applet, err) < 0 ||
        ops_of(inside)->run_stdin_write(applet.run, data, size, &inside->cancel, err) < 0)
        return -1;
    ops_of(inside)->run_stdin_eof(applet.run);
    return expect(&applet, FILE_RECORD_ENTRY, &record, err) < 0 ? -1 : expect_end(&applet, err);
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct workspace_entry *)left)->name, ((const struct workspace_entry *)right)->name);
}

/* Names lie one after the other in one block, each with its NUL. */
static void finish_list(struct workspace_list *list, struct buf *names)
{
    const char *name = list->names = buf_take(names, NULL);

    for (size_t i = 0; i < list->count; i++) {
        list->entries[i].name = name;
        name += strlen(name) + 1;
    }
    if (list->count)
        qsort(list->entries, list->count, sizeof *list->entries, by_name);
}

static int list_add(struct workspace_list *list, struct buf *names, size_t max_entries, size_t *capacity,
                    const struct file_record *record, struct error *err)
{
    if (record->kind != FILE_RECORD_ENTRY || record->size == 0)
        return fail(err, ENGINE, "the sandbox's file applet says something else than was asked");
    if (list->count == max_entries)
        return error_set(err, ERROR_TOO_LARGE, EFBIG, "More than %zu entries", max_entries);
    if (list->count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 64;
        list->entries = alloc_grow(list->entries, *capacity, sizeof *list->entries);
    }
    applet_entry(record, &list->entries[list->count]);
    list->count++;
    return buf_append(names, record->bytes, record->size + 1, err);
}

int session_inside_list(struct session_inside *inside, const char *path, size_t max_entries, struct workspace_list *ret,
                        struct error *err)
{
    auto_applet struct applet applet = {NULL};
    auto_workspace_list struct workspace_list list = WORKSPACE_LIST_INIT;
    auto_buf struct buf names = BUF_INIT(max_entries * ENTRY_BYTES);
    struct file_record record;
    size_t capacity = 0;
    char max[24];
    int got;

    (void)snprintf(max, sizeof max, "%zu", max_entries);
    if (applet_start(inside, "list", (const char *[]){path, max, NULL}, false, &applet, err) < 0 ||
        expect(&applet, FILE_RECORD_DIR, &record, err) < 0)
        return -1;
    while ((got = applet_next(&applet, &record, err)) > 0)
        if (list_add(&list, &names, max_entries, &capacity, &record, err) < 0)
            return -1;
    if (got < 0)
        return -1;
    finish_list(&list, &names);
    *ret = list;
    list = (struct workspace_list)WORKSPACE_LIST_INIT;
    return 0;
}
