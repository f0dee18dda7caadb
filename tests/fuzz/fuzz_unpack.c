/* Fuzzer: any bytes as an archive, as they are and as a sequence of entries that libarchive packs (names, links and kinds of the
 * kind attackers use, then a few bytes turned over). Whatever comes: nothing outside of the workspace is changed, the limits
 * hold, no device or FIFO appears, nothing of the staging is left; and what was refused as a whole has changed nothing. */
#include "buf.h"
#include "cleanup.h"
#include "fuzz.h"
#include "log.h"
#include "pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_disable()
#define __lsan_enable()
#endif

enum { ARCHIVE_MAX = 256 * 1024, BYTES_MAX = 1 << 20, ENTRIES_MAX = 64 };

static struct {
    char dir[64];     /* holds "root", and "outside", which must stay as it is */
    char outside[96]; /* a file */
    char *path;       /* of the workspace */
    char slot[WORKSPACE_SLOT_BYTES];
    struct workspace_root *root;
    uint64_t bytes; /* seen by the walk below */
    unsigned entries;
} it;

#define insist(condition)                                            \
    do {                                                             \
        if (!(condition)) {                                          \
            (void)fprintf(stderr, "%d: %s\n", __LINE__, #condition); \
            abort();                                                 \
        }                                                            \
    } while (0)

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    return remove(path);
}

static void clear_away(void)
{
    workspace_root_close(it.root);
    free(it.path);
    (void)nftw(it.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void write_outside(void)
{
    FILE *file = fopen(it.outside, "we");

    insist(file && fputs("as it was", file) >= 0 && fclose(file) == 0);
}

static void begin(void)
{
    struct error err = ERROR_INIT;
    char root[96];

    log_set_level(LOG_LEVEL_ERROR);
    (void)umask(022);
    (void)snprintf(it.dir, sizeof it.dir, "%s/fuzz-unpack-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    insist(mkdtemp(it.dir));
    (void)snprintf(root, sizeof root, "%s/root", it.dir);
    (void)snprintf(it.outside, sizeof it.outside, "%s/outside", it.dir);
    write_outside();
    insist(workspace_root_open(root, &it.root, &err) == 0);
    insist(atexit(clear_away) == 0);
}

/* -- an archive of the input -- */

struct input {
    const uint8_t *at;
    size_t left;
};

static unsigned take(struct input *input)
{
    if (!input->left)
        return 0;
    input->left--;
    return *input->at++;
}

static void take_name(struct input *input, struct buf *name)
{
    static const char *const parts[] = {
        "a", "b", "c", "..", ".", "", "link", "\xff", "\n", ".berth-0123456789abcdef", "workspace", "outside"};
    struct error err = ERROR_INIT;
    unsigned count = 1 + take(input) % 4;

    buf_clear(name);
    if (take(input) % 16 == 0)
        (void)buf_append_str(name, take(input) % 2 ? "/workspace/" : "/", &err);
    for (unsigned i = 0; i < count; i++) {
        if (i)
            (void)buf_append_str(name, "/", &err);
        (void)buf_append_str(name, parts[take(input) % (sizeof parts / sizeof *parts)], &err);
    }
}

static void add_entry(struct archive *archive, struct input *input)
{
    static const mode_t kinds[] = {AE_IFREG, AE_IFREG, AE_IFDIR, AE_IFLNK, AE_IFLNK, AE_IFIFO, AE_IFCHR, AE_IFBLK};
    auto_buf struct buf name = BUF_INIT(4096);
    struct archive_entry *entry = archive_entry_new();
    unsigned kind = take(input) % 10;
    unsigned size = take(input);

    insist(entry);
    take_name(input, &name);
    archive_entry_set_pathname(entry, buf_str(&name));
    archive_entry_set_filetype(entry, kinds[kind % 8]);
    archive_entry_set_perm(entry, (mode_t)(take(input) << 4)); /* set-id bits as well */
    archive_entry_set_size(entry, kinds[kind % 8] == AE_IFREG ? size : 0);
    take_name(input, &name);
    if (kinds[kind % 8] == AE_IFLNK)
        archive_entry_set_symlink(entry, buf_str(&name));
    else if (kind >= 8) {
        archive_entry_set_hardlink(entry, buf_str(&name));
        archive_entry_set_size(entry, 0);
    }
    if (archive_write_header(archive, entry) >= ARCHIVE_WARN && archive_entry_size(entry) > 0) {
        static const char content[256];

        (void)archive_write_data(archive, content, size);
    }
    archive_entry_free(entry);
}

/* libarchive forgets what it holds of an archive it has given up; such odd ones are only written here. */
static size_t pack_input(struct input *input, char *out)
{
    struct archive *archive;
    unsigned how = take(input);
    unsigned turned = take(input) % 4;
    size_t used = 0;

    __lsan_disable();
    archive = archive_write_new();
    insist(archive);
    (void)(how % 4 == 3 ? archive_write_set_format_zip(archive) : archive_write_set_format_pax(archive));
    if (how % 4 < 2)
        (void)(how % 4 ? archive_write_add_filter_gzip(archive) : archive_write_add_filter_zstd(archive));
    insist(archive_write_open_memory(archive, out, ARCHIVE_MAX, &used) == ARCHIVE_OK);
    __lsan_enable();
    for (unsigned i = 0; i < ENTRIES_MAX && input->left; i++)
        add_entry(archive, input);
    (void)archive_write_free(archive);
    for (unsigned i = 0; used && i < turned; i++)
        out[(how * 7919u + i * 104729u) % used] ^= (char)(1 + how % 255);
    return how % 8 == 7 ? used / 2 : used; /* cut off */
}

/* -- what came of it -- */

static bool is_reserved(const char *name)
{
    return strncmp(name, ".berth-", 7) == 0 && strlen(name) == 23 && strspn(name + 7, "0123456789abcdef") == 16;
}

static int look(const char *path, const struct stat *status, int type, struct FTW *where)
{
    insist(S_ISREG(status->st_mode) || S_ISDIR(status->st_mode) || S_ISLNK(status->st_mode));
    insist(!(status->st_mode & (S_ISUID | S_ISGID)));
    insist(!is_reserved(path + where->base));
    it.entries += where->level > 0;
    it.bytes += S_ISREG(status->st_mode) ? (uint64_t)status->st_size : 0;
    return 0;
}

static void look_around(bool failed)
{
    char text[16] = "";
    FILE *file = fopen(it.outside, "re");
    struct stat status;

    insist(file && fgets(text, sizeof text, file) && fclose(file) == 0);
    insist(strcmp(text, "as it was") == 0 && lstat(it.outside, &status) == 0 && status.st_nlink == 1);
    it.entries = 0;
    it.bytes = 0;
    insist(nftw(it.path, look, 16, FTW_PHYS) == 0);
    insist(failed ? it.entries == 0 : it.entries <= ENTRIES_MAX);
    insist(it.bytes <= BYTES_MAX * (uint64_t)ENTRIES_MAX);
}

static int64_t next_bytes(void *context, char *out, size_t max, struct error *err)
{
    struct input *input = context;
    size_t size = input->left < max ? input->left : max;

    if (size)
        memcpy(out, input->at, size);
    input->at += size;
    input->left -= size;
    return (int64_t)size;
}

static void unpack_it(const char *data, size_t size)
{
    const struct workspace_identity identity = {-1, -1};
    const struct unpack_limits limits = {.bytes = BYTES_MAX, .entries = ENTRIES_MAX};
    const struct cancel never = CANCEL_NEVER;
    struct input rest = {(const uint8_t *)data, size};
    const struct workspace_bytes bytes = {next_bytes, &rest};
    struct unpack_result result = {.entries = 0};
    struct workspace *workspace;
    struct error err = ERROR_INIT;
    int unpacked;

    insist(workspace_slot_create(it.root, 0, 0, it.slot, &err) == 0);
    insist(workspace_slot_path(it.root, it.slot, &it.path, &err) == 0);
    insist(workspace_open(it.root, it.slot, &identity, &workspace, &err) == 0);
    unpacked = unpack(workspace, "", "/workspace", PACK_UNKNOWN, &bytes, &limits, &never, &result, &err);
    insist(unpacked == 0 || err.code == ERROR_INVALID || err.code == ERROR_TOO_LARGE);
    look_around(unpacked < 0);
    unpack_result_done(&result);
    workspace_unref(workspace);
    insist(workspace_slot_remove(it.root, it.slot, &never, &err) == 0);
    free(it.path);
    it.path = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char packed[ARCHIVE_MAX];
    struct input input = {data, size};

    if (!it.root)
        begin();
    unpack_it((const char *)data, size);
    unpack_it(packed, pack_input(&input, packed));
    return 0;
}
