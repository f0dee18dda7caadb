#include "error.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int status;
    int is_public;
    const char *sentence;
} codes[] = {
#define ERROR(name, status, is_public, sentence) {#name, status, is_public, sentence},
#include "errors.def"
#undef ERROR
};

static enum error_code code_of_errno(int number)
{
    switch (number) {
    case ENOENT:
        return ERROR_NOT_FOUND;
    case EACCES:
    case EPERM:
        return ERROR_FORBIDDEN;
    case ENOSPC:
    case EDQUOT:
        return ERROR_NO_SPACE;
    case EEXIST:
    case EISDIR:
    case ENOTDIR:
    case ENOTEMPTY:
    case EINVAL:
    case ENAMETOOLONG:
        return ERROR_INVALID;
    case ETIMEDOUT:
        return ERROR_TIMEOUT;
    case ECANCELED:
        return ERROR_CANCELLED;
    default:
        return ERROR_INTERNAL;
    }
}

int error_set(struct error *err, enum error_code code, int sys_errno, const char *format, ...)
{
    va_list args;

    assert(code != ERROR_NONE);
    err->code = code;
    err->sys_errno = sys_errno;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return -1;
}

int error_set_errno(struct error *err, const char *format, ...)
{
    int number = errno;
    va_list args;
    char what[160];

    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    char reason[64];
    return error_set(err, code_of_errno(number), number, "%s: %s", what, strerror_r(number, reason, sizeof reason));
}

int error_prefix(struct error *err, const char *format, ...)
{
    char text[sizeof err->text];
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length >= 0 && (size_t)length < sizeof text)
        (void)snprintf(text + length, sizeof text - (size_t)length, ": %s", err->text);
    memcpy(err->text, text, sizeof text);
    return -1;
}

void error_clear(struct error *err)
{
    *err = (struct error)ERROR_INIT;
}

const char *error_code_name(enum error_code code)
{
    return codes[code].name;
}

int error_http_status(enum error_code code)
{
    return codes[code].status;
}

const char *error_public_text(const struct error *err)
{
    return codes[err->code].is_public && err->text[0] != '\0' ? err->text : codes[err->code].sentence;
}
