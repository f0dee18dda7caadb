#include "workspace_private.h"

#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <sys/fsuid.h>

/* setfsuid() and setfsgid() are bare system calls that change the calling thread alone (setuid() and its kin are
 * broadcast to all threads by libc). They return the previous number and do not say whether they worked: asking once
 * more does. */

static bool switch_uid(uid_t uid, uid_t *ret_before)
{
    *ret_before = (uid_t)setfsuid(uid);
    return (uid_t)setfsuid((uid_t)-1) == uid;
}

static bool switch_gid(gid_t gid, gid_t *ret_before)
{
    *ret_before = (gid_t)setfsgid(gid);
    return (gid_t)setfsgid((gid_t)-1) == gid;
}

int workspace_identity_enter(const struct workspace *workspace, struct identity_guard *guard, struct error *err)
{
    int64_t uid = workspace->identity.uid;
    int64_t gid = workspace->identity.gid;

    if (workspace->changes_gid) {
        guard->gid_changed = true;
        if (!switch_gid((gid_t)gid, &guard->gid))
            return error_set(err, ERROR_HANDOVER, EPERM, "cannot act as group %lld", (long long)gid);
    }
    /* The user last: leaving root takes away the rights over files (CAP_DAC_OVERRIDE and so on), as it should. */
    if (workspace->changes_uid) {
        guard->uid_changed = true;
        if (!switch_uid((uid_t)uid, &guard->uid))
            return error_set(err, ERROR_HANDOVER, EPERM, "cannot act as user %lld", (long long)uid);
    }
    return 0;
}

void workspace_identity_leave(struct identity_guard *guard)
{
    int saved = errno;
    uid_t uid;
    gid_t gid;

    /* A thread that cannot get back must not go on as somebody else. */
    if (guard->uid_changed && !switch_uid(guard->uid, &uid))
        abort();
    if (guard->gid_changed && !switch_gid(guard->gid, &gid))
        abort();
    *guard = (struct identity_guard)IDENTITY_GUARD_INIT;
    errno = saved;
}

bool workspace_can_change_identity(void)
{
    static const uid_t somebody = 65534;
    uid_t before;
    uid_t after;
    bool changed = switch_uid(somebody, &before);

    if (!switch_uid(before, &after))
        abort();
    return changed && geteuid() == 0;
}

int workspace_drop_groups(struct error *err)
{
    if (setgroups(0, NULL) < 0 && getgroups(0, NULL) != 0)
        return fail_errno(err, "setgroups");
    return 0;
}
