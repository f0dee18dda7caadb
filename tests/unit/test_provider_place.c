/* Where the engine's host has our files: who we are by what the kernel shows, and the way from our paths to the host's. */
#include "cleanup.h"
#include "provider_docker_private.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

static const struct {
    const char *mountinfo, *cgroup, *hostname;
    const char *ids[3];
} looks[] = {
    /* Docker, cgroup v2 in a namespace of its own: only the mounts tell */
    {"700 600 0:60 / / rw - overlay overlay rw\n"
     "714 700 8:1 /var/lib/docker/containers/" ID "/resolv.conf /etc/resolv.conf rw - ext4 /dev/sda1 rw\n"
     "715 700 8:1 /var/lib/docker/containers/" ID "/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n",
     "0::/\n",
     "broker",
     {ID}},
    /* Podman */
    {"714 700 0:25 /containers/overlay-containers/" ID "/userdata/hostname /etc/hostname rw - tmpfs tmpfs rw\n",
     "",
     "x",
     {ID}},
    /* cgroups of both versions; of nested ones the inner */
    {"", "9:memory:/docker/" OTHER "/docker/" ID "\n0::/system.slice/docker-" ID ".scope\n", "x", {ID}},
    /* a hostname that nobody chose; the mounts come first */
    {"7 6 8:1 /c/" OTHER "/hosts /etc/hosts rw - ext4 d rw\n", "", "0123456789ab", {OTHER, "0123456789ab"}},
    /* the host itself: what it keeps for containers is mounted elsewhere */
    {"700 600 0:60 / /var/lib/docker/containers/" ID "/mounts/shm rw - tmpfs shm rw\n"
     "714 700 8:1 /etc/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n",
     "4:memory:/process_api/8d2758d3a41af08e766e78e712386c99\n0::/user.slice\n",
     "vm",
     {NULL}},
    /* as long as an id, and none */
    {"7 6 8:1 /c/" ID "0/hosts /etc/hosts rw - ext4 d rw\n", "0::/" ID "a\n", "0123456789AB", {NULL}},
    /* cut off, empty */
    {"7 6 8:1 /c/" ID "/hosts", "", "", {NULL}},
    {"\n\n7\n7 6 8:1\n", "\n\n", "", {NULL}},
};

Test(provider_place, tells_the_container_it_may_be_in)
{
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        struct place_candidates found;
        size_t count = 0;

        place_candidates_of(looks[i].mountinfo, looks[i].cgroup, looks[i].hostname, &found);
        while (looks[i].ids[count])
            count++;
        cr_assert(eq(sz, found.count, count), "look %zu", i);
        for (size_t k = 0; k < count; k++)
            cr_assert(eq(str, found.ids[k], (char *)looks[i].ids[k]), "look %zu", i);
    }
}

Test(provider_place, takes_so_many_candidates_and_no_more)
{
    char cgroup[20 * 70] = "";
    struct place_candidates found;

    for (int i = 0; i < 20; i++)
        (void)snprintf(cgroup + strlen(cgroup), sizeof cgroup - strlen(cgroup), "/%064x\n", i);
    place_candidates_of("", cgroup, "", &found);
    cr_assert(eq(sz, found.count, PLACE_CANDIDATES_MAX));
}

static const struct {
    const char *path, *host;
} ways[] = {
    {"/workspaces", "/var/lib/docker/volumes/w/_data"},
    {"/workspaces/.slots/a/workspace", "/var/lib/docker/volumes/w/_data/.slots/a/workspace"},
    {"/workspaces/.berth/agent-1", "/srv/state/agent-1"}, /* the mount that is nearest */
    {"/workspaces/.berthold", "/var/lib/docker/volumes/w/_data/.berthold"},
    {"/slash/x", "/host/x"},
    {"/all/x", "//x"},
    {"/workspaces2", NULL}, /* not below it */
    {"/var/lib/berth", NULL},
    {"/shm/x", NULL},
    {"/remote/x", NULL},
};

Test(provider_place, translates_by_the_nearest_mount_or_says_why_not)
{
    struct engine_mount list[] = {
        {.type = "volume", .source = "/var/lib/docker/volumes/w/_data", .destination = "/workspaces"},
        {.type = "bind", .source = "/srv/state", .destination = "/workspaces/.berth"},
        {.type = "bind", .source = "/host/", .destination = "/slash/"},
        {.type = "bind", .source = "/", .destination = "/all"},
        {.type = "tmpfs", .source = "", .destination = "/shm"},
        {.type = "volume", .source = "", .destination = "/remote"},
        {.type = "bind", .source = "/x", .destination = ""},
    };
    const struct engine_mounts mounts = {.list = list, .count = sizeof list / sizeof *list};

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        auto_free char *host = NULL;
        struct error err = ERROR_INIT;
        int result = place_translate(&mounts, ways[i].path, &host, &err);

        cr_assert(eq(int, result, ways[i].host ? 0 : -1), "%s: %s", ways[i].path, err.text);
        if (ways[i].host)
            cr_assert(eq(str, host, (char *)ways[i].host), "%s", ways[i].path);
        else
            cr_assert(eq(int, (int)err.code, ERROR_INVALID), "%s", ways[i].path);
    }
}
