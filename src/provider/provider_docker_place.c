/* Where the engine's host has our files. A broker on the host names its paths as they are; one in a container has to look at itself
 * through the engine. What is believed of that is proved: a file of a random name is made on our side, and the engine must see it where
 * it was worked out to be. Nothing here comes from a client. */
#include "alloc.h"
#include "cleanup.h"
#include "fd.h"
#include "id.h"
#include "log.h"
#include "provider_docker_private.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ID_BYTES = 64, SHORT_ID_BYTES = 12, PROC_FILE_MAX = 4 * 1024 * 1024 };

/* -- who are we? -- */

static void add_candidate(struct place_candidates *candidates, const char *id, size_t size)
{
    for (size_t i = 0; i < candidates->count; i++)
        if (strlen(candidates->ids[i]) == size && memcmp(candidates->ids[i], id, size) == 0)
            return;
    if (candidates->count < PLACE_CANDIDATES_MAX) {
        memcpy(candidates->ids[candidates->count], id, size);
        candidates->ids[candidates->count++][size] = '\0';
    }
}

/* The last run of exactly 64 hex digits in a line: of nested containers the inner one. NULL: none. */
static const char *last_id(const char *line, size_t size)
{
    const char *found = NULL;

    for (size_t i = 0; i < size;) {
        size_t run = 0;

        while (i + run < size && isxdigit((unsigned char)line[i + run]))
            run++;
        if (run == ID_BYTES)
            found = line + i;
        i += run ? run : 1;
    }
    return found;
}

/* The three files that every engine puts into a container's /etc, by the folder they come from. */
static void look_at_mount(struct place_candidates *candidates, const char *line, size_t size)
{
    static const char *const points[] = {"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"};
    const char *id = NULL, *at = line;
    size_t field_size = 0;

    for (int field = 0; field < 5; field++) { /* id, parent, device, root, mount point */
        if (field)
            at += field_size + 1;
        if (at >= line + size)
            return;
        field_size = strcspn(at, " \n");
        if (field == 3)
            id = last_id(at, field_size);
    }
    for (size_t i = 0; id && i < sizeof points / sizeof *points; i++)
        if (strlen(points[i]) == field_size && memcmp(points[i], at, field_size) == 0)
            add_candidate(candidates, id, ID_BYTES);
}

void place_candidates_of(const char *mountinfo, const char *cgroup, const char *hostname,
                         struct place_candidates *ret_candidates)
{
    size_t size = strlen(hostname);

    ret_candidates->count = 0;
    for (const char *line = mountinfo; *line; line += strcspn(line, "\n"), line += *line == '\n')
        look_at_mount(ret_candidates, line, strcspn(line, "\n"));
    for (const char *line = cgroup; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *id = last_id(line, strcspn(line, "\n"));

        if (id)
            add_candidate(ret_candidates, id, ID_BYTES);
    }
    if ((size == SHORT_ID_BYTES || size == ID_BYTES) && strspn(hostname, "0123456789abcdef") == size)
        add_candidate(ret_candidates, hostname, size);
}

static void read_proc(const char *path, struct buf *out)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct error ignored = ERROR_INIT;

    if (fd >= 0)
        (void)fd_read_all(fd, out, &ignored);
    if (buf_append(out, "", 1, &ignored) < 0)
        buf_clear(out);
}

static void look_at_ourselves(struct place_candidates *ret_candidates)
{
    auto_buf struct buf mountinfo = BUF_INIT(PROC_FILE_MAX);
    auto_buf struct buf cgroup = BUF_INIT(PROC_FILE_MAX);
    char hostname[256] = "";

    read_proc("/proc/self/mountinfo", &mountinfo);
    read_proc("/proc/self/cgroup", &cgroup);
    if (gethostname(hostname, sizeof hostname - 1) < 0)
        hostname[0] = '\0';
    place_candidates_of(buf_str(&mountinfo), buf_str(&cgroup), hostname, ret_candidates);
}

/* -- what is where -- */

static bool is_within(const char *path, const char *parent)
{
    size_t size = strlen(parent);

    while (size > 0 && parent[size - 1] == '/')
        size--;
    return strncmp(path, parent, size) == 0 && (path[size] == '\0' || path[size] == '/');
}

int place_translate(const struct engine_mounts *mounts, const char *path, char **ret_host, struct error *err)
{
    const struct engine_mount *best = NULL;
    const char *rest;
    size_t size;

    for (size_t i = 0; i < mounts->count; i++) {
        const struct engine_mount *mount = &mounts->list[i];

        if (mount->destination[0] == '/' && is_within(path, mount->destination) &&
            (!best || strlen(mount->destination) > strlen(best->destination)))
            best = mount;
    }
    if (!best)
        return fail(err, INVALID,
                    "%.80s lies in the broker's own container, out of which sandboxes can be given nothing: mount a "
                    "volume or a folder of the host there",
                    path);
    if (strcmp(best->type, "bind") != 0 && strcmp(best->type, "volume") != 0)
        return fail(err, INVALID, "%.80s lies on a mount of type %.20s: use a volume or a folder of the host", path,
                    best->type);
    if (best->source[0] != '/')
        return fail(err, INVALID, "%.80s lies on a %.20s of which the engine tells no path on its host", path,
                    best->type);
    size = strlen(best->destination);
    while (size > 0 && best->destination[size - 1] == '/')
        size--;
    rest = path + size;
    size = strlen(best->source);
    while (size > 1 && best->source[size - 1] == '/')
        size--;
    *ret_host = alloc_format("%.*s%s", (int)size, best->source, rest);
    return 0;
}

/* -- the proof -- */

static int prove_one(struct docker_provider *self, const struct engine_mounts *mounts, const char *dir,
                     const struct cancel *cancel, struct error *err)
{
    auto_free char *real = realpath(dir, NULL);
    auto_free char *mark = NULL, *host = NULL;
    enum engine_sight sight = ENGINE_UNTOLD;
    char random[17];
    int fd, result;

    if (!real)
        return fail_errno(err, "%.100s", dir);
    id_random_hex(random, 16);
    mark = alloc_format("%s/.berth-proof-%s", real, random);
    if (mounts && place_translate(mounts, mark, &host, err) < 0)
        return -1;
    fd = open(mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fail_errno(err, "%.100s", mark);
    (void)close(fd);
    result = engine_sees(self->engine, host ? host : mark, cancel, &sight, err);
    (void)unlink(mark);
    if (result < 0)
        return -1;
    if (sight == ENGINE_NOT_SEEN)
        return fail(err, INVALID, "%.80s is not %.80s on the engine's host: %s", dir, host ? host : dir,
                    mounts ? "something else is mounted over it"
                           : "the engine is not the one that runs the broker's container");
    if (sight == ENGINE_UNTOLD)
        log_warn("place.unproved", log_s("path", dir), log_s("on_host", host ? host : dir));
    return 0;
}

static int prove(struct docker_provider *self, const struct engine_mounts *mounts, const struct cancel *cancel,
                 struct error *err)
{
    if (prove_one(self, mounts, self->state_dir, cancel, err) < 0)
        return error_prefix(err, "SANDBOXD_STATE_DIR");
    if (self->workspace_root && prove_one(self, mounts, self->workspace_root, cancel, err) < 0)
        return error_prefix(err, "SANDBOXD_WORKSPACE_ROOT");
    return 0;
}

static void keep(struct docker_provider *self, struct engine_mounts *mounts)
{
    pthread_mutex_lock(&self->lock);
    if (!self->place_known) {
        self->place_known = true;
        self->place = *mounts;
        *mounts = (struct engine_mounts)ENGINE_MOUNTS_INIT;
    }
    pthread_mutex_unlock(&self->lock);
    engine_mounts_done(mounts);
}

static int find(struct docker_provider *self, const struct cancel *cancel, struct error *err)
{
    struct engine_mounts mounts = ENGINE_MOUNTS_INIT;
    struct place_candidates candidates;
    struct error why = ERROR_INIT;

    look_at_ourselves(&candidates);
    for (size_t i = 0; i < candidates.count; i++) {
        struct error refused = ERROR_INIT;

        if (engine_inspect_mounts(self->engine, candidates.ids[i], cancel, &mounts, &refused) == 0) {
            if (prove(self, &mounts, cancel, &refused) == 0) {
                log_info("place.container", log_s("container", mounts.id));
                keep(self, &mounts);
                return 0;
            }
            engine_mounts_done(&mounts);
        }
        if (refused.code != ERROR_NOT_FOUND && refused.code != ERROR_INVALID) {
            *err = refused;
            return -1;
        }
        if (refused.code == ERROR_INVALID && why.code == ERROR_NONE)
            why = refused;
    }
    if (why.code != ERROR_NONE) {
        *err = why;
        return -1;
    }
    /* On the host; or in a container of another engine, whose files this one may see under the same names or not. */
    if (candidates.count > 0 && prove(self, NULL, cancel, err) < 0)
        return -1;
    keep(self, &mounts);
    return 0;
}

int provider_docker_find_place(struct provider *provider, const struct cancel *cancel, struct error *err)
{
    struct docker_provider *self = (struct docker_provider *)provider;
    bool known;

    pthread_mutex_lock(&self->lock);
    known = self->place_known;
    pthread_mutex_unlock(&self->lock);
    return known ? 0 : find(self, cancel, err);
}

int docker_host_path(struct docker_provider *self, const char *path, const struct cancel *cancel, char **ret_host,
                     struct error *err)
{
    auto_free char *real = NULL;

    if (provider_docker_find_place(&self->base, cancel, err) < 0)
        return -1;
    if (!self->place.id[0]) { /* set once, before place_known */
        *ret_host = alloc_str(path);
        return 0;
    }
    real = realpath(path, NULL);
    if (!real)
        return fail_errno(err, "%.100s", path);
    return place_translate(&self->place, real, ret_host, err);
}
