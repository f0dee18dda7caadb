#define FIXTURE_IN_MEMORY 1
#include "workspace_fixture.h"

#include "tree.h"

static struct tree_source *source;

static void plant(const char *path, const char *text)
{
    assert_works(workspace_write(it.workspace, path, text, strlen(text), -1, &it.err));
}

static void open_source(void)
{
    assert_works(workspace_tree_source(it.workspace, &source, &it.err));
}

static void close_source(void)
{
    tree_source_free(source);
    source = NULL;
}

/* Paths joined by "|", directories with a slash, "!" if truncated. */
static const char *shown_rows(const struct tree_rows *rows)
{
    static char text[8192];

    text[0] = '\0';
    for (size_t i = 0; i < rows->count; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s%s", i ? "|" : "", rows->rows[i].path,
                       rows->rows[i].is_dir ? "/" : "");
    if (rows->truncated)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "!");
    return text;
}

static const char *tree(const char *path, unsigned max_depth, size_t max_entries)
{
    auto_tree_rows struct tree_rows rows = TREE_ROWS_INIT;
    int done;

    error_clear(&it.err);
    open_source();
    done = tree_list(source, path, max_depth, max_entries, &never, &rows, &it.err);
    close_source();
    return done < 0 ? error_code_name(it.err.code) : shown_rows(&rows);
}

static const char *glob(const char *path, const char *shown, const char *pattern)
{
    auto_tree_rows struct tree_rows rows = TREE_ROWS_INIT;
    int done;

    error_clear(&it.err);
    open_source();
    done = tree_glob(source, path, shown, pattern, 1000, &never, &rows, &it.err);
    close_source();
    return done < 0 ? error_code_name(it.err.code) : shown_rows(&rows);
}

static int by_text(const void *left, const void *right)
{
    return strcmp(left, right);
}

/* On two processors it finds what one walk finds, in its order. */
static void assert_same_on_two(const struct tree_grep *grep, int done, const struct tree_hits *hits)
{
    auto_tree_hits struct tree_hits both = TREE_HITS_INIT;
    struct error err = ERROR_INIT;

    cr_assert_eq(workspace_grep(it.workspace, grep, &never, &both, &err), done);
    cr_assert_eq(err.code, it.err.code);
    if (done < 0)
        return;
    cr_assert_eq(both.count, hits->count);
    cr_assert_eq(both.truncated, hits->truncated);
    cr_assert_eq(both.unreadable, hits->unreadable);
    for (size_t i = 0; i < both.count; i++) {
        cr_assert_str_eq(both.hits[i].path, hits->hits[i].path);
        cr_assert_eq(both.hits[i].line_number, hits->hits[i].line_number);
        cr_assert_eq(both.hits[i].line_size, hits->hits[i].line_size);
        cr_assert_eq(memcmp(both.hits[i].line, hits->hits[i].line, both.hits[i].line_size), 0);
    }
}

/* "path:number:line" sorted and joined by "|", "!" if truncated, "?n" for n unreadable. */
static const char *grep_with(struct tree_grep grep, const char *pattern)
{
    static char text[65536];
    static char lines[100][512];
    auto_tree_hits struct tree_hits hits = TREE_HITS_INIT;
    int done;

    error_clear(&it.err);
    assert_works(match_grep_new(MATCH_BASIC, pattern, strlen(pattern), &grep.expression, &it.err));
    open_source();
    done = tree_grep(source, &grep, &never, &hits, &it.err);
    close_source();
    assert_same_on_two(&grep, done, &hits);
    match_grep_free(grep.expression);
    if (done < 0)
        return error_code_name(it.err.code);
    cr_assert_lt(hits.count, 100);
    for (size_t i = 0; i < hits.count; i++)
        (void)snprintf(lines[i], sizeof lines[i], "%s:%d:%.*s", hits.hits[i].path, (int)hits.hits[i].line_number,
                       (int)hits.hits[i].line_size, hits.hits[i].line);
    qsort(lines, hits.count, sizeof lines[0], by_text);
    text[0] = '\0';
    for (size_t i = 0; i < hits.count; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? "|" : "", lines[i]);
    if (hits.truncated)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "!");
    if (hits.unreadable)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "?%zu", hits.unreadable);
    return text;
}

static const char *grep(const char *path, const char *shown, const char *pattern, const char *name_glob,
                        bool ignore_hidden)
{
    return grep_with((struct tree_grep){.path = path,
                                        .shown = shown,
                                        .name_glob = name_glob,
                                        .ignore_hidden = ignore_hidden,
                                        .max_bytes = 100000,
                                        .max_line_bytes = 4096,
                                        .max_file_bytes = 8 << 20},
                     pattern);
}

BOTH(tree, is_breadth_first_with_directories_first)
{
    plant("b/x", "12345");
    plant("b/deep/y", "1");
    plant("a.txt", "1");
    plant("z/q", "1");
    plant(".hid/h", "1");
    cr_assert_eq(symlink("b", in("link")), 0);
    cr_assert_eq(mkfifo(in("fifo"), 0666), 0);
    cr_assert_str_eq(tree("", 64, 1000), ".hid/|b/|z/|a.txt|fifo|.hid/h|b/deep/|b/x|z/q|b/deep/y");
    cr_assert_str_eq(tree("b", 64, 1000), "b/deep/|b/x|b/deep/y");
    cr_assert_str_eq(tree("", 1, 1000), ".hid/|b/|z/|a.txt|fifo!");
    cr_assert_str_eq(tree("", 2, 1000), ".hid/|b/|z/|a.txt|fifo|.hid/h|b/deep/|b/x|z/q!");
    cr_assert_str_eq(tree("z", 1, 1000), "z/q");
    cr_assert_str_eq(tree("", 64, 10), ".hid/|b/|z/|a.txt|fifo|.hid/h|b/deep/|b/x|z/q|b/deep/y");
    cr_assert_str_eq(tree("", 64, 9), ".hid/|b/|z/|a.txt|fifo|.hid/h|b/deep/|b/x|z/q!");
    cr_assert_str_eq(tree("", 64, 5), ".hid/|b/|z/|a.txt|fifo!");
    cr_assert_str_eq(tree("none", 64, 10), "NOT_FOUND");
    cr_assert_str_eq(tree("a.txt", 64, 10), "INVALID");
    cr_assert_str_eq(tree("link", 64, 10), "HANDOVER");
}

BOTH(tree, tells_sizes_and_passes_over_what_is_locked)
{
    auto_tree_rows struct tree_rows rows = TREE_ROWS_INIT;

    plant("f", "12345");
    plant("locked/x", "1");
    cr_assert_eq(chmod(in("locked"), 0), 0);
    open_source();
    assert_works(tree_list(source, "", 64, 100, &never, &rows, &it.err));
    close_source();
    cr_assert_str_eq(shown_rows(&rows), "locked/|f!");
    cr_assert_eq(rows.rows[1].size_bytes, 5);
    cr_assert_gt(rows.rows[1].mtime_unix_us, 1600000000000000);
    cr_assert_str_eq(rows.rows[1].name, "f");
}

BOTH(tree, ends_with_cycles_and_chains)
{
    char deep[8001];

    plant("d/f", "needle\n");
    cr_assert_eq(mkdir(in("d/e"), 0777), 0);
    cr_assert_eq(symlink("..", in("d/e/up")), 0);
    cr_assert_eq(symlink(".", in("d/self")), 0);
    cr_assert_str_eq(tree("", 64, 1000), "d/|d/e/|d/f");
    cr_assert_str_eq(grep("", ".", "needle", NULL, true), "./d/f:1:needle");
    for (size_t i = 0; i < 4000; i++)
        memcpy(deep + 2 * i, "d/", 3);
    deep[7999] = '\0';
    assert_works(workspace_mkdir(it.workspace, deep, &it.err));
    cr_assert_str_eq(glob("", ".", "*.none"), "");
    cr_assert_str_eq(grep("", ".", "needle", NULL, true), "./d/f:1:needle");
}

BOTH(globs, are_those_of_the_classic_wire)
{
    static const char *const files[] = {"src/a.py", "src/b.py",      "src/deep/er/d.py", "src/pkg/c.py", ".hid/in.txt",
                                        "top.txt",  "quote's x.txt", "new\nline.txt",    "bad\377.txt",  "gr/.h.txt"};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        plant(files[i], "x");
    cr_assert_eq(symlink("src", in("link_dir")), 0);
    cr_assert_eq(symlink("top.txt", in("link_file")), 0);
    cr_assert_str_eq(glob("", ".", "*.py"), "src/a.py|src/b.py|src/deep/er/d.py|src/pkg/c.py");
    cr_assert_str_eq(glob("src", "src", "*.py"), "src/a.py|src/b.py|src/deep/er/d.py|src/pkg/c.py");
    cr_assert_str_eq(glob("src", "src/", "?.py"), "src/a.py|src/b.py|src/deep/er/d.py|src/pkg/c.py");
    cr_assert_str_eq(glob("src", "/workspace/src", "*.py"),
                     "/workspace/src/a.py|/workspace/src/b.py|/workspace/src/deep/er/d.py|/workspace/src/pkg/c.py");
    cr_assert_str_eq(glob("", ".", "**/*.py"), "src/a.py|src/b.py|src/deep/er/d.py|src/pkg/c.py");
    cr_assert_str_eq(glob("", ".", "**/**/*.py"), "src/a.py|src/b.py|src/deep/er/d.py|src/pkg/c.py");
    cr_assert_str_eq(glob("", ".", "src/*.py"), "src/a.py|src/b.py|src/deep/er/d.py|src/pkg/c.py");
    cr_assert_str_eq(glob("", ".", "src/**/*.py"), "src/deep/er/d.py|src/pkg/c.py");
    cr_assert_str_eq(glob("", ".", "src/pkg/*"), "src/pkg/c.py");
    cr_assert_str_eq(glob("", ".", "**/"), "");
    cr_assert_str_eq(glob("", ".", ""), "");
    cr_assert_str_eq(glob("src", "src", "[!a].py"), "src/b.py|src/deep/er/d.py|src/pkg/c.py");
    cr_assert_str_eq(glob("src", "src", "{a,b}.py"), "");
    cr_assert_str_eq(glob("", ".", ".*.txt"), ".hid/in.txt|gr/.h.txt");
    cr_assert_str_eq(glob("", ".", "pkg"), "");
    cr_assert_str_eq(glob("", ".", "link_*"), "");
    cr_assert_str_eq(glob("", ".", "quote's*"), "quote's x.txt");
    cr_assert_str_eq(glob("", ".", "new*line.txt"), "new\nline.txt");
    cr_assert_str_eq(glob("", ".", "bad?.txt"), "bad\377.txt");
    cr_assert_str_eq(glob("", ".", "/workspace/src/*.py"), "");
    cr_assert_str_eq(glob("", ".", "*.PY"), "");
    cr_assert_str_eq(glob("none", "none", "*"), "NOT_FOUND");
    cr_assert_str_eq(glob("top.txt", "top.txt", "*"), "INVALID");
    cr_assert_str_eq(glob("link_dir", "link_dir", "*"), "HANDOVER");
}

BOTH(greps, are_those_of_the_classic_wire_without_its_faults)
{
    plant("gr/x.txt", "foo bar\nFoo baz\n");
    plant("gr/sub/y.md", "foo in md");
    plant("gr/.h.txt", "foo hidden file\r\n");
    plant("gr/.h/z.txt", "foo hidden dir\n");
    plant("gr/w:1", "a\nTODO: a:b:c\n");
    assert_works(workspace_write(it.workspace, "gr/bin", "\0foo\n", 5, -1, &it.err));
    cr_assert_eq(symlink("x.txt", in("gr/link")), 0);
    cr_assert_str_eq(grep("", ".", "foo", NULL, true), "./gr/sub/y.md:1:foo in md|./gr/x.txt:1:foo bar");
    cr_assert_str_eq(
        grep("gr", "gr", "foo", NULL, false),
        "gr/.h.txt:1:foo hidden file\r|gr/.h/z.txt:1:foo hidden dir|gr/sub/y.md:1:foo in md|gr/x.txt:1:foo bar");
    cr_assert_str_eq(grep("gr", "/workspace/gr", "foo", "*.md", true), "/workspace/gr/sub/y.md:1:foo in md");
    cr_assert_str_eq(grep("gr", "gr/", "foo", "sub/*.md", true), "");
    cr_assert_str_eq(grep("gr", "gr", "foo", ".*", false), "gr/.h.txt:1:foo hidden file\r");
    cr_assert_str_eq(grep("gr/.h", "gr/.h", "foo", NULL, true), "gr/.h/z.txt:1:foo hidden dir");
    cr_assert_str_eq(grep("gr/x.txt", "gr/x.txt", "foo", NULL, true), "gr/x.txt:1:foo bar");
    cr_assert_str_eq(grep("gr/w:1", "gr/w:1", "a:b", NULL, true), "gr/w:1:2:TODO: a:b:c");
    cr_assert_str_eq(grep("none", "none", "foo", NULL, true), "NOT_FOUND");
    cr_assert_str_eq(grep("gr/link", "gr/link", "foo", NULL, true), "HANDOVER");
    cr_assert_str_eq(grep("gr", "gr", "zzz", NULL, true), "");
}

BOTH(greps, are_bounded)
{
    char *big = malloc(3 << 20);
    struct tree_grep bounds = {
        .path = "", .shown = ".", .max_bytes = 100000, .max_line_bytes = 20, .max_file_bytes = 8 << 20};

    memset(big, 'x', 3 << 20);
    memcpy(big, "needle", 6);
    assert_works(workspace_write(it.workspace, "min.js", big, 3 << 20, -1, &it.err));
    plant("t", "needle\n");
    assert_works(workspace_write(it.workspace, "bin", "\0needle", 7, -1, &it.err));
    cr_assert_str_eq(grep_with(bounds, "needle"),
                     "./min.js:1:needlexxxxxxxxxxxxxx[... 3145708 more bytes]|./t:1:needle!");
    bounds.max_file_bytes = 1 << 20;
    cr_assert_str_eq(grep_with(bounds, "needle"), "./t:1:needle!");
    plant("t", "needle\nneedle\nneedle\n");
    bounds.max_bytes = 2 * strlen("./t:1:needle\n") + 5;
    cr_assert_str_eq(grep_with(bounds, "needle"), "./t:1:needle|./t:2:needle!");
    free(big);
}

BOTH(greps, end_at_the_same_hit_on_two_processors_wherever_there_is_no_more_room)
{
    struct tree_grep bounds = {.path = "", .shown = ".", .max_line_bytes = 100, .max_file_bytes = 8 << 20};

    for (char dir = 'a'; dir <= 'd'; dir++)
        for (char name = '0'; name <= '9'; name++) {
            const char path[] = {dir, '/', name, '\0'};

            plant(path, "needle\nother\nneedle and more\n");
        }
    for (size_t max_bytes = 0; max_bytes < 40 * 50; max_bytes += 7) {
        bounds.max_bytes = max_bytes;
        (void)grep_with(bounds, "needle");
    }
}

BOTH(greps, count_what_they_may_not_read)
{
    plant("ok", "foo\n");
    plant("mine/x", "foo\n");
    put(in("roots"), "foo\n");
    cr_assert_eq(chmod(in("roots"), 0600), 0);
    cr_assert_eq(chmod(in("mine"), 0), 0);
    cr_assert_str_eq(grep("", ".", "foo", NULL, true), "./ok:1:foo?2");
    cr_assert_str_eq(grep("roots", "roots", "foo", NULL, true), "HANDOVER");
    cr_assert_str_eq(grep("mine", "mine", "foo", NULL, true), "HANDOVER");
}

BOTH(sources, act_as_the_identity_until_they_are_freed)
{
    plant("ok", "foo\n");
    open_source();
    cr_assert_lt(open(outside("root-only"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), 0);
    close_source();
    cr_assert_geq(open(outside("root-only"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), 0);
}

BOTH(walks, end_when_cancelled)
{
    auto_tree_rows struct tree_rows rows = TREE_ROWS_INIT;
    const struct cancel late = {.stop_fd = -1, .client_fd = -1, .deadline_ms = 1};

    plant("ok", "foo\n");
    open_source();
    assert_fails(tree_list(source, "", 64, 100, &late, &rows, &it.err), TIMEOUT, 0);
    assert_fails(tree_glob(source, "", ".", "*", 100, &late, &rows, &it.err), TIMEOUT, 0);
    close_source();
}
