/* How much may still be written to a slot: by what a measuring found, whenever it looked. */
#define FIXTURE_IN_MEMORY 1
#include "pack.h"
#include "workspace_fixture.h"

#include <signal.h>
#include <sys/resource.h>

static struct workspace_room *room;

static void begin(int64_t bytes)
{
    room = workspace_room_new();
    workspace_use_room(it.workspace, room);
    workspace_room_set(room, bytes, 0);
}

static int write_bytes(const char *name, int count)
{
    static const char data[1 << 20];

    return workspace_write(it.workspace, name, data, (size_t)count, -1, &it.err);
}

BOTH(room, stops_writes_and_keeps_the_old_file)
{
    begin(10);
    assert_works(workspace_write(it.workspace, "f", "12345678", 8, -1, &it.err));
    assert_fails(workspace_write(it.workspace, "f", "abc", 3, -1, &it.err), NO_SPACE, EDQUOT);
    cr_assert_str_eq(get(in("f")), "12345678");
    cr_assert_eq(count_names(it.path), 1);
    assert_works(workspace_write(it.workspace, "f", "ab", 2, -1, &it.err));
    assert_fails(workspace_write(it.workspace, "g", "", 0, -1, &it.err), NO_SPACE, EDQUOT);
    workspace_room_set(room, INT64_MAX, 0);
    assert_works(workspace_write(it.workspace, "g", "any", 3, -1, &it.err));
    workspace_room_unref(room);
}

BOTH(room, is_one_for_all_that_are_opened)
{
    begin(10);
    assert_works(write_bytes("f", 8));
    open_as(SANDBOX_UID, SANDBOX_GID);
    workspace_use_room(it.workspace, room);
    assert_fails(write_bytes("g", 3), NO_SPACE, EDQUOT);
    workspace_room_unref(room); /* the workspace holds one */
    assert_works(write_bytes("g", 2));
}

BOTH(room, that_a_measuring_set_is_not_begun_again)
{
    room = workspace_room_new();
    workspace_use_room(it.workspace, room);
    workspace_room_begin(room, 10);
    assert_works(write_bytes("f", 4));
    workspace_room_begin(room, 10); /* opened a second time */
    assert_fails(write_bytes("g", 7), NO_SPACE, EDQUOT);
    workspace_room_unref(room);
}

/* -- a measuring beside a write that arrives in pieces -- */

enum { BLOCKS = 4, BLOCK_BYTES = 65536, QUOTA_BYTES = 6 * BLOCK_BYTES };

struct arriving {
    int blocks;
    int measured_at; /* before that block */
    bool breaks_off;
};

/* As the measuring thread does it. */
static void measure(void)
{
    int64_t seen = workspace_room_seen(room);
    struct workspace_size size;

    assert_works(workspace_measure(it.workspace, 0, &never, &size, &it.err));
    workspace_room_set(room, QUOTA_BYTES - size.bytes, seen);
}

static int64_t next_block(void *context, char *out, size_t max, struct error *err)
{
    struct arriving *arriving = context;

    cr_assert_geq(max, (size_t)BLOCK_BYTES);
    if (arriving->blocks == arriving->measured_at)
        measure();
    if (arriving->blocks++ < BLOCKS) {
        memset(out, 'x', BLOCK_BYTES);
        return BLOCK_BYTES;
    }
    return arriving->breaks_off ? fail(err, INVALID, "broke off") : 0;
}

/* On a workspace that was just opened and has nothing. */
static int arrive(struct arriving *arriving)
{
    struct workspace_bytes bytes = {next_block, arriving};
    bool created;

    (void)unlink(in("f"));
    open_as(SANDBOX_UID, SANDBOX_GID);
    begin(QUOTA_BYTES);
    error_clear(&it.err);
    return workspace_write_bytes(it.workspace, "f", &bytes, &created, &it.err);
}

BOTH(room, is_not_given_twice_for_what_nobody_saw_when_it_was_measured)
{
    for (int at = 0; at <= BLOCKS; at++) {
        struct arriving arriving = {.measured_at = at};

        cr_assert_eq(arrive(&arriving), 0, "measured before block %d: %s", at, it.err.text);
        assert_fails(write_bytes("g", QUOTA_BYTES - BLOCKS * BLOCK_BYTES + 1), NO_SPACE, EDQUOT);
        measure();
        assert_fails(write_bytes("g", QUOTA_BYTES - BLOCKS * BLOCK_BYTES + 1), NO_SPACE, EDQUOT);
        workspace_room_unref(room);
    }
}

BOTH(room, comes_back_of_what_broke_off)
{
    for (int at = 0; at <= BLOCKS; at++) {
        struct arriving arriving = {.measured_at = at, .breaks_off = true};

        cr_assert_eq(arrive(&arriving), -1, "measured before block %d", at);
        measure();
        cr_assert_eq(write_bytes("f", QUOTA_BYTES), 0, "measured before block %d: %s", at, it.err.text);
        workspace_room_unref(room);
    }
}

/* -- an archive whose file cannot be written -- */

enum { TAR_BLOCK = 512, TAR_FILE_BYTES = 2 * BLOCK_BYTES };

struct tar {
    unsigned char bytes[TAR_BLOCK + TAR_FILE_BYTES + 2 * TAR_BLOCK];
    size_t at;
};

static int64_t next_of_tar(void *context, char *out, size_t max, struct error *err)
{
    struct tar *tar = context;
    size_t size = sizeof tar->bytes - tar->at < max ? sizeof tar->bytes - tar->at : max;

    memcpy(out, tar->bytes + tar->at, size);
    tar->at += size;
    return (int64_t)size;
}

static int unpack_one(struct tar *tar)
{
    const struct workspace_bytes bytes = {next_of_tar, tar};
    const struct unpack_limits limits = {1 << 30, 100};
    struct unpack_result result = {0};
    unsigned sum = 0;
    int done;

    memset(tar, 0, sizeof *tar);
    (void)snprintf((char *)tar->bytes, TAR_BLOCK, "f");
    memcpy(tar->bytes + 100, "0000644", 8);
    (void)snprintf((char *)tar->bytes + 124, 12, "%011o", TAR_FILE_BYTES);
    memset(tar->bytes + 148, ' ', 8);
    tar->bytes[156] = '0';
    memcpy(tar->bytes + 257, "ustar\00000", 8);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += tar->bytes[i];
    (void)snprintf((char *)tar->bytes + 148, 8, "%06o", sum);
    error_clear(&it.err);
    done = unpack(it.workspace, "", "/workspace", PACK_UNKNOWN, &bytes, &limits, &never, &result, &it.err);
    unpack_result_done(&result);
    return done;
}

BOTH(room, comes_back_of_an_archive_that_could_not_be_written)
{
    const struct rlimit small = {BLOCK_BYTES / 2, RLIM_INFINITY};
    const struct rlimit any = {RLIM_INFINITY, RLIM_INFINITY};
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    static struct tar tar;

    begin(QUOTA_BYTES);
    cr_assert_eq(sigaction(SIGXFSZ, &ignored, NULL), 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 100; i++)
        cr_assert_eq(unpack_one(&tar), -1);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &any), 0);
    measure();
    cr_assert_eq(write_bytes("g", QUOTA_BYTES - TAR_FILE_BYTES), 0, "%s", it.err.text);
    cr_assert_eq(unpack_one(&tar), 0, "%s", it.err.text);
    workspace_room_unref(room);
}
