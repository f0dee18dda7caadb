#include "http_private.h"

#include <criterion/criterion.h>
#include <string.h>

static int nothing(struct http_request *request, struct http_reply *reply, void *context, struct error *err)
{
    return 0;
}

static const struct http_route routes[] = {
    {HTTP_GET, "/", nothing, HTTP_BODY_NONE, 0},
    {HTTP_GET, "/sessions", nothing, HTTP_BODY_NONE, 1},
    {HTTP_POST, "/sessions", nothing, HTTP_BODY_JSON, 2},
    {HTTP_GET, "/sessions/{id}", nothing, HTTP_BODY_NONE, 3},
    {HTTP_DELETE, "/sessions/{id}", nothing, HTTP_BODY_NONE, 4},
    {HTTP_POST, "/sessions/special", nothing, HTTP_BODY_JSON, 5},
    {HTTP_POST, "/sessions/{id}/runs/{run}/stop", nothing, HTTP_BODY_JSON, 6},
};

static char scratch[4096];
static struct http_match match;

static int find(int method, const char *path)
{
    struct http_router *router = http_router_new(routes, sizeof routes / sizeof *routes);

    http_router_match(router, method, path, strlen(path), scratch, &match);
    http_router_free(router);
    return match.route ? match.route->access : -1;
}

Test(http_route, finds_literals_and_parameters)
{
    cr_expect(find(HTTP_GET, "/") == 0);
    cr_expect(find(HTTP_GET, "/sessions") == 1);
    cr_expect(find(HTTP_POST, "/sessions") == 2);
    cr_expect(find(HTTP_GET, "/sessions/a") == 3);
    cr_expect(find(HTTP_POST, "/sessions/a/runs/b/stop") == 6);
    cr_expect_str_eq(match.params[0].data, "a");
    cr_expect_str_eq(match.params[1].data, "b");
}

Test(http_route, prefers_a_literal_unless_only_the_parameter_has_the_method)
{
    cr_expect(find(HTTP_POST, "/sessions/special") == 5);
    cr_expect(match.param_count == 0);
    cr_expect(find(HTTP_GET, "/sessions/special") == 3);
    cr_expect(match.param_count == 1);
    cr_expect_str_eq(match.params[0].data, "special");
}

Test(http_route, tells_the_methods_of_a_known_path)
{
    char text[32];

    cr_expect(find(HTTP_PUT, "/sessions/special") == -1);
    http_methods_text(match.methods, text);
    cr_expect_str_eq(text, "GET, POST, DELETE");
    cr_expect(find(-1, "/sessions") == -1 && match.methods != 0);
    cr_expect(find(HTTP_GET, "/nothing") == -1 && match.methods == 0);
}

Test(http_route, decodes_after_cutting_at_slashes)
{
    cr_expect(find(HTTP_GET, "/sessions/a%20b%2e") == 3);
    cr_expect_str_eq(match.params[0].data, "a b.");
    cr_expect(find(HTTP_GET, "/se%73sions") == 1);
    cr_expect(find(HTTP_GET, "/sessions/a%2Fb") == -1 && match.methods == 0, "a slash in a segment is no route's");
    cr_expect(find(HTTP_GET, "/sessions%2Fa") == -1);
    cr_expect(find(HTTP_GET, "/sessions/a%00b") == 3);
    cr_expect(match.params[0].size == 3 && memcmp(match.params[0].data, "a\0b", 4) == 0, "a NUL stays in");
    cr_expect(find(HTTP_GET, "/sessions/%zz%4") == 3);
    cr_expect_str_eq(match.params[0].data, "%zz%4");
    cr_expect(find(HTTP_GET, "/sessions/a+b") == 3);
    cr_expect_str_eq(match.params[0].data, "a+b");
}

Test(http_route, takes_no_empty_segment_and_points_to_the_path_without_a_slash)
{
    cr_expect(find(HTTP_GET, "//") == -1 && match.slash);
    cr_expect(find(HTTP_GET, "/sessions/") == -1 && match.slash && match.methods == 0);
    cr_expect(find(HTTP_GET, "/sessions/a/") == -1 && match.slash);
    cr_expect(find(HTTP_GET, "/sessions//") == -1 && !match.slash);
    cr_expect(find(HTTP_GET, "/sessions//runs/b/stop") == -1 && match.methods == 0);
    cr_expect(find(HTTP_GET, "//evil.example/") == -1 && !match.slash);
    cr_expect(find(HTTP_GET, "") == -1);
    cr_expect(find(HTTP_GET, "sessions") == -1);
    cr_expect(find(HTTP_GET, "*") == -1);
}

Test(http_route, bounds_the_depth)
{
    char path[1024] = "";

    for (int i = 0; i < 300; i++)
        (void)strncat(path, "/a", sizeof path - strlen(path) - 1);
    cr_expect(find(HTTP_GET, path) == -1 && match.methods == 0);
}
