/* Single files as the classic wire has them: read, read_bytes, write, edit, exists. */
#include "alloc.h"
#include "base64.h"
#include "edit.h"
#include "text.h"
#include "utf8.h"
#include "wire_classic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { EDITED_MAX_BYTES = 64 * 1024 * 1024 };

#define OVER_LIMIT                                                                                                    \
    "File is %lld bytes, over the %lld-byte read limit. Read a slice with execute() instead, e.g. \"sed -n '1,200p' " \
    "<path>\"."

/* {before}{path as it was sent, with its NULs}{after} */
static int append_about(struct buf *out, const char *before, struct wire_text path, const char *after,
                        struct error *err)
{
    if (buf_append_str(out, before, err) < 0 || buf_append(out, path.data, path.size, err) < 0)
        return -1;
    return buf_append_str(out, after, err);
}

static int64_t max_read_bytes(const struct wire_classic *classic)
{
    struct policy *policy = sessions_policy(classic->call->sessions);
    int64_t max = policy->max_read_bytes;

    policy_unref(policy);
    return max;
}

static struct error names_no_file(struct wire_text path)
{
    struct error err = ERROR_INIT;

    if (wire_has_nul(path))
        (void)fail(&err, INVALID, "The name holds a NUL");
    else
        (void)error_set(&err, ERROR_INVALID, EISDIR, "It names no file");
    return err;
}

/* -- reading -- */

/* What a read came to. */
struct content {
    struct buf bytes;
    int64_t size_bytes;
    int64_t max_bytes;
    struct error failure; /* one that is told; its code ERROR_NONE: there is none */
};
#define CONTENT_INIT                  \
    {                                 \
        BUF_INIT(0), 0, 0, ERROR_INIT \
    }

static void content_done(struct content *content)
{
    buf_done(&content->bytes);
}
#define auto_content auto_cleanup(content_done)

/* 0 also for a failure that is told. */
static int fetch(const struct wire_classic *classic, struct wire_text path, bool through_link, struct content *ret,
                 struct error *err)
{
    auto_free char *name = wire_classic_path(path);

    ret->max_bytes = max_read_bytes(classic);
    ret->bytes.max = (size_t)ret->max_bytes;
    if (!name) {
        ret->failure = names_no_file(path);
        return 0;
    }
    if (session_classic_read(classic->operation, name, through_link, &ret->bytes, &ret->size_bytes, err) == 0)
        return 0;
    if (!wire_classic_is_told(err))
        return -1;
    ret->failure = *err;
    error_clear(err);
    buf_clear(&ret->bytes);
    return 0;
}

/* The file's name decides how it is decoded. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int decode(struct wire_text path, struct content *content, struct buf *text, struct error *err)
{
    auto_free char *name = wire_classic_path(path);

    if (text_decode(base_name(name), buf_str(&content->bytes), content->bytes.size, text, &content->failure) < 0 &&
        !wire_classic_is_told(&content->failure)) {
        *err = content->failure;
        return -1;
    }
    return 0;
}

/* What a read answers instead of the content. */
static int explain_read(const struct wire_classic *classic, struct wire_text path, const struct content *content,
                        struct buf *out, struct error *err)
{
    const struct error *failure = &content->failure;
    char words[96];

    if (content->size_bytes > content->max_bytes)
        return buf_append_format(out, err, "[Error: " OVER_LIMIT "]", (long long)content->size_bytes,
                                 (long long)content->max_bytes);
    if (content->bytes.size) /* it was read, and is no text */
        return buf_append_format(out, err, "[Error: %s]", error_public_text(failure));
    if (failure->code == ERROR_TIMEOUT || failure->code == ERROR_TOO_LARGE)
        return buf_append_format(out, err, "[Error reading file: %s]", wire_classic_words(classic, failure, words));
    return append_about(out, "Error: File '", path, "' not found", err);
}

static int read_text(const struct wire_classic *classic, struct wire_text path, int64_t offset, int64_t limit,
                     struct buf *out, struct error *err)
{
    auto_content struct content content = CONTENT_INIT;
    auto_buf struct buf text = BUF_INIT(WIRE_ANSWER_MAX_BYTES);

    if (fetch(classic, path, true, &content, err) < 0 ||
        (content.failure.code == ERROR_NONE && decode(path, &content, &text, err) < 0))
        return -1;
    if (content.failure.code != ERROR_NONE)
        return explain_read(classic, path, &content, out, err);
    return text_slice(buf_str(&text), text.size, offset, limit, out, err);
}

/* POST /sessions/{session_id}/read */
int route_classic_read(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_buf struct buf content = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    struct wire_classic classic;
    struct wire_text path;
    int64_t offset = 0;
    int64_t limit = 2000;
    char detail[40];
    bool failed;

    (void)wire_read_text(&call->body, "path", WIRE_REQUIRED, &path);
    (void)wire_read_int(&call->body, "offset", WIRE_OPTIONAL, 0, &offset);
    (void)wire_read_int(&call->body, "limit", WIRE_OPTIONAL, 1, &limit);
    if (wire_refused(call, reply))
        return 0;
    if (wire_classic_begin(call, "read", path, &classic, err) < 0)
        return -1;
    if (read_text(&classic, path, offset, limit, &content, err) < 0)
        return wire_classic_failed(&classic, err);
    (void)snprintf(detail, sizeof detail, "%zu chars", utf8_count(buf_str(&content), content.size));
    failed = strncmp(buf_str(&content), "Error:", 6) == 0 || strncmp(buf_str(&content), "[Error", 6) == 0;
    wire_classic_done(&classic, !failed, detail);
    wire_put_open(&writer, NULL, '{');
    wire_put_text(&writer, "content", buf_str(&content), content.size);
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

/* POST /sessions/{session_id}/read_bytes: whatever goes wrong with the file is "". */
int route_classic_read_bytes(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_content struct content content = CONTENT_INIT;
    auto_buf struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_classic classic;
    struct wire_text path;
    char detail[40];

    (void)wire_read_text(&call->body, "path", WIRE_REQUIRED, &path);
    if (wire_refused(call, reply))
        return 0;
    if (wire_classic_begin(call, "read_bytes", path, &classic, err) < 0)
        return -1;
    if (fetch(&classic, path, true, &content, err) < 0)
        return wire_classic_failed(&classic, err);
    if (content.failure.code != ERROR_NONE)
        buf_clear(&content.bytes);
    (void)snprintf(detail, sizeof detail, "%zu bytes", content.bytes.size);
    wire_classic_done(&classic, content.bytes.size > 0, detail);
    if (buf_append_str(&body, "{\"content_b64\":\"", err) < 0 ||
        base64_encode(buf_str(&content.bytes), content.bytes.size, &body, err) < 0 ||
        buf_append_str(&body, "\"}", err) < 0)
        return -1;
    http_reply_buf(reply, WIRE_JSON_TYPE, &body);
    return 0;
}

/* POST /sessions/{session_id}/exists */
int route_classic_exists(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    auto_free char *name = NULL;
    struct wire_classic classic;
    struct wire_text path;
    bool is_file = false;

    (void)wire_read_text(&call->body, "path", WIRE_REQUIRED, &path);
    if (wire_refused(call, reply))
        return 0;
    if (wire_classic_begin(call, "exists", path, &classic, err) < 0)
        return -1;
    name = wire_classic_path(path);
    if (name && session_classic_is_file(classic.operation, name, &is_file, err) < 0) {
        if (!wire_classic_is_told(err))
            return wire_classic_failed(&classic, err);
        error_clear(err);
    }
    wire_classic_done(&classic, true, is_file ? "found" : "missing");
    wire_put_open(&writer, NULL, '{');
    wire_put_bool(&writer, "exists", is_file);
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

/* -- writing -- */

/* As a client is told it: an absolute path as it was sent; a relative one below the work dir, without "." and doubled slashes. */
static char *resolved(const struct wire_classic *classic, struct wire_text path)
{
    const char *work_dir = sessions_settings(classic->call->sessions)->work_dir;
    char *text = alloc_format("%s/%s", strcmp(work_dir, "/") == 0 ? "" : work_dir, path.data);
    char *out = text + strlen(text) - path.size;

    if (path.data[0] == '/') {
        free(text);
        return alloc_str(path.data);
    }
    out--; /* the slash */
    for (const char *at = path.data; *at;) {
        size_t size = strcspn(at, "/");

        if (size > 0 && !(size == 1 && *at == '.')) {
            *out++ = '/';
            memmove(out, at, size);
            out += size;
        }
        at += size;
        at += strspn(at, "/");
    }
    *out = '\0';
    return text;
}

/* An answer of write and edit: either a path or an error; `occurrences` only edit has. */
struct written {
    char *path;
    struct buf error;
    bool has_occurrences;
    int64_t occurrences;
};
#define WRITTEN_INIT                                    \
    {                                                   \
        NULL, BUF_INIT(WIRE_ANSWER_MAX_BYTES), false, 0 \
    }

static void written_done(struct written *written)
{
    free(written->path);
    buf_done(&written->error);
}
#define auto_written auto_cleanup(written_done)

static int reply_written(struct http_reply *reply, const struct written *written, struct error *err)
{
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);

    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "path", written->path);
    if (written->path)
        wire_put_null(&writer, "error");
    else
        wire_put_text(&writer, "error", buf_str(&written->error), written->error.size);
    if (written->has_occurrences)
        wire_put_opt_int(&writer, "occurrences", (struct opt_int){written->path != NULL, written->occurrences});
    wire_put_close(&writer, '}');
    return wire_reply_json(reply, &writer, err);
}

/* Writes; a failure that is told goes to ret->error. */
static int store(const struct wire_classic *classic, struct wire_text path, const void *data, size_t size,
                 const char *what, struct written *ret, struct error *err)
{
    auto_free char *name = wire_classic_path(path);
    struct error failure = names_no_file(path);
    char words[96];

    if (name && session_classic_write(classic->operation, name, data, size, err) == 0) {
        ret->path = resolved(classic, path);
        return 0;
    }
    if (name && !wire_classic_is_told(err))
        return -1;
    if (name)
        failure = *err;
    error_clear(err);
    if (buf_append_format(&ret->error, err, "Failed to %s: ", what) < 0)
        return -1;
    return append_about(&ret->error, "'", path, "': ", err) < 0
               ? -1
               : buf_append_str(&ret->error, wire_classic_words(classic, &failure, words), err);
}

/* POST /sessions/{session_id}/write */
int route_classic_write(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_written struct written written = WRITTEN_INIT;
    auto_buf struct buf content = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_classic classic;
    struct wire_text encoded;
    struct wire_text path;
    char detail[40];

    (void)wire_read_text(&call->body, "path", WIRE_REQUIRED, &path);
    (void)wire_read_text(&call->body, "content_b64", WIRE_REQUIRED, &encoded);
    if (wire_refused(call, reply))
        return 0;
    if (base64_decode(encoded.data, encoded.size, &content, err) < 0)
        return error_prefix(err, "content_b64 is not valid base64");
    if (wire_classic_begin(call, "write", path, &classic, err) < 0)
        return -1;
    if (store(&classic, path, buf_str(&content), content.size, "write file", &written, err) < 0)
        return wire_classic_failed(&classic, err);
    (void)snprintf(detail, sizeof detail, "%zu bytes", content.size);
    wire_classic_done(&classic, written.path != NULL, written.path ? detail : buf_str(&written.error));
    return reply_written(reply, &written, err);
}

/* -- editing -- */

struct edit {
    struct wire_text path;
    struct wire_text old;
    struct wire_text new;
    bool all;
};

static int explain_fetch(const struct wire_classic *classic, const struct edit *edit, const struct content *content,
                         struct written *ret, struct error *err)
{
    const struct error *failure = &content->failure;
    char words[96];

    if (content->size_bytes > content->max_bytes)
        return buf_append_format(&ret->error, err, OVER_LIMIT, (long long)content->size_bytes,
                                 (long long)content->max_bytes);
    if (content->bytes.size)
        return buf_append_str(&ret->error, error_public_text(failure), err);
    if (failure->code == ERROR_TIMEOUT || failure->code == ERROR_TOO_LARGE)
        return buf_append_format(&ret->error, err, "Failed to edit file: %s",
                                 wire_classic_words(classic, failure, words));
    return append_about(&ret->error, "File '", edit->path, "' not found", err);
}

static int replace(const struct wire_classic *classic, const struct edit *edit, const struct buf *text,
                   struct written *ret, struct error *err)
{
    auto_buf struct buf edited = BUF_INIT(EDITED_MAX_BYTES);

    if (edit_replace(buf_str(text), text->size, edit->old.data, edit->old.size, edit->new.data, edit->new.size,
                     edit->all, &edited, err) < 0) {
        if (err->code != ERROR_TOO_LARGE)
            return -1;
        error_clear(err);
        return buf_append_format(&ret->error, err, "Failed to edit file: it would be larger than %d bytes",
                                 EDITED_MAX_BYTES);
    }
    return store(classic, edit->path, buf_str(&edited), edited.size, "edit file", ret, err);
}

static int edit_file(const struct wire_classic *classic, const struct edit *edit, struct written *ret,
                     struct error *err)
{
    auto_content struct content content = CONTENT_INIT;
    auto_buf struct buf text = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    char after[120];

    if (fetch(classic, edit->path, false, &content, err) < 0 ||
        (content.failure.code == ERROR_NONE && decode(edit->path, &content, &text, err) < 0))
        return -1;
    if (content.failure.code != ERROR_NONE)
        return explain_fetch(classic, edit, &content, ret, err);
    ret->occurrences = edit_count(buf_str(&text), text.size, edit->old.data, edit->old.size);
    if (ret->occurrences == 0)
        return append_about(&ret->error, "String '", edit->old, "' not found in file", err);
    if (ret->occurrences == 1 || edit->all)
        return replace(classic, edit, &text, ret, err);
    (void)snprintf(after, sizeof after,
                   "' found %lld times. Use replace_all=True to replace all, or provide more context.",
                   (long long)ret->occurrences);
    return append_about(&ret->error, "String '", edit->old, after, err);
}

/* POST /sessions/{session_id}/edit */
int route_classic_edit(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    auto_written struct written written = WRITTEN_INIT;
    struct wire_classic classic;
    struct edit edit = {.all = false};
    char detail[40];

    written.has_occurrences = true;
    (void)wire_read_text(&call->body, "path", WIRE_REQUIRED, &edit.path);
    (void)wire_read_text(&call->body, "old_string", WIRE_REQUIRED, &edit.old);
    (void)wire_read_text(&call->body, "new_string", WIRE_REQUIRED, &edit.new);
    (void)wire_read_bool(&call->body, "replace_all", WIRE_OPTIONAL, &edit.all);
    if (wire_refused(call, reply))
        return 0;
    if (wire_classic_begin(call, "edit", edit.path, &classic, err) < 0)
        return -1;
    if (edit_file(&classic, &edit, &written, err) < 0)
        return wire_classic_failed(&classic, err);
    (void)snprintf(detail, sizeof detail, "%lld replaced", (long long)written.occurrences);
    wire_classic_done(&classic, written.path != NULL, written.path ? detail : buf_str(&written.error));
    return reply_written(reply, &written, err);
}
