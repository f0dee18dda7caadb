#include "wire_stored.h"

#include <errno.h>
#include <stdlib.h>

void wire_stored_done(struct wire_stored *stored)
{
    if (stored->workspace)
        workspace_unref(stored->workspace);
    free(stored->path);
}

int wire_stored_open(struct sessions *sessions, const char *id, struct wire_text path, struct wire_stored *ret,
                     struct error *err)
{
    const char *work_dir = sessions_settings(sessions)->work_dir;

    if (sessions_archive(sessions, id, &ret->workspace, err) < 0)
        return -1;
    if (workspace_path_archive(work_dir, path.data, path.size, &ret->path, err) == 0)
        return 0;
    if (wire_has_nul(path))
        return fail(err, INVALID, "embedded null byte");
    return fail(err, INVALID, "Path '%.*s' is outside the workspace", (int)(path.size < 180 ? path.size : 180),
                path.data);
}

int wire_stored_explain(const struct wire_stored *stored, const char *kind, struct error *err)
{
    const char *shown = stored->path[0] ? stored->path : ".";
    bool is_absent = err->code == ERROR_NOT_FOUND || err->sys_errno == ENOTDIR || err->sys_errno == EISDIR ||
                     err->sys_errno == ENAMETOOLONG || err->sys_errno == ENXIO;

    if (is_absent)
        return fail(err, NOT_FOUND, "No such %s: %.180s", kind, shown);
    if (err->code == ERROR_HANDOVER || err->code == ERROR_INVALID)
        return fail(err, INVALID, "Path '%.180s' is outside the workspace", shown);
    if (err->code == ERROR_FORBIDDEN)
        return fail(err, INVALID, "The service may not read '%.180s'", shown);
    return -1;
}
