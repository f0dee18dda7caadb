#include "net_http.h"

#include "alloc.h"
#include "clock.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { PIECE_MAX = 64 * 1024, SOCKETS_MAX = 8 };

struct net_http {
    CURL *easy;
    CURLM *multi;
    struct curl_slist *headers;
    char reason[CURL_ERROR_SIZE];
    struct pollfd sockets[SOCKETS_MAX]; /* what libcurl wants to hear about; fd -1: free place */
    int64_t timer_ms;                   /* clock_mono_ms() at which libcurl wants to be called; -1: never */
    struct buf body;                    /* received, and not given to the reader or still held by it */
    size_t given;                       /* bytes at the front that the reader holds until its next call */
    bool paused;
    bool header_done;
    bool finished;
    CURLcode result; /* once finished */
};

DEFINE_CLEANUP(http, struct net_http *, net_http_close)

static void init_curl(void)
{
    if (curl_global_init(CURL_GLOBAL_NOTHING) != CURLE_OK) /* TLS is made ready by the first transfer that has any */
        abort();
}

void net_http_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, init_curl);
}

/* libcurl tells which descriptors to watch, so that cancel_poll() can watch them together with the cancel's own. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *unused)
{
    struct net_http *http = context;
    struct pollfd *place = NULL;

    for (int i = 0; i < SOCKETS_MAX; i++) {
        if (http->sockets[i].fd == fd) {
            place = &http->sockets[i];
            break;
        }
        if (http->sockets[i].fd < 0 && !place)
            place = &http->sockets[i];
    }
    if (!place)
        return -1; /* libcurl gives up the transfer */
    *place = (struct pollfd){.fd = what == CURL_POLL_REMOVE ? -1 : fd};
    if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
        place->events |= POLLIN;
    if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
        place->events |= POLLOUT;
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *context)
{
    struct net_http *http = context;

    http->timer_ms = timeout_ms < 0 ? -1 : clock_mono_ms() + timeout_ms;
    return 0;
}

static size_t on_header(char *line, size_t one, size_t size, void *context)
{
    struct net_http *http = context;
    long status = 0;

    if (size == 2 && memcmp(line, "\r\n", 2) == 0 &&
        curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK && status >= 200)
        http->header_done = true;
    return size;
}

static size_t on_body(char *data, size_t one, size_t size, void *context)
{
    struct net_http *http = context;
    struct error ignored = ERROR_INIT;

    if (http->body.size > 0 && http->body.size + size > PIECE_MAX) {
        http->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    return buf_append(&http->body, data, size, &ignored) < 0 ? 0 : size;
}

static void setup(struct net_http *http, const struct net_http_request *request, const char *url)
{
    char type[64];
    CURL *easy = http->easy;

    /* Failures of these can only be lack of memory; the transfer then fails by itself. */
    (void)curl_easy_setopt(easy, CURLOPT_URL, url);
    if (request->socket_path)
        (void)curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, request->socket_path);
    (void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, request->socket_path ? "http" : "http,https");
    (void)curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* a name that is being looked up holds no close up */
    (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, http->reason);
    (void)curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(easy, CURLOPT_HEADERDATA, http);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, http);
    if (strcmp(request->method, "POST") == 0) {
        (void)curl_easy_setopt(easy, CURLOPT_POST, 1L);
        (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_size);
        (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body ? request->body : "");
    } else if (strcmp(request->method, "GET") != 0) {
        (void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    }
    (void)snprintf(type, sizeof type, "Content-Type: %s", request->body_type ? request->body_type : "application/json");
    http->headers = curl_slist_append(NULL, type);
    (void)curl_slist_append(http->headers, "Expect:");
    for (const char *const *line = request->headers; line && *line; line++)
        (void)curl_slist_append(http->headers, *line);
    (void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, http->headers);
    (void)curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (void)curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    (void)curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    (void)curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
}

/* Why a transfer ended, as one of our errors. */
static int failed(const struct net_http *http, struct error *err)
{
    const char *reason = http->reason[0] ? http->reason : curl_easy_strerror(http->result);

    return fail(err, UNAVAILABLE, "%s: %.120s",
                http->result == CURLE_COULDNT_CONNECT ? "cannot connect" : "the connection failed", reason);
}

static void act(struct net_http *http, curl_socket_t fd, int events)
{
    CURLMsg *message;
    int running, left;

    if (curl_multi_socket_action(http->multi, fd, events, &running) != CURLM_OK) {
        http->finished = true;
        http->result = CURLE_SEND_ERROR;
    }
    while ((message = curl_multi_info_read(http->multi, &left))) {
        if (message->msg == CURLMSG_DONE) {
            http->finished = true;
            http->result = message->data.result;
        }
    }
}

/* Let the transfer go on until something happened to it. Blocks. */
static int step(struct net_http *http, const struct cancel *cancel, struct error *err)
{
    struct pollfd fds[SOCKETS_MAX];
    unsigned count = 0;
    struct cancel until = *cancel;
    struct error why = ERROR_INIT;

    for (int i = 0; i < SOCKETS_MAX; i++) {
        if (http->sockets[i].fd >= 0)
            fds[count++] = http->sockets[i];
    }
    if (http->timer_ms >= 0 && (until.deadline_ms == 0 || http->timer_ms < until.deadline_ms))
        until.deadline_ms = http->timer_ms;
    if (cancel_poll(&until, fds, count, &why) < 0) {
        if (why.code != ERROR_TIMEOUT || cancel_remaining_ms(cancel) == 0) {
            *err = why;
            return -1;
        }
        http->timer_ms = -1;
        act(http, CURL_SOCKET_TIMEOUT, 0);
        return 0;
    }
    for (unsigned i = 0; i < count; i++) {
        int events = 0;

        if (fds[i].revents & (POLLIN | POLLHUP))
            events |= CURL_CSELECT_IN;
        if (fds[i].revents & POLLOUT)
            events |= CURL_CSELECT_OUT;
        if (fds[i].revents & (POLLERR | POLLNVAL))
            events |= CURL_CSELECT_ERR;
        if (events)
            act(http, fds[i].fd, events);
    }
    return 0;
}

int net_http_escape(struct buf *out, const char *text, struct error *err)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

    for (const char *c = text; *c; c++) {
        int result = strchr(plain, *c) ? buf_append(out, c, 1, err)
                                       : buf_append_format(out, err, "%%%02X", (unsigned)(unsigned char)*c);

        if (result < 0)
            return -1;
    }
    return 0;
}

int net_http_open(const struct net_http_request *request, const struct cancel *cancel, struct net_http **ret_http,
                  int *ret_status, struct error *err)
{
    auto_cleanup(cleanup_http) struct net_http *http = alloc_zero(sizeof *http);
    auto_free char *url =
        request->socket_path ? alloc_format("http://engine%s", request->target) : alloc_str(request->url);
    long status = 0;

    net_http_init();
    http->body = (struct buf)BUF_INIT(PIECE_MAX + CURL_MAX_WRITE_SIZE);
    http->timer_ms = -1;
    for (int i = 0; i < SOCKETS_MAX; i++)
        http->sockets[i].fd = -1;
    if (cancel_check(cancel, err) < 0)
        return -1;
    http->easy = curl_easy_init();
    http->multi = curl_multi_init();
    if (!http->easy || !http->multi)
        return fail(err, UNAVAILABLE, "no memory or descriptors for a transfer");
    setup(http, request, url);
    if (curl_multi_add_handle(http->multi, http->easy) != CURLM_OK)
        return fail(err, UNAVAILABLE, "no memory or descriptors for a transfer");
    while (!http->header_done && !http->finished) {
        if (step(http, cancel, err) < 0)
            return -1;
    }
    if (http->finished && http->result != CURLE_OK && !http->header_done)
        return failed(http, err);
    (void)curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &status);
    *ret_status = (int)status;
    *ret_http = take_ptr(http);
    return 0;
}

int net_http_read(struct net_http *http, const struct cancel *cancel, const char **ret_data, size_t *ret_size,
                  struct error *err)
{
    buf_consume(&http->body, http->given);
    http->given = 0;
    while (http->body.size == 0) {
        if (http->finished)
            return http->result == CURLE_OK ? 0 : failed(http, err);
        if (http->paused) {
            http->paused = false;
            (void)curl_easy_pause(http->easy, CURLPAUSE_CONT); /* may call on_body() at once */
            continue;
        }
        if (step(http, cancel, err) < 0)
            return -1;
    }
    *ret_data = http->body.data;
    *ret_size = http->given = http->body.size;
    return 1;
}

void net_http_close(struct net_http *http)
{
    if (!http)
        return;
    if (http->multi && http->easy)
        (void)curl_multi_remove_handle(http->multi, http->easy);
    if (http->easy)
        curl_easy_cleanup(http->easy);
    if (http->multi)
        (void)curl_multi_cleanup(http->multi);
    curl_slist_free_all(http->headers);
    buf_done(&http->body);
    free(http);
}

int net_http_fetch(const struct net_http_request *request, const struct cancel *cancel, int *ret_status,
                   struct buf *ret_body, struct error *err)
{
    auto_cleanup(cleanup_http) struct net_http *http = NULL;
    const char *data;
    size_t size;
    int more;

    if (net_http_open(request, cancel, &http, ret_status, err) < 0)
        return -1;
    while ((more = net_http_read(http, cancel, &data, &size, err)) > 0) {
        if (buf_append(ret_body, data, size, err) < 0)
            return -1;
    }
    return more;
}
