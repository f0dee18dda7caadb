/* Requests to the broker: libcurl's multi interface, so that a command's output, its input and signals are waited for at once. */
#include "cli_private.h"

#include "alloc.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

enum {
    CONNECT_MS = 10000,
    SILENCE_S = 60,        /* followed streams say something each 10 or 15 s */
    AHEAD_BYTES = 1 << 20, /* received and not read: more is left with the sender */
    ERROR_MAX_BYTES = 64 * 1024,
    ANSWER_MAX_BYTES = 256 * 1024 * 1024,
    CALL_MS = 60000,
    FDS_MAX = 8,
};

struct cli_http {
    CURLM *multi;
    bool has_news; /* something came, or ended: nobody has to wait for it */
};

struct cli_transfer {
    struct cli *cli;
    CURL *easy;
    struct curl_slist *headers;
    struct cli_request request;
    char *body;
    struct buf ahead;
    size_t taken; /* of `ahead`, by the last read */
    int status;   /* 0: its line has not come */
    char trailer[512];
    int mode; /* of the file that comes; -1: not told */
    bool is_paused;
    bool is_done;
    CURLcode result;
    char text[CURL_ERROR_SIZE];
    struct error why; /* what `next` said */
};

/* -- what libcurl calls -- */

static size_t take_body(char *data, size_t one, size_t size, void *context)
{
    struct cli_transfer *transfer = context;
    struct error err = ERROR_INIT;

    (void)one;
    transfer->cli->http->has_news = true;
    if (transfer->ahead.size - transfer->taken >= AHEAD_BYTES) {
        transfer->is_paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    return buf_append(&transfer->ahead, data, size, &err) < 0 ? 0 : size;
}

static size_t take_header(char *data, size_t one, size_t size, void *context)
{
    static const char name[] = "X-Berth-Archive:";
    static const char mode[] = "X-Berth-Mode:";
    struct cli_transfer *transfer = context;
    long status;

    (void)one;
    if (curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK && status >= 200)
        transfer->status = (int)status;
    transfer->cli->http->has_news = true;
    if (size > sizeof name && strncasecmp(data, name, sizeof name - 1) == 0)
        (void)snprintf(transfer->trailer, sizeof transfer->trailer, "%.*s",
                       (int)(strcspn(data, "\r\n") - sizeof name + 1), data + sizeof name - 1);
    if (size > sizeof mode && strncasecmp(data, mode, sizeof mode - 1) == 0)
        transfer->mode = (int)strtoul(data + sizeof mode - 1, NULL, 8) & 0777; /* a line ends with CR LF */
    return size;
}

static size_t give_body(char *out, size_t one, size_t max, void *context)
{
    struct cli_transfer *transfer = context;
    int64_t size = transfer->request.next(transfer->request.next_context, out, one * max, &transfer->why);

    return size < 0 ? CURL_READFUNC_ABORT : (size_t)size;
}

/* -- starting and ending -- */

static void add_header(struct cli_transfer *transfer, const char *name, const char *value)
{
    auto_free char *line = value ? alloc_format("%s: %s", name, value) : NULL;

    if (line)
        transfer->headers = curl_slist_append(transfer->headers, line);
}

static void set_body(struct cli_transfer *transfer)
{
    const struct cli_request *request = &transfer->request;

    if (request->next) {
        (void)curl_easy_setopt(transfer->easy, CURLOPT_UPLOAD, 1L);
        (void)curl_easy_setopt(transfer->easy, CURLOPT_READFUNCTION, give_body);
        (void)curl_easy_setopt(transfer->easy, CURLOPT_READDATA, transfer);
    } else if (request->body) {
        transfer->body = alloc_str_n(request->body, request->body_size);
        (void)curl_easy_setopt(transfer->easy, CURLOPT_POSTFIELDS, transfer->body);
        (void)curl_easy_setopt(transfer->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_size);
    }
    if (request->next || request->body)
        add_header(transfer, "Content-Type", request->type ? request->type : "application/json");
    /* Without it libcurl would wait a second for the broker to ask for what is longer than a megabyte. */
    transfer->headers = curl_slist_append(transfer->headers, "Expect:");
}

static void set_options(struct cli_transfer *transfer, const char *url)
{
    CURL *easy = transfer->easy;

    (void)curl_easy_setopt(easy, CURLOPT_URL, url);
    (void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* the token is the broker's alone */
    (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, transfer->request.method);
    (void)curl_easy_setopt(easy, CURLOPT_USERAGENT, "berth/" PACKAGE_VERSION);
    (void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    (void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)transfer->request.timeout_ms);
    (void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->text);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    (void)curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
    (void)curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
    if (transfer->request.timeout_ms == 0) {
        (void)curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
        (void)curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
    }
}

static struct cli_http *http_of(struct cli *cli)
{
    if (!cli->http) {
        (void)curl_global_init(CURL_GLOBAL_DEFAULT);
        cli->http = alloc_zero(sizeof *cli->http);
        cli->http->multi = curl_multi_init();
    }
    return cli->http;
}

int cli_transfer_start(struct cli *cli, const struct cli_request *request, struct cli_transfer **ret, struct error *err)
{
    auto_free char *url = alloc_format("%s%s", cli->url, request->target);
    auto_transfer struct cli_transfer *transfer = alloc_zero(sizeof *transfer);
    struct cli_http *http = http_of(cli);

    transfer->cli = cli;
    transfer->request = *request;
    transfer->ahead = (struct buf)BUF_INIT(ANSWER_MAX_BYTES);
    transfer->mode = -1;
    transfer->easy = curl_easy_init();
    if (!transfer->easy || !http->multi)
        return fail(err, INTERNAL, "libcurl has no memory");
    set_options(transfer, url);
    add_header(transfer, "X-Sandbox-Token", cli->token);
    add_header(transfer, "Accept", request->accept);
    add_header(transfer, "Last-Event-ID", request->last_event_id);
    set_body(transfer);
    (void)curl_easy_setopt(transfer->easy, CURLOPT_HTTPHEADER, transfer->headers);
    (void)curl_easy_setopt(transfer->easy, CURLOPT_PRIVATE, transfer);
    if (curl_multi_add_handle(http->multi, transfer->easy) != CURLM_OK)
        return fail(err, INTERNAL, "libcurl refused the request");
    *ret = take_ptr(transfer);
    return 0;
}

void cli_transfer_free(struct cli_transfer *transfer)
{
    if (!transfer)
        return;
    if (transfer->easy) {
        (void)curl_multi_remove_handle(transfer->cli->http->multi, transfer->easy);
        curl_easy_cleanup(transfer->easy);
    }
    curl_slist_free_all(transfer->headers);
    buf_done(&transfer->ahead);
    free(transfer->body);
    free(transfer);
}

void cli_http_free(struct cli_http *http)
{
    if (!http)
        return;
    (void)curl_multi_cleanup(http->multi);
    free(http);
    curl_global_cleanup();
}

/* -- going on -- */

static void note_ends(struct cli_http *http)
{
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(http->multi, &left))) {
        struct cli_transfer *transfer = NULL;

        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        if (message->msg == CURLMSG_DONE && transfer) {
            transfer->is_done = http->has_news = true;
            transfer->result = message->data.result;
        }
    }
}

int cli_http_poll(struct cli *cli, struct pollfd *fds, unsigned count, int timeout_ms, struct error *err)
{
    struct curl_waitfd waits[FDS_MAX];
    struct cli_http *http = http_of(cli);
    int running;

    for (unsigned i = 0; i < count && i < FDS_MAX; i++)
        waits[i] = (struct curl_waitfd){fds[i].fd, CURL_WAIT_POLLIN, 0};
    http->has_news = false;
    if (curl_multi_perform(http->multi, &running) != CURLM_OK)
        return fail(err, INTERNAL, "libcurl failed");
    note_ends(http);
    if (curl_multi_poll(http->multi, waits, count, http->has_news ? 0 : timeout_ms, NULL) != CURLM_OK)
        return fail(err, INTERNAL, "libcurl failed");
    if (count) /* libcurl does not tell of hang-ups */
        (void)poll(fds, count, 0);
    if (curl_multi_perform(http->multi, &running) != CURLM_OK)
        return fail(err, INTERNAL, "libcurl failed");
    note_ends(http);
    return 0;
}

/* How it ended, if it did not end well. */
static int judge(const struct cli_transfer *transfer, struct error *err)
{
    const char *text = transfer->text[0] ? transfer->text : curl_easy_strerror(transfer->result);

    switch (transfer->result) {
    case CURLE_OK:
        return 0;
    case CURLE_ABORTED_BY_CALLBACK:
        *err = transfer->why;
        return -1;
    case CURLE_OPERATION_TIMEDOUT:
        return fail(err, TIMEOUT, "%s: no answer in time (%.120s)", transfer->cli->url, text);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return fail(err, INVALID, "\"%.80s\" is no address of a broker: it is like http://127.0.0.1:8080",
                    transfer->cli->url);
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
        return fail(err, UNAVAILABLE,
                    "no broker answers at %s (%.80s). Does berthd run? Its address goes into BERTH_URL",
                    transfer->cli->url, text);
    default:
        return fail(err, UNAVAILABLE, "%s: the connection broke off (%.120s)", transfer->cli->url, text);
    }
}

int cli_transfer_status(struct cli_transfer *transfer, int *ret_status, struct error *err)
{
    while (!transfer->is_done && !transfer->status)
        if (cli_http_poll(transfer->cli, NULL, 0, 1000, err) < 0)
            return -1;
    if (!transfer->status && judge(transfer, err) < 0)
        return -1;
    *ret_status = transfer->status;
    return 0;
}

int cli_transfer_known_status(const struct cli_transfer *transfer)
{
    return transfer->status;
}

int cli_transfer_read(struct cli_transfer *transfer, bool waits, const char **ret_data, size_t *ret_size,
                      struct error *err)
{
    buf_consume(&transfer->ahead, transfer->taken);
    transfer->taken = 0;
    while (transfer->ahead.size == 0) {
        if (transfer->is_done)
            return judge(transfer, err);
        if (transfer->is_paused) {
            transfer->is_paused = false;
            (void)curl_easy_pause(transfer->easy, CURLPAUSE_CONT);
            continue;
        }
        if (!waits)
            return 2;
        if (cli_http_poll(transfer->cli, NULL, 0, 1000, err) < 0)
            return -1;
    }
    *ret_data = transfer->ahead.data;
    *ret_size = transfer->taken = transfer->ahead.size;
    return 1;
}

const char *cli_transfer_trailer(const struct cli_transfer *transfer)
{
    return transfer->trailer;
}

int cli_transfer_mode(const struct cli_transfer *transfer)
{
    return transfer->mode;
}

/* -- answers -- */

static enum error_code code_of(int status)
{
    switch (status) {
    case 401:
        return ERROR_UNAUTHENTICATED;
    case 403:
        return ERROR_FORBIDDEN;
    case 404:
        return ERROR_NOT_FOUND;
    case 409:
        return ERROR_CONFLICT;
    case 410:
        return ERROR_GONE;
    case 413:
        return ERROR_TOO_LARGE;
    case 429:
        return ERROR_LIMIT;
    case 502:
        return ERROR_ENGINE;
    case 503:
        return ERROR_UNAVAILABLE;
    case 504:
        return ERROR_TIMEOUT;
    case 507:
        return ERROR_NO_SPACE;
    default:
        return ERROR_INTERNAL;
    }
}

/* {"detail": "text"} or {"detail": [{"loc": […, "field"], "msg": "text"}]}. Caller frees; NULL: neither. */
static char *detail_of(const char *body)
{
    auto_json struct json_object *object = NULL;
    struct error ignored = ERROR_INIT;
    struct json_object *detail;
    struct json_object *first;
    struct json_object *place;

    if (json_parse(body, strlen(body), &object, NULL, &ignored) < 0 || !(detail = cli_member(object, "detail")))
        return NULL;
    if (json_object_is_type(detail, json_type_string))
        return alloc_str(json_object_get_string(detail));
    if (cli_length(detail) == 0)
        return NULL;
    first = json_object_array_get_idx(detail, 0);
    place = cli_member(first, "loc");
    if (cli_length(place) == 0 || !cli_str(first, "msg"))
        return NULL;
    return alloc_format("%s: %s", json_object_get_string(json_object_array_get_idx(place, cli_length(place) - 1)),
                        cli_str(first, "msg"));
}

int cli_refused(const struct cli *cli, int status, const char *body, struct error *err)
{
    auto_free char *detail = detail_of(body);

    if (status == 401 && !cli->token)
        return fail(err, UNAUTHENTICATED, "%s wants a token: put it into a file and name that in BERTH_TOKEN_FILE",
                    cli->url);
    if (status == 401)
        return fail(err, UNAUTHENTICATED, "%s does not take this token: is it this broker's SANDBOXD_TOKEN?", cli->url);
    if (status == 404 && detail && strcmp(detail, "Not Found") == 0)
        return fail(err, NOT_FOUND, "%s has no such route: is that a berthd, and as new as this berth?", cli->url);
    if (detail)
        return error_set(err, code_of(status), status, "%.220s", detail);
    return error_set(err, code_of(status), status, "%s answered %d", cli->url, status);
}

int cli_transfer_refused(struct cli_transfer *transfer, int status, struct error *err)
{
    auto_buf struct buf body = BUF_INIT(ERROR_MAX_BYTES);
    struct error ignored = ERROR_INIT;
    const char *data;
    size_t size;

    while (cli_transfer_read(transfer, true, &data, &size, &ignored) > 0 &&
           buf_append(&body, data, size, &ignored) == 0)
        ;
    return cli_refused(transfer->cli, status, buf_str(&body), err);
}

int cli_call_within(struct cli *cli, int64_t timeout_ms, const char *method, const char *target,
                    struct json_object *body, struct json_object **ret, struct error *err)
{
    const char *text = body ? json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN) : NULL;
    struct cli_request request = {.method = method,
                                  .target = target,
                                  .body = text,
                                  .body_size = text ? strlen(text) : 0,
                                  .timeout_ms = timeout_ms};
    auto_transfer struct cli_transfer *transfer = NULL;
    auto_buf struct buf answer = BUF_INIT(ANSWER_MAX_BYTES);
    const char *data;
    size_t size;
    int status;
    int more;

    if (cli_transfer_start(cli, &request, &transfer, err) < 0 || cli_transfer_status(transfer, &status, err) < 0)
        return -1;
    if (status < 200 || status > 299)
        return cli_transfer_refused(transfer, status, err);
    while ((more = cli_transfer_read(transfer, true, &data, &size, err)) > 0)
        if (buf_append(&answer, data, size, err) < 0)
            return -1;
    if (more < 0)
        return -1;
    if (!ret)
        return 0;
    *ret = NULL;
    if (answer.size && json_parse(buf_str(&answer), answer.size, ret, NULL, err) < 0)
        return error_set(err, ERROR_INTERNAL, 0, "%s answered something else than JSON: is that a berthd?", cli->url);
    return 0;
}

int cli_call(struct cli *cli, const char *method, const char *target, struct json_object *body,
             struct json_object **ret, struct error *err)
{
    return cli_call_within(cli, CALL_MS, method, target, body, ret, err);
}

/* -- targets -- */

static void append_escaped(struct buf *out, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    struct error err = ERROR_INIT;

    for (; *text; text++)
        (void)buf_append_format(out, &err, strchr(plain, *text) ? "%c" : "%%%02X", (unsigned char)*text);
}

char *cli_target(const char *format, ...)
{
    auto_buf struct buf out = BUF_INIT(1024 * 1024);
    struct error err = ERROR_INIT;
    va_list arguments;

    va_start(arguments, format);
    for (; *format; format++) {
        if (format[0] == '%' && format[1] == 's') {
            append_escaped(&out, va_arg(arguments, const char *));
            format++;
        } else {
            (void)buf_append(&out, format, 1, &err);
        }
    }
    va_end(arguments);
    return buf_take(&out, NULL);
}
