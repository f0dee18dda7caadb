/* One file, whole, as it lies: GET, PUT and DELETE …/content?path= of a session, GET of a stored workspace. */
#include "file_type.h"
#include "wire_place.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { ETAG_BYTES = 96 };

/* -- conditions -- */

/* Of these very bytes: the inode, and when it was last touched in any way. */
static void etag_of(const struct stat *status, char out[static ETAG_BYTES])
{
    (void)snprintf(out, ETAG_BYTES, "\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 ".%lx-%" PRIx64 ".%lx\"",
                   (uint64_t)status->st_ino, (uint64_t)status->st_size, (uint64_t)status->st_mtim.tv_sec,
                   status->st_mtim.tv_nsec, (uint64_t)status->st_ctim.tv_sec, status->st_ctim.tv_nsec);
}

/* If-None-Match: `*`, or a list of tags, weak ones taken as strong. */
static bool names_tag(const char *list, const char *etag)
{
    size_t size = strlen(etag);

    while (list && *list) {
        list += strspn(list, " \t,");
        if (*list == '*')
            return true;
        if (strncmp(list, "W/", 2) == 0)
            list += 2;
        if (strncmp(list, etag, size) == 0)
            return true;
        list += *list == '"' ? 1 + strcspn(list + 1, "\"") : strcspn(list, ",");
        list += *list == '"';
    }
    return false;
}

static bool read_number(const char **at, uint64_t *ret)
{
    const char *digit = *at;

    for (*ret = 0; *digit >= '0' && *digit <= '9'; digit++)
        if (__builtin_mul_overflow(*ret, (uint64_t)10, ret) ||
            __builtin_add_overflow(*ret, (uint64_t)(*digit - '0'), ret))
            *ret = UINT64_MAX / 16; /* beyond any file */
    if (digit == *at)
        return false;
    *at = digit;
    return true;
}

enum range { RANGE_NONE, RANGE_PART, RANGE_BEYOND };

/* One range of bytes. Several, other units and what is malformed count as none (RFC 9110, 14.2). */
static enum range range_of(const char *text, uint64_t file_size, uint64_t *ret_first, uint64_t *ret_size)
{
    uint64_t first;
    uint64_t last = UINT64_MAX;

    if (!text || strncasecmp(text, "bytes=", 6) != 0)
        return RANGE_NONE;
    text += 6;
    if (*text == '-') {
        text++;
        if (!read_number(&text, &last) || *text)
            return RANGE_NONE;
        if (last == 0 || file_size == 0)
            return RANGE_BEYOND;
        *ret_size = last < file_size ? last : file_size;
        *ret_first = file_size - *ret_size;
        return RANGE_PART;
    }
    if (!read_number(&text, &first) || *text++ != '-' ||
        (*text && (!read_number(&text, &last) || *text || last < first)))
        return RANGE_NONE;
    if (first >= file_size)
        return RANGE_BEYOND;
    *ret_first = first;
    *ret_size = (last < file_size - 1 ? last : file_size - 1) - first + 1;
    return RANGE_PART;
}

/* -- downloads -- */

static void reply_file(const struct wire_place *place, int fd, const struct stat *status, struct http_reply *reply)
{
    struct http_request *request = place->call->request;
    const char *if_range = http_request_header(request, "If-Range");
    const char *slash = strrchr(place->path, '/');
    auto_close int owned = fd;
    uint64_t file_size = (uint64_t)status->st_size;
    uint64_t first = 0;
    uint64_t size = file_size;
    char type[FILE_TYPE_BYTES];
    char etag[ETAG_BYTES];
    char text[96];
    enum range range;

    etag_of(status, etag);
    http_reply_header(reply, "ETag", etag);
    http_reply_header(reply, "Accept-Ranges", "bytes");
    (void)snprintf(text, sizeof text, "%03o", (unsigned)status->st_mode & 0777);
    http_reply_header(reply, "X-Berth-Mode", text);
    wire_reply_inert(reply);
    if (names_tag(http_request_header(request, "If-None-Match"), etag)) {
        http_reply_empty(reply, 304);
        return;
    }
    range = if_range && strcmp(if_range, etag) != 0
                ? RANGE_NONE
                : range_of(http_request_header(request, "Range"), file_size, &first, &size);
    if (range == RANGE_BEYOND) {
        (void)snprintf(text, sizeof text, "bytes */%" PRIu64, file_size);
        http_reply_header(reply, "Content-Range", text);
        http_reply_empty(reply, 416);
        return;
    }
    if (range == RANGE_PART) {
        (void)snprintf(text, sizeof text, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, first, first + size - 1, file_size);
        http_reply_header(reply, "Content-Range", text);
        http_reply_status(reply, 206);
    }
    wire_reply_attachment(reply, slash ? slash + 1 : place->path, "");
    file_type_of(owned, type);
    http_reply_header(reply, "Content-Type", type);
    http_reply_fd(reply, NULL, take_fd(&owned), first, size);
}

static int download(const struct wire_place *place, struct http_reply *reply, struct error *err)
{
    auto_close int fd = -1;
    struct stat status;

    if (workspace_open_file(place->workspace, place->path, &fd, NULL, err) < 0)
        return err->sys_errno == EISDIR ? error_set(err, ERROR_INVALID, EISDIR, "A directory: see archive") : -1;
    if (fstat(fd, &status) < 0)
        return fail_errno(err, "fstat");
    reply_file(place, take_fd(&fd), &status, reply);
    return 0;
}

/* GET /sessions/{session_id}/content?path=, GET /workspaces/{session_id}/content?path= */
int route_content_get(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct wire_place place = WIRE_PLACE_INIT;
    int result = wire_place_begin(call, "path", true, false, &place, err);

    if (result == 0)
        result = download(&place, reply, err);
    result = wire_place_end(&place, "download", result, err);
    return result > 0 && wire_refused(call, reply) ? 0 : result;
}

/* -- uploads -- */

struct upload {
    struct wire_call *call;
    uint64_t size;
};

static int64_t upload_next(void *context, char *out, size_t max, struct error *err)
{
    struct upload *upload = context;
    int64_t got = http_request_read(upload->call->request, upload->call->cancel, out, max, err);

    upload->size += got > 0 ? (uint64_t)got : 0;
    return got;
}

/* A form would be stored with its wrapping. */
static int refuse_forms(struct wire_call *call, struct error *err)
{
    const char *type = http_request_header(call->request, "Content-Type");

    return type && strncasecmp(type, "multipart/", 10) == 0
               ? fail(err, MEDIA_TYPE, "Send the bytes of the file as the body, not a form")
               : 0;
}

static int upload(const struct wire_place *place, struct http_reply *reply, struct error *err)
{
    struct upload from = {place->call, 0};
    struct workspace_bytes bytes = {upload_next, &from};
    struct buf body = BUF_INIT(WIRE_ANSWER_MAX_BYTES);
    struct wire_writer writer = WIRE_WRITER(&body);
    bool created = false;

    if (refuse_forms(place->call, err) < 0 ||
        workspace_write_bytes(place->workspace, place->path, &bytes, &created, err) < 0)
        return -1;
    wire_put_open(&writer, NULL, '{');
    wire_put_path(&writer, place->path);
    wire_put_int(&writer, "size", (int64_t)from.size);
    wire_put_bool(&writer, "created", created);
    wire_put_close(&writer, '}');
    http_reply_status(reply, created ? 201 : 200);
    return wire_reply_json(reply, &writer, err);
}

/* PUT /sessions/{session_id}/content?path= */
int route_content_put(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct wire_place place = WIRE_PLACE_INIT;
    int result = wire_place_begin(call, "path", true, true, &place, err);

    if (result == 0)
        result = upload(&place, reply, err);
    result = wire_place_end(&place, "upload", result, err);
    return result > 0 && wire_refused(call, reply) ? 0 : result;
}

/* DELETE /sessions/{session_id}/content?path=: a file, a link itself, or a whole tree. */
int route_content_delete(struct wire_call *call, struct http_reply *reply, struct error *err)
{
    struct wire_place place = WIRE_PLACE_INIT;
    int result = wire_place_begin(call, "path", true, true, &place, err);

    if (result == 0)
        result = workspace_remove(place.workspace, place.path, call->cancel, err);
    if (result == 0)
        http_reply_empty(reply, 204);
    result = wire_place_end(&place, "remove", result, err);
    return result > 0 && wire_refused(call, reply) ? 0 : result;
}
