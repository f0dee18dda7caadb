#include "alloc.h"
#include "cleanup.h"
#include "fd.h"
#include "id.h"
#include "provider_docker_private.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

char *provider_file_path(const char *dir, const char *prefix, const void *data, size_t size)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    char hex[17];

    crypto_hash_sha256(hash, data, size);
    (void)sodium_bin2hex(hex, sizeof hex, hash, 8);
    return alloc_format("%s/%s%s", dir, prefix, hex);
}

/* A regular file of that content and mode, and not somebody else's. */
static bool is_right(const char *path, const void *data, size_t size, mode_t mode)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    auto_buf struct buf content = BUF_INIT(size + 1);
    struct error ignored = ERROR_INIT;
    struct stat status;

    return fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & 07777) == mode &&
           status.st_uid == geteuid() && (size_t)status.st_size == size && fd_read_all(fd, &content, &ignored) == 0 &&
           content.size == size && memcmp(content.data, data, size) == 0;
}

static int write_whole(const char *path, const void *data, size_t size, mode_t mode, struct error *err)
{
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return fail_errno(err, "%s", path);
    if (fd_write_all(fd, data, size, err) < 0)
        return -1;
    if (fchmod(fd, mode) < 0 || fsync(fd) < 0)
        return fail_errno(err, "%s", path);
    return 0;
}

int provider_file_keep(const char *path, const void *data, size_t size, mode_t mode, struct error *err)
{
    char random[17];
    auto_free char *fresh = NULL;

    if (is_right(path, data, size, mode))
        return 0;
    id_random_hex(random, 16);
    fresh = alloc_format("%s.%s", path, random);
    (void)rmdir(path); /* an engine that found nothing there may have made a directory */
    if (write_whole(fresh, data, size, mode, err) < 0) {
        (void)unlink(fresh);
        return -1;
    }
    if (rename(fresh, path) < 0) {
        (void)fail_errno(err, "%s", path);
        (void)unlink(fresh);
        return -1;
    }
    return 0;
}
