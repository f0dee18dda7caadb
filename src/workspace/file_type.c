#include "file_type.h"

#include "fd.h"
#include "log.h"

#include <magic.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LOOK_BYTES = 16 * 1024 };

/* One of them, made at first use: its table is several megabytes. It is not made for threads. */
static pthread_mutex_t magic_lock = PTHREAD_MUTEX_INITIALIZER;
static magic_t magic;
static bool magic_failed;

/* What looks into containers and executables is of no use for a media type, and has been the library's weak side. */
static const int magic_flags = MAGIC_MIME | MAGIC_NO_CHECK_COMPRESS | MAGIC_NO_CHECK_ELF | MAGIC_NO_CHECK_CDF;

static bool load(void)
{
    if (magic || magic_failed)
        return magic != NULL;
    magic = magic_open(magic_flags);
    if (!magic || magic_load(magic, NULL) < 0) {
        log_warn("file_type.unavailable", log_s("reason", magic ? magic_error(magic) : "no memory"));
        if (magic)
            magic_close(magic);
        magic = NULL;
        magic_failed = true;
    }
    return magic != NULL;
}

static bool is_header_text(const char *text)
{
    for (; *text; text++)
        if (*text < 0x20 || *text > 0x7e)
            return false;
    return true;
}

void file_type_of(int fd, char out[static FILE_TYPE_BYTES])
{
    char data[LOOK_BYTES];
    struct error err = ERROR_INIT;
    ssize_t size = fd_pread_full(fd, data, sizeof data, 0, &err);
    const char *type = NULL;

    (void)snprintf(out, FILE_TYPE_BYTES, "application/octet-stream");
    if (size <= 0)
        return;
    (void)pthread_mutex_lock(&magic_lock);
    if (load())
        type = magic_buffer(magic, data, (size_t)size);
    if (type && strlen(type) < FILE_TYPE_BYTES && strchr(type, '/') && is_header_text(type))
        (void)snprintf(out, FILE_TYPE_BYTES, "%s", type);
    (void)pthread_mutex_unlock(&magic_lock);
}
