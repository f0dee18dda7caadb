/* Fuzzer: any bytes as a client's path. What comes out never leaves the workspace, is collapsed, and is stable. */
#include "alloc.h"
#include "buf.h"
#include "cleanup.h"
#include "fuzz.h"
#include "workspace.h"

#include <stdlib.h>
#include <string.h>

static void check_below(const char *below)
{
    size_t size = strlen(below);

    if (size == 0)
        return;
    if (below[0] == '/' || below[size - 1] == '/' || strstr(below, "//"))
        abort();
    for (const char *part = below; part; part = strchr(part, '/')) {
        part += *part == '/';
        size_t length = strcspn(part, "/");
        if (length == 0 || (length == 1 && part[0] == '.') || (length == 2 && memcmp(part, "..", 2) == 0))
            abort();
    }
}

static void check(const char *data, size_t size)
{
    static const char *const work_dirs[] = {"/workspace", "/", "/a/b/"};

    for (size_t i = 0; i < 3; i++) {
        struct error err = ERROR_INIT;
        auto_free char *live = NULL;
        auto_free char *archive = NULL;
        auto_free char *again = NULL;

        if (workspace_path_live(work_dirs[i], data, size, &live, &err) == 0) {
            check_below(live);
            if (memchr(data, 0, size) || data[0] != '/')
                abort();
        }
        if (workspace_path_archive(work_dirs[i], data, size, &archive, &err) == 0) {
            check_below(archive);
            if (workspace_path_archive(work_dirs[i], archive, strlen(archive), &again, &err) < 0 ||
                strcmp(archive, again) != 0)
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Bytes as they are seldom make a path: once more as a sequence of what paths are made of. */
    static const char *const parts[] = {"/",         "/",          ".",  "..",   "a",    "b",
                                        "workspace", "/workspace", "//", "/a/b", "\xff", "\n"};
    auto_buf struct buf path = BUF_INIT(64 * 1024);
    struct error err = ERROR_INIT;

    check((const char *)data, size);
    for (size_t i = 0; i < size; i++)
        (void)(data[i] == 0xff ? buf_append(&path, "", 1, &err)
                               : buf_append_str(&path, parts[data[i] % (sizeof parts / sizeof *parts)], &err));
    check(buf_str(&path), path.size);
    return 0;
}
