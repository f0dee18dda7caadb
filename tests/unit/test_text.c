#include "text.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Borrowed until the next call. */
static const char *keep(struct buf *out)
{
    static char kept[1 << 20];

    (void)snprintf(kept, sizeof kept, "%s", buf_str(out));
    buf_done(out);
    return kept;
}

/* Decoded, or "!" and the error's text. */
static const char *decoded(const char *name, const char *data, size_t size)
{
    struct buf out = BUF_INIT(1 << 20);
    struct error err = ERROR_INIT;

    if (text_decode(name, data, size, &out, &err) < 0) {
        buf_clear(&out);
        cr_assert_eq(buf_append_format(&out, &err, "!%s", err.text), 0);
    }
    return keep(&out);
}

#define assert_decodes(name, data, text) cr_assert_str_eq(decoded((name), (data), sizeof(data) - 1), (text))

static const char *sliced(const char *text, int64_t offset, int64_t limit)
{
    struct buf out = BUF_INIT(1 << 20);
    struct error err = ERROR_INIT;

    cr_assert_eq(text_slice(text, strlen(text), offset, limit, &out, &err), 0);
    return keep(&out);
}

Test(text, takes_valid_utf8_as_it_is_and_drops_the_mark)
{
    assert_decodes("a.bin", "na\xc3\xafve\r\n", "na\xc3\xafve\r\n");
    assert_decodes("a",
                   "\xef\xbb\xbf"
                   "bom",
                   "bom");
    assert_decodes("", "", "");
}

Test(text, follows_the_marks_of_utf16_and_utf32)
{
    assert_decodes("a",
                   "\xff\xfe"
                   "h\0i\0",
                   "hi");
    assert_decodes("a", "\xfe\xff\0h\0i\xd8\x3d\xde\x00", "hi\xf0\x9f\x98\x80");
    assert_decodes("a", "\xff\xfe\0\0h\0\0\0", "h");
    assert_decodes("a", "\0\0\xfe\xff\0\1\xf6\0", "\xf0\x9f\x98\x80");
}

Test(text, one_bad_character_behind_a_mark_is_mended)
{
    assert_decodes("a.dat", "\xff\xfe\0\x01\x80", "\xc4\x80\xef\xbf\xbd"); /* as the reference's answer has it */
    assert_decodes("a.bin", "\xff\xfe\0\xd8", "\xef\xbf\xbd");             /* half a pair */
}

Test(text, takes_bytes_behind_a_mark_that_lies_for_what_they_are)
{
    assert_decodes("a.bin", "\xff\xfe\0\xd8\0\xd8x", "![Binary File]");
    assert_decodes("a.txt", "\xff\xfe\x01\xd8\x01\xd8x", "\xc3\xbf\xc3\xbe\x01\xc3\x98\x01\xc3\x98x");
}

Test(text, refuses_a_pdf_whose_source_would_be_no_text_to_a_reader)
{
    assert_decodes("a.PDF", "%PDF-1.4", "!Failed to parse PDF: no text can be taken from it here");
}

Test(text, falls_back_to_latin1_for_text_names_only)
{
    assert_decodes("x/y.TXT", "caf\xe9", "caf\xc3\xa9");
    assert_decodes("y.json", "\x80\xff", "\xc2\x80\xc3\xbf");
    assert_decodes("y.dat", "caf\xe9", "![Binary File]");
    assert_decodes("txt", "caf\xe9", "![Binary File]");
    assert_decodes("a.txt/b", "caf\xe9", "![Binary File]");
    assert_decodes("logo.png", "\x89PNG\r\n\x1a\n\0\0", "![Binary File]");
}

Test(text, decodes_long_latin1_whole_and_keeps_to_the_maximum)
{
    enum { SIZE = 100000 };
    char *data = malloc(SIZE);
    struct buf small = BUF_INIT(SIZE);
    struct error err = ERROR_INIT;

    memset(data, 0xe9, SIZE);
    cr_assert_eq(strlen(decoded("a.c", data, SIZE)), 2 * SIZE);
    cr_assert_eq(text_decode("a.c", data, SIZE, &small, &err), -1);
    cr_assert_eq(err.code, ERROR_TOO_LARGE);
    buf_done(&small);
    free(data);
}

Test(text, ends_lines_as_splitlines_does)
{
    cr_assert_str_eq(sliced("a\nb\r\nc\rd\ve\ff\x1cg\x1dh\x1ei\xc2\x85j\xe2\x80\xa8k\xe2\x80\xa9l", 0, 100),
                     "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl");
    cr_assert_str_eq(sliced("\xc2\xa9 \xe2\x80\xa6", 0, 100), "\xc2\xa9 \xe2\x80\xa6");
    cr_assert_str_eq(sliced("a\n\nb", 0, 100), "a\n\nb");
}

Test(text, counts_lines_as_an_editor_shows_them)
{
    cr_assert_str_eq(sliced("a\nb\nc", 2, 1), "c");
    cr_assert_str_eq(sliced("a\nb\n", 0, 2), "a\nb");
    cr_assert_str_eq(sliced("a\nb\n", 2, 2), "[End of file]");
    cr_assert_str_eq(sliced("\n", 0, 1), "");
    cr_assert_str_eq(sliced("", 0, 1), "[End of file]");
    cr_assert_str_eq(sliced("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", 5, 100), "6\n7\n8\n9\n10");
}

Test(text, says_how_much_is_left_and_where)
{
    cr_assert_str_eq(sliced("a\nb\nc\nd\n", 1, 1), "b\n\n[... 2 more lines. Use offset=2 to read more.]");
    cr_assert_str_eq(sliced("a\nb\nc\nd\n", 0, INT64_MAX), "a\nb\nc\nd");
    cr_assert_str_eq(sliced("a\nb\nc\nd\n", 3, INT64_MAX), "d");
    cr_assert_str_eq(sliced("a\n", INT64_MAX, INT64_MAX), "[End of file]");
    cr_assert_str_eq(sliced("\na\n", 0, 1), "\n\n[... 1 more lines. Use offset=1 to read more.]");
}
