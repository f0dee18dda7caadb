#include "http_private.h"

#include "alloc.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The table as a tree of segments: a lookup costs one comparison a segment and sibling, however many routes there are.
 */
struct node {
    struct node *next;
    struct node *children;
    struct node *param; /* the child that takes any segment */
    const char *literal;
    size_t size;
    unsigned methods;
    const struct http_route *routes[HTTP_METHODS];
};

struct http_router {
    struct node root;
};

static const char *const method_names[HTTP_METHODS] = {
    [HTTP_GET] = "GET", [HTTP_POST] = "POST", [HTTP_PUT] = "PUT", [HTTP_DELETE] = "DELETE"};

static struct node *child_of(struct node *parent, const char *segment, size_t size)
{
    struct node *child;

    if (segment[0] == '{') {
        assert(segment[size - 1] == '}');
        if (!parent->param)
            parent->param = alloc_zero(sizeof *parent->param);
        return parent->param;
    }
    for (child = parent->children; child; child = child->next)
        if (child->size == size && memcmp(child->literal, segment, size) == 0)
            return child;
    child = alloc_zero(sizeof *child);
    child->literal = segment;
    child->size = size;
    child->next = parent->children;
    parent->children = child;
    return child;
}

struct http_router *http_router_new(const struct http_route *routes, size_t count)
{
    struct http_router *router = alloc_zero(sizeof *router);

    for (size_t i = 0; i < count; i++) {
        struct node *node = &router->root;
        const char *at = routes[i].path;

        assert(*at == '/');
        while (*at == '/' && at[1]) {
            size_t size = strcspn(++at, "/");

            assert(size > 0);
            node = child_of(node, at, size);
            at += size;
        }
        assert(!node->routes[routes[i].method]); /* one handler a method and path */
        node->routes[routes[i].method] = &routes[i];
        node->methods |= 1u << routes[i].method;
    }
    return router;
}

static void free_children(struct node *node)
{
    struct node *child = node->children;

    while (child) {
        struct node *next = child->next;

        free_children(child);
        free(child);
        child = next;
    }
    if (node->param) {
        free_children(node->param);
        free(node->param);
    }
}

void http_router_free(struct http_router *router)
{
    if (!router)
        return;
    free_children(&router->root);
    free(router);
}

/* A literal goes before a parameter, and both are tried: the one with the method wins. */
static bool walk(const struct node *node, int method, const struct http_text *segments, size_t count,
                 struct http_match *match)
{
    if (count == 0) {
        match->methods |= node->methods;
        if (method < 0 || !node->routes[method])
            return false;
        match->route = node->routes[method];
        return true;
    }
    if (!segments->data)
        return false; /* a slash or nothing in it: no route takes that */
    for (const struct node *child = node->children; child; child = child->next)
        if (child->size == segments->size && memcmp(child->literal, segments->data, child->size) == 0 &&
            walk(child, method, segments + 1, count - 1, match))
            return true;
    if (node->param && match->param_count < HTTP_PARAMS_MAX) {
        match->params[match->param_count++] = *segments;
        if (walk(node->param, method, segments + 1, count - 1, match))
            return true;
        match->param_count--;
    }
    return false;
}

void http_router_match(const struct http_router *router, int method, const char *path, size_t size, char *scratch,
                       struct http_match *match)
{
    struct http_text segments[HTTP_SEGMENTS_MAX] = {{NULL, 0}};
    size_t count = 0;
    const char *end = path + size;
    bool slash = size > 1 && end[-1] == '/';

    memset(match, 0, sizeof *match);
    if (size == 0 || path[0] != '/')
        return;
    if (slash)
        end--;
    while (path < end && end - path > (count == 0 ? 1 : 0)) {
        const char *segment = path + 1;
        const char *stop = memchr(segment, '/', (size_t)(end - segment));
        size_t decoded;

        if (!stop)
            stop = end;
        if (count == HTTP_SEGMENTS_MAX)
            return;
        decoded = http_percent_decode(scratch, segment, (size_t)(stop - segment), false);
        scratch[decoded] = '\0';
        segments[count].data = decoded == 0 || memchr(scratch, '/', decoded) ? NULL : scratch;
        segments[count++].size = decoded;
        scratch += decoded + 1;
        path = stop;
    }
    (void)walk(&router->root, method, segments, count, match);
    if (slash) {
        match->slash = match->methods != 0;
        match->methods = 0;
        match->route = NULL;
    }
}

int http_method_of(const char *name)
{
    for (int i = 0; i < HTTP_METHODS; i++)
        if (strcmp(name, method_names[i]) == 0)
            return i;
    return -1;
}

void http_methods_text(unsigned methods, char out[static 32])
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < HTTP_METHODS; i++)
        if (methods & 1u << i)
            used += (size_t)snprintf(out + used, 32 - used, "%s%s", used ? ", " : "", method_names[i]);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

size_t http_percent_decode(char *out, const char *in, size_t size, bool plus_is_space)
{
    char *start = out;

    for (size_t i = 0; i < size; i++) {
        if (in[i] == '%' && size - i > 2 && hex_value(in[i + 1]) >= 0 && hex_value(in[i + 2]) >= 0) {
            *out++ = (char)(hex_value(in[i + 1]) * 16 + hex_value(in[i + 2]));
            i += 2;
        } else {
            *out++ = plus_is_space && in[i] == '+' ? ' ' : in[i];
        }
    }
    return (size_t)(out - start);
}
