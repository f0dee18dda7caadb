#include "wire_classic.h"

#include "alloc.h"

#include <errno.h>
#include <string.h>

int wire_classic_begin(struct wire_call *call, const char *op, struct wire_text target, struct wire_classic *ret,
                       struct error *err)
{
    *ret = (struct wire_classic){call, op, NULL, target};
    return session_classic_begin(call->sessions, call->id, strcmp(op, "edit") == 0, call->cancel, &ret->operation, err);
}

void wire_classic_done(struct wire_classic *classic, bool ok, const char *detail)
{
    char target[WIRE_TARGET_BYTES];
    size_t size = wire_quote_text(classic->target.data, classic->target.size, target);

    session_classic_end(classic->operation, classic->op, target, size, ok, detail);
    classic->operation = NULL;
}

int wire_classic_failed(struct wire_classic *classic, const struct error *err)
{
    if (err->code == ERROR_GONE) {
        wire_classic_done(classic, false, "sandbox gone");
    } else { /* nothing was done: the wire records operations */
        session_classic_end(classic->operation, NULL, "", 0, false, "");
        classic->operation = NULL;
    }
    return -1;
}

bool wire_classic_is_told(const struct error *err)
{
    switch (err->code) {
    case ERROR_NOT_FOUND:
    case ERROR_INVALID:
    case ERROR_HANDOVER:
    case ERROR_FORBIDDEN:
    case ERROR_TOO_LARGE:
    case ERROR_NO_SPACE:
    case ERROR_TIMEOUT:
        return true;
    default:
        return false;
    }
}

const char *wire_classic_words(const struct wire_classic *classic, const struct error *err, char text[static 96])
{
    struct policy *policy;

    if (err->code == ERROR_TIMEOUT) {
        policy = sessions_policy(classic->call->sessions);
        (void)snprintf(text, 96, "the operation exceeded the %llds service ceiling",
                       (long long)policy->execute_timeout_s);
        policy_unref(policy);
        return text;
    }
    switch (err->sys_errno) {
    case ENOENT:
        return "No such file or directory";
    case EISDIR:
        return "Is a directory";
    case ENOTDIR:
        return "Not a directory";
    case EACCES:
    case EPERM:
        return "Permission denied";
    case ELOOP:
        return "Too many levels of symbolic links";
    case ENAMETOOLONG:
        return "File name too long";
    case ENXIO:
        return "Not a regular file";
    case EROFS:
        return "Read-only file system";
    default:
        return error_public_text(err);
    }
}

char *wire_classic_path(struct wire_text path)
{
    size_t size = path.size;
    const char *last;
    char *copy;

    while (size > 0 && path.data[size - 1] == '/')
        size--;
    if (size == 0 || wire_has_nul(path))
        return NULL;
    copy = alloc_str_n(path.data, size);
    last = strrchr(copy, '/');
    last = last ? last + 1 : copy;
    if (strcmp(last, ".") != 0 && strcmp(last, "..") != 0)
        return copy;
    free(copy);
    return NULL;
}
