/* A directory as an archive: what is read of it by the reader's thread, and what the archive's maker does when that is less than was told. */
#define FIXTURE_IN_MEMORY 1
#include "pack.h"
#include "pack_read.h"
#include "workspace_fixture.h"

TestSuite(pack_reader, .timeout = 60);
TestSuite(pack_reader_without_openat2, .timeout = 60);
TestSuite(pack, .timeout = 60);
TestSuite(pack_without_openat2, .timeout = 60);

enum { FILES = 3000, CHAIN = 1200, NAME_BYTES = 250, BIG_BYTES = 8 << 20 };

static struct pack_reader *reader;
static struct pack_item item;

static void begin(const char *path, bool tells_links)
{
    assert_works(pack_reader_new(it.workspace, path, tells_links, &reader, &it.err));
}

static int next(void)
{
    int more = pack_reader_next(reader, &never, &item, &it.err);

    cr_assert_geq(more, 0, "%s", it.err.text);
    return more;
}

static void end(void)
{
    cr_assert_eq(next(), 0);
    cr_assert_eq(next(), 0, "the end stays the end");
    pack_reader_free(reader);
}

/* The content of the file told last, up to and with its end. Bytes. */
static uint64_t content(char *out, size_t max)
{
    uint64_t size = 0;

    for (;;) {
        cr_assert_eq(next(), 1, "a file without its end");
        if (item.kind == PACK_ITEM_END)
            return size;
        cr_assert_eq(item.kind, PACK_ITEM_CONTENT);
        cr_assert_gt(item.size, 0);
        cr_assert_leq(size + item.size, max);
        memcpy(out + size, item.data, item.size);
        size += item.size;
    }
}

static void make_big(const char *name)
{
    put(in(name), "beginning");
    cr_assert_eq(truncate(in(name), BIG_BYTES), 0);
}

BOTH(pack_reader, tells_each_kind_as_what_it_is)
{
    int dirs = 0, files = 0, links = 0, skipped = 0;
    char text[16];

    cr_assert_eq(mkdir(in("d"), 0755), 0);
    put(in("d/a"), "alpha");
    put(in("empty"), "");
    cr_assert_eq(symlink("../../outside", in("link")), 0);
    cr_assert_eq(mkfifo(in("fifo"), 0644), 0);
    cr_assert_eq(mknod(in("s"), S_IFSOCK | 0644, 0), 0);
    begin("", true);
    while (next()) {
        if (item.kind == PACK_ITEM_SKIPPED) {
            cr_assert(strcmp(item.path, "fifo") == 0 || strcmp(item.path, "s") == 0, "%s", item.path);
            skipped++;
            continue;
        }
        cr_assert_eq(item.kind, PACK_ITEM_ENTRY);
        cr_assert_null(item.same_as);
        if (S_ISDIR(item.status.st_mode)) {
            cr_assert_str_eq(item.path, "d");
            dirs++;
        } else if (S_ISLNK(item.status.st_mode)) {
            cr_assert_str_eq(item.path, "link");
            cr_assert_str_eq(item.target, "../../outside");
            links++;
        } else {
            bool is_empty = strcmp(item.path, "empty") == 0;

            cr_assert(is_empty || strcmp(item.path, "d/a") == 0, "%s", item.path);
            cr_assert_eq(item.status.st_size, is_empty ? 0 : 5);
            cr_assert_null(item.target);
            cr_assert_eq(content(text, sizeof text), is_empty ? 0 : 5);
            cr_assert(is_empty || memcmp(text, "alpha", 5) == 0);
            cr_assert_eq(item.missing, 0);
            files++;
        }
    }
    cr_assert(dirs == 1 && files == 2 && links == 1 && skipped == 2, "%d %d %d %d", dirs, files, links, skipped);
    end();
}

BOTH(pack_reader, acts_as_the_workspace_s_identity)
{
    put(in("secret"), "of root");
    cr_assert_eq(chmod(in("secret"), 0600), 0);
    begin("", true);
    cr_assert_eq(next(), 1);
    cr_assert_eq(item.kind, PACK_ITEM_SKIPPED);
    cr_assert_str_eq(item.path, "secret");
    end();
}

BOTH(pack_reader, tells_a_file_of_several_names_once_where_that_is_wanted)
{
    for (int tells = 0; tells < 2; tells++) {
        int contents = 0;
        char first[8] = "", text[8];

        put(in("a"), "x");
        cr_assert(there(in("b")) || link(in("a"), in("b")) == 0);
        begin("", tells);
        while (next()) {
            cr_assert_eq(item.kind, PACK_ITEM_ENTRY);
            if (item.same_as) {
                cr_assert_str_eq(item.same_as, first);
                cr_assert_str_neq(item.path, first);
                continue;
            }
            (void)snprintf(first, sizeof first, "%s", item.path);
            cr_assert_eq(content(text, sizeof text), 1);
            contents++;
        }
        cr_assert_eq(contents, tells ? 1 : 2);
        end();
    }
}

BOTH(pack_reader, loses_and_doubles_nothing_of_many_files)
{
    static bool seen[FILES];
    char name[16], text[64], expected[64];
    int count = 0;

    for (int i = 0; i < FILES; i++) {
        (void)snprintf(name, sizeof name, "%d", i);
        (void)snprintf(text, sizeof text, "content of %d", i);
        put(in(name), text);
    }
    begin("", true);
    while (next()) {
        long i = strtol(item.path, NULL, 10);

        cr_assert_eq(item.kind, PACK_ITEM_ENTRY);
        cr_assert_not(seen[i]);
        seen[i] = true;
        (void)snprintf(expected, sizeof expected, "content of %ld", i);
        cr_assert_eq(content(text, sizeof text), strlen(expected));
        cr_assert_eq(memcmp(text, expected, strlen(expected)), 0);
        count++;
    }
    cr_assert_eq(count, FILES);
    end();
}

BOTH(pack_reader, takes_a_large_file_in_pieces)
{
    static char wrote[BIG_BYTES], got[BIG_BYTES];
    FILE *file = fopen(in("big"), "we");

    for (size_t i = 0; i < sizeof wrote; i++)
        wrote[i] = (char)(i * 2654435761u >> 13);
    cr_assert_eq(fwrite(wrote, 1, sizeof wrote, file), sizeof wrote);
    cr_assert_eq(fclose(file), 0);
    begin("", true);
    cr_assert_eq(next(), 1);
    cr_assert_eq(content(got, sizeof got), sizeof wrote);
    cr_assert_eq(memcmp(wrote, got, sizeof wrote), 0);
    end();
}

BOTH(pack_reader, tells_how_much_of_a_file_is_missing)
{
    static char got[BIG_BYTES];
    uint64_t size;

    make_big("f");
    begin("", true);
    cr_assert_eq(next(), 1); /* it is open, and its size is told; of the content a few blocks at most were read */
    cr_assert_eq(item.status.st_size, BIG_BYTES);
    cr_assert_eq(truncate(in("f"), 100), 0);
    size = content(got, sizeof got);
    cr_assert_str_eq(item.path, "f");
    cr_assert_gt(item.missing, 0);
    cr_assert_eq(size + item.missing, BIG_BYTES);
    end();
}

BOTH(pack_reader, is_left_at_any_point)
{
    make_big("f");
    for (int taken = 0; taken < 40; taken++) {
        begin("", true);
        for (int i = 0; i < taken; i++)
            cr_assert_eq(next(), 1);
        pack_reader_free(reader);
    }
}

BOTH(pack_reader, holds_names_larger_than_blocks)
{
    char name[NAME_BYTES + 1] = "";
    int dir = open(it.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    size_t depth = 0;

    memset(name, 'n', NAME_BYTES);
    for (int i = 0; i < CHAIN; i++) {
        int child;

        cr_assert_eq(mkdirat(dir, name, 0755), 0);
        child = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)close(dir);
        dir = child;
    }
    (void)close(dir);
    begin("", true);
    while (next()) {
        depth++;
        cr_assert_eq(item.kind, PACK_ITEM_ENTRY);
        cr_assert_eq(strlen(item.path), depth * (NAME_BYTES + 1) - 1);
        cr_assert_null(item.target);
    }
    cr_assert_eq(depth, CHAIN);
    end();
}

BOTH(pack_reader, is_cancelled_where_it_would_wait)
{
    const struct cancel late = {-1, -1, 1};

    begin("", true); /* whether the thread has come to the end by now or not */
    if (pack_reader_next(reader, &late, &item, &it.err) < 0)
        cr_assert_eq(it.err.code, ERROR_TIMEOUT);
    pack_reader_free(reader);
}

BOTH(pack_reader, refuses_what_is_no_directory)
{
    put(in("f"), "x");
    assert_fails(pack_reader_new(it.workspace, "f", true, &reader, &it.err), INVALID, ENOTDIR);
    assert_fails(pack_reader_new(it.workspace, "none", true, &reader, &it.err), NOT_FOUND, ENOENT);
}

/* -- the archive of it -- */

static uint64_t pack_all(struct pack *pack, char *out, size_t max)
{
    uint64_t size = 0;
    int64_t got;

    while ((got = pack_next(pack, &never, out + size, max - size, &it.err)) > 0)
        size += (uint64_t)got;
    cr_assert_eq(got, 0, "%s", it.err.text);
    return size;
}

BOTH(pack, fills_up_a_file_that_becomes_shorter_and_says_so)
{
    static char out[BIG_BYTES + (1 << 20)];
    struct pack *pack;
    struct pack_report report;
    uint64_t size;

    make_big("f");
    assert_works(pack_new(it.workspace, "", PACK_TAR, &pack, &it.err));
    cr_assert_eq(pack_next(pack, &never, out, 512, &it.err), 512);
    cr_assert_eq(truncate(in("f"), 3), 0);
    size = 512 + pack_all(pack, out + 512, sizeof out - 512);
    cr_assert_gt(size, BIG_BYTES);
    pack_report(pack, &report);
    cr_assert_eq(report.entries, 1);
    cr_assert_eq(report.skipped, 0);
    cr_assert_eq(report.changed, 1);
    cr_assert_str_eq(report.names, "f");
    pack_free(pack);
}

BOTH(pack, is_left_in_the_middle_of_a_file)
{
    static char out[BIG_BYTES];

    make_big("f");
    for (int format = PACK_TAR; format < PACK_UNKNOWN; format++)
        for (size_t taken = 0; taken <= BIG_BYTES; taken += BIG_BYTES / 4) {
            struct pack *pack;

            assert_works(pack_new(it.workspace, "", (enum pack_format)format, &pack, &it.err));
            if (taken)
                cr_assert_gt(pack_next(pack, &never, out, taken, &it.err), 0);
            pack_free(pack);
        }
}
