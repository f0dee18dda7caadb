/* util/error.h: the one error type.
 *
 * Passed by pointer as the last parameter, never NULL, untouched on success, set once. Functions return 0 or -1.
 * A function either logs or returns an error, never both. Threads: a struct error belongs to its caller.
 */
#ifndef BERTH_ERROR_H
#define BERTH_ERROR_H

enum error_code {
#define ERROR(name, status, is_public, sentence) ERROR_##name,
#include "errors.def"
#undef ERROR
};

struct error {
    enum error_code code; /* ERROR_NONE until set */
    int sys_errno;        /* 0 where no system call failed */
    char text[240];       /* for operators; see error_public_text() for what a client may see */
};

#define ERROR_INIT        \
    {                     \
        ERROR_NONE, 0, "" \
    }

/* Set the error and return -1, so that `return fail(err, …)` is a statement. `code` is written without its prefix. */
#define fail(err, code, ...) error_set((err), ERROR_##code, 0, __VA_ARGS__)
/* The same, with a code made of errno (ENOENT: NOT_FOUND, EACCES: FORBIDDEN, ENOSPC: NO_SPACE, …) and its text appended. */
#define fail_errno(err, ...) error_set_errno((err), __VA_ARGS__)

int error_set(struct error *err, enum error_code code, int sys_errno, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int error_set_errno(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Put a fact in front of the text, keep the code. Always -1. */
int error_prefix(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

void error_clear(struct error *err);

/* "NOT_FOUND" … static. */
const char *error_code_name(enum error_code code);

/* The HTTP status of a code: the only place that knows it. */
int error_http_status(enum error_code code);

/* What a client may read: the text where the code is public, the code's safe sentence where it is not. Borrowed. */
const char *error_public_text(const struct error *err);

#endif
