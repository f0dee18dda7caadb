/* The policy: told, changed, remembered, and taken from the operator's file. */
#include "alloc.h"
#include "fd.h"
#include "log.h"
#include "wire_policy.h"
#include "wire_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { OVERRIDES_MAX_BYTES = 1024 * 1024 };

static inline void unlock(pthread_mutex_t **lock)
{
    (void)pthread_mutex_unlock(*lock);
}

static int reply_policy(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    wire_put_policy(&writer, call->sessions);
    return wire_reply_json(reply, &writer, err);
}

/* GET /policy */
int route_policy_get(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    return reply_policy(call, reply, err);
}

/* What is remembered, as an object; an empty one if nothing is. */
static int remembered(struct sessions *sessions, struct json_object **ret, struct error *err)
{
    auto_free char *text = NULL;

    if (sessions_policy_document(sessions, &text, err) < 0)
        return -1;
    *ret = NULL;
    if (text && json_parse(text, strlen(text), ret, NULL, err) < 0)
        return -1;
    if (!json_object_is_type(*ret, json_type_object)) {
        (void)json_object_put(*ret);
        *ret = json_object_new_object();
    }
    return 0;
}

/* PUT /policy: all of it or nothing; what is in force survives a restart. */
int route_policy_put(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_policy_change struct policy_change change = {.runtimes = NULL};
    auto_json struct json_object *document = NULL;
    auto_cleanup(unlock) pthread_mutex_t *lock = &call->wire->policy_lock;

    (void)pthread_mutex_lock(lock);
    wire_policy_read(&call->body, &change);
    if (wire_refused(call, reply))
        return 0;
    if (remembered(call->sessions, &document, err) < 0)
        return -1;
    wire_policy_merge(document, call->body.object);
    if (sessions_policy_change(call->sessions, &change,
                               json_object_to_json_string_ext(document, JSON_C_TO_STRING_PLAIN), err) < 0)
        return -1;
    return reply_policy(call, reply, err);
}

/* -- without a client -- */

/* Put a document in force that nobody has to be answered about; it is not remembered (again). INVALID: what is wrong. */
static int apply(struct sessions *sessions, struct json_object *document, struct error *err)
{
    auto_wire_invalid struct wire_invalid invalid = WIRE_INVALID_INIT;
    auto_policy_change struct policy_change change = {.runtimes = NULL};
    struct wire_reader reader = {.object = document, .invalid = &invalid};

    if (!json_object_is_type(document, json_type_object))
        return fail(err, INVALID, "not a JSON object");
    wire_policy_read(&reader, &change);
    if (wire_invalid_any(&invalid))
        return fail(err, INVALID, "%.200s", buf_str(&invalid.items));
    return sessions_policy_change(sessions, &change, NULL, err);
}

static int load_remembered(struct sessions *sessions, struct error *err)
{
    auto_json struct json_object *document = NULL;
    struct error wrong = ERROR_INIT;
    struct policy *policy;
    bool pruned;

    if (remembered(sessions, &document, err) < 0)
        return -1;
    if (json_object_object_length(document) == 0)
        return 0;
    policy = sessions_policy(sessions);
    pruned = wire_policy_prune(document, policy);
    policy_unref(policy);
    if (pruned)
        log_warn("policy.runtime_gone", log_s("why", "changed once by PUT /policy, not in SANDBOXD_RUNTIMES any more"));
    if (apply(sessions, document, &wrong) < 0)
        log_error("policy.remembered_does_not_fit", log_e(&wrong));
    return 0;
}

static int read_file(int fd, struct json_object **ret, struct error *err)
{
    auto_buf struct buf text = BUF_INIT(OVERRIDES_MAX_BYTES);
    struct stat status;

    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
        return fail(err, INVALID, "not a file");
    if (fd_read_all(fd, &text, err) < 0)
        return -1;
    return json_parse(buf_str(&text), text.size, ret, NULL, err);
}

static bool changed(const struct wire_file_seen *seen, const struct stat *status)
{
    return !seen->is_there || seen->device != status->st_dev || seen->inode != status->st_ino ||
           seen->size != status->st_size || seen->mtime.tv_sec != status->st_mtim.tv_sec ||
           seen->mtime.tv_nsec != status->st_mtim.tv_nsec;
}

void wire_policy_file_check(struct wire *wire)
{
    struct wire_file_seen *seen = &wire->overrides_seen;
    auto_json struct json_object *document = NULL;
    auto_close int fd = -1;
    struct error err = ERROR_INIT;
    struct stat status;
    int result = -1;

    if (!wire->overrides)
        return;
    if (stat(wire->overrides, &status) < 0) {
        if (errno != ENOENT && seen->is_there)
            log_warn("policy.overrides", log_s("file", wire->overrides), log_s("error", strerror(errno)));
        *seen = (struct wire_file_seen){.is_there = false};
        return;
    }
    if (!changed(seen, &status))
        return;
    *seen = (struct wire_file_seen){true, status.st_dev, status.st_ino, status.st_size, status.st_mtim};
    fd = open(wire->overrides, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        (void)fail_errno(&err, "opening it");
    else
        result = read_file(fd, &document, &err);
    if (result == 0)
        result = apply(wire->sessions, document, &err);
    if (result == 0)
        log_info("policy.overrides", log_s("file", wire->overrides));
    else
        log_warn("policy.overrides", log_s("file", wire->overrides), log_e(&err));
}

void wire_policy_file_reread(struct wire *wire, const char *overrides)
{
    free(wire->overrides);
    wire->overrides = alloc_str(overrides);
    wire->overrides_seen = (struct wire_file_seen){.is_there = false};
    wire_policy_file_check(wire);
}

int wire_policy_load(struct wire *wire, const char *overrides, struct error *err)
{
    wire->overrides = alloc_str(overrides);
    if (load_remembered(wire->sessions, err) < 0)
        return -1;
    wire_policy_file_check(wire);
    return 0;
}
