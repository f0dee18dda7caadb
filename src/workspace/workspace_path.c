/* Lexical rules of paths, before any I/O. */
#include "alloc.h"
#include "workspace.h"

#include <errno.h>
#include <string.h>

static bool is_dot(const char *part, size_t size)
{
    return size == 1 && part[0] == '.';
}

static bool is_dotdot(const char *part, size_t size)
{
    return size == 2 && part[0] == '.' && part[1] == '.';
}

/* The next component of a path, slashes skipped; *ret_size 0 at the end. */
static const char *next_part(const char *at, const char *end, size_t *ret_size)
{
    const char *stop;

    while (at < end && *at == '/')
        at++;
    stop = memchr(at, '/', (size_t)(end - at));
    *ret_size = (size_t)((stop ? stop : end) - at);
    return at;
}

/* Behind `work_dir` if the path starts with its components; NULL if not. */
static const char *strip_work_dir(const char *work_dir, const char *path, const char *end)
{
    const char *dir_end = work_dir + strlen(work_dir);

    for (;;) {
        size_t dir_size;
        size_t size;

        work_dir = next_part(work_dir, dir_end, &dir_size);
        if (dir_size == 0)
            return path;
        path = next_part(path, end, &size);
        if (size != dir_size || memcmp(path, work_dir, size) != 0)
            return NULL;
        path += size;
        work_dir += size;
    }
}

/* Components joined by single slashes, "." left out. */
static char *join_parts(const char *at, const char *end)
{
    char *joined = alloc_zero((size_t)(end - at) + 1);
    size_t used = 0;

    for (;;) {
        size_t size;

        at = next_part(at, end, &size);
        if (size == 0)
            return joined;
        if (!is_dot(at, size)) {
            if (used)
                joined[used++] = '/';
            memcpy(joined + used, at, size);
            used += size;
        }
        at += size;
    }
}

static bool has_part(const char *at, const char *end, bool (*is_it)(const char *part, size_t size))
{
    for (;;) {
        size_t size;

        at = next_part(at, end, &size);
        if (size == 0)
            return false;
        if (is_it(at, size))
            return true;
        at += size;
    }
}

int workspace_path_live(const char *work_dir, const char *path, size_t size, char **ret_path, struct error *err)
{
    const char *end = path + size;
    const char *below;

    if (size == 0 || path[0] != '/')
        return error_set(err, ERROR_INVALID, EINVAL, "the path is not absolute");
    if (memchr(path, '\0', size))
        return error_set(err, ERROR_INVALID, EINVAL, "embedded null byte");
    if (size > 1 && path[1] == '/')
        return error_set(err, ERROR_HANDOVER, 0, "the path starts with two slashes");
    if (has_part(path, end, is_dot) || has_part(path, end, is_dotdot))
        return error_set(err, ERROR_HANDOVER, 0, "the path has a component '.' or '..'");
    below = strip_work_dir(work_dir, path, end);
    if (!below)
        return error_set(err, ERROR_HANDOVER, 0, "the path is not below the work dir");
    *ret_path = join_parts(below, end);
    return 0;
}

int workspace_path_archive(const char *work_dir, const char *path, size_t size, char **ret_path, struct error *err)
{
    const char *end = path + size;
    const char *below = NULL;

    if (memchr(path, '\0', size))
        return error_set(err, ERROR_INVALID, EINVAL, "embedded null byte");
    if (has_part(path, end, is_dotdot))
        return error_set(err, ERROR_INVALID, EINVAL, "the path has a component '..'");
    if (size && path[0] == '/')
        below = strip_work_dir(work_dir, path, end);
    *ret_path = join_parts(below ? below : path, end);
    return 0;
}

int workspace_path_place(const char *work_dir, const char *path, size_t size, char **ret_path, struct error *err)
{
    if (size && path[0] == '/' && !strip_work_dir(work_dir, path, path + size))
        return error_set(err, ERROR_INVALID, EINVAL, "the path is not below the work dir");
    return workspace_path_archive(work_dir, path, size, ret_path, err);
}
