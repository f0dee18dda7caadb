#include "edit.h"
#include "match.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct cancel never = CANCEL_NEVER;

/* -- globs -- */

Test(glob, crosses_slashes_and_dots)
{
    cr_assert(match_glob("*.py", "a/b/c.py"));
    cr_assert(match_glob("*/src/*.py", "./src/x/y.py"));
    cr_assert(match_glob("*", ".hidden"));
    cr_assert(match_glob("a?b", "a/b"));
    cr_assert(match_glob("**", ""));
    cr_assert(match_glob("", ""));
    cr_assert_not(match_glob("", "a"));
    cr_assert_not(match_glob("*.py", "a.pyc"));
    cr_assert_not(match_glob("*.PY", "a.py"));
    cr_assert_not(match_glob("a?", "a"));
}

Test(glob, knows_brackets_escapes_and_no_braces)
{
    cr_assert(match_glob("[ab].py", "a.py"));
    cr_assert_not(match_glob("[!a].py", "a.py"));
    cr_assert_not(match_glob("[^a].py", "a.py"));
    cr_assert(match_glob("[!a].py", "b.py"));
    cr_assert(match_glob("[a-c]x", "bx"));
    cr_assert(match_glob("[]]", "]"));
    cr_assert(match_glob("[a-]", "-"));
    cr_assert(match_glob("[[:digit:]x]", "7"));
    cr_assert_not(match_glob("[[:digit:]]", "x"));
    cr_assert(match_glob("x[0]", "x0"));
    cr_assert(match_glob("[a", "[a"));
    cr_assert(match_glob("\\*", "*"));
    cr_assert_not(match_glob("\\*", "x"));
    cr_assert_not(match_glob("x\\", "x"));
    cr_assert(match_glob("[\\]]", "]"));
    cr_assert(match_glob("{a,b}", "{a,b}"));
    cr_assert_not(match_glob("{a,b}", "a"));
}

Test(glob, counts_characters_and_takes_bytes_that_are_none)
{
    cr_assert(match_glob("na?ve", "na\xc3\xafve"));
    cr_assert(match_glob("[\xc3\xa0-\xc3\xbf]", "\xc3\xa9"));
    cr_assert(match_glob("bad?n", "bad\xffn"));
    cr_assert(match_glob("bad\xffn", "bad\xffn"));
    cr_assert_not(match_glob("bad\xef\xbf\xbdn", "bad\xffn"));
}

Test(glob, takes_no_time_for_many_stars)
{
    char pattern[2001];
    char text[4001];

    for (size_t i = 0; i < 1000; i++)
        memcpy(pattern + 2 * i, "*a", 3);
    memset(text, 'a', 4000);
    text[4000] = '\0';
    cr_assert(match_glob(pattern, text));
    pattern[1999] = 'b';
    cr_assert_not(match_glob(pattern, text));
}

/* -- expressions: what GNU grep 3.8 (LC_ALL=C.UTF-8) was seen to do -- */

/* Numbers of the matching lines, or "!" and the error's text. */
static const char *lines(enum match_syntax syntax, const char *pattern, const char *text)
{
    static char result[512];
    struct match_grep *grep = NULL;
    struct match_line line;
    struct error err = ERROR_INIT;
    int more;

    result[0] = '\0';
    if (match_grep_new(syntax, pattern, strlen(pattern), &grep, &err) < 0) {
        cr_assert_eq(err.code, ERROR_INVALID);
        (void)snprintf(result, sizeof result, "!%s", err.text);
        return result;
    }
    match_grep_start(grep, text, strlen(text));
    while ((more = match_grep_next(grep, &never, &line, &err)) > 0) {
        (void)snprintf(result + strlen(result), sizeof result - strlen(result), "%s%d", result[0] ? " " : "",
                       (int)line.number);
        cr_assert(match_grep_can_match(grep, line.line, line.size), "%s matches, and is told that it cannot", pattern);
    }
    if (more < 0)
        (void)snprintf(result, sizeof result, "?%s", error_code_name(err.code));
    match_grep_free(grep);
    return result;
}

#define assert_lines(pattern, text, numbers)                                                \
    cr_assert_str_eq(lines(MATCH_BASIC, (pattern), (text)), (numbers), "%s: %s", (pattern), \
                     lines(MATCH_BASIC, (pattern), (text)))
#define assert_refused(pattern, words)                                                  \
    cr_assert_str_eq(lines(MATCH_BASIC, (pattern), ""), "!" words, "%s: %s", (pattern), \
                     lines(MATCH_BASIC, (pattern), ""))

Test(grep, takes_signs_of_extended_expressions_literally)
{
    static const char text[] = "foo bar\nFoo baz\na+b aab\na.b axb\ntab\there\n(x|y){2}?\n";

    assert_lines("foo", text, "1");
    assert_lines("a+b", text, "3");
    assert_lines("a\\+b", text, "3 5");
    assert_lines("a.b", text, "3 4");
    assert_lines("a\\.b", text, "4");
    assert_lines("foo bar\\|axb", text, "1 4");
    assert_lines("foo bar|axb", text, "");
    assert_lines("(x|y){2}?", text, "6");
    assert_lines("\\d", "foo in md\n7\n", "1");
    assert_lines("\\t", text, "5");
    assert_lines("ba[rz]$", text, "1 2");
    assert_lines("^foo\\b", text, "1");
}

Test(grep, knows_where_anchors_and_repetitions_are_literal)
{
    assert_lines("*a", "*a\na\n", "1");
    assert_lines("\\(*a\\)", "*a\na\n", "1");
    assert_lines("^*a", "*a\naa\n", "1");
    assert_lines("\\+a", "+a\na\n", "1");
    assert_lines("\\{1\\}", "{1}\n1\n", "1");
    assert_lines("x$y", "x$y\nx\n", "1");
    assert_lines("a^b", "a^b\nb\n", "1");
    assert_lines("\\(^a\\)", "ba\nab\n", "2");
    assert_lines("\\(b$\\)", "ba\nab\n", "2");
    assert_lines("x\\|^a\\|b$", "ax\nba\nxb\naq\n", "1 3 4");
    assert_lines("^^", "^\na\n", "1");
    assert_lines("$$", "$\na\n", "1");
    assert_lines("a**", "b\n", "1");
    assert_lines("^a*\\{2\\}$", "aaa\nb\n", "1");
    assert_lines("^a*\\+$", "aa\nb\n", "1");
    assert_lines("^a\\{,2\\}$", "aa\naaa\n", "1");
    assert_lines("^a\\{2,\\}$", "a\naaa\n", "2");
    assert_lines("^ab\\{2\\}$", "abb\nabab\n", "1");
    assert_lines("^\\(ab\\)\\{2\\}$", "abb\nabab\n", "2");
    assert_lines("a\\}", "a}\na\n", "1");
}

Test(grep, knows_brackets)
{
    assert_lines("[]a]", "]\nb\n", "1");
    assert_lines("[^]a]", "]\nb\n", "2");
    assert_lines("[a\\]", "\\\nb\n", "1");
    assert_lines("[[:digit:]x]", "7\nx\ny\n", "1 2");
    assert_lines("[[.a.]-c]", "b\nd\n", "1");
    assert_lines("[[=a=]]", "a\nb\n", "1");
    assert_lines("[a-]", "-\nb\n", "1");
    assert_lines("[--/]", ".\na\n", "1");
    assert_lines("[^x]", "x\n\nxy\n", "3");
    assert_lines("x[0]", "x0\nx[0]\n", "1");
    assert_lines("[\xc3\xa9]", "\xc3\xa9\n\xc3\xa8\n", "1");
}

Test(grep, never_lets_a_match_cross_a_line)
{
    assert_lines("a[^x]b", "a\nb\naxb\nayb\n", "4");
    assert_lines("a\\Wb", "a\nb\na b\n", "3");
    assert_lines("a\\sb", "a\nb\na b\n", "3");
    assert_lines("a\\s*$", "a\n\nb\n", "1");
    assert_lines("a.b", "a\nb\n", "");
    assert_lines("\\`a", "ba\nab\n", "2");
    assert_lines("a\\'", "ab\nba\n", "2");
}

Test(grep, knows_words_and_references)
{
    assert_lines("\\<foo\\>", "foobar\na foo b\n", "2");
    assert_lines("\\bfoo", "xfoo\nfoo\n", "2");
    assert_lines("o\\B", "foo\nboy\n", "1 2");
    assert_lines("\\w\\w\\w", "ab\nabc\n", "2");
    assert_lines("^\\W$", "a\n-\n", "2");
    assert_lines("\\(a.\\)\\1", "abab\nabac\n", "1");
    assert_lines("\\(x\\)\\1\n\\(y\\)\\1", "xx\nyy\nxy\n", "1 2");
    assert_lines("in md\nbaz", "foo in md\nFoo baz\nq\n", "1 2");
}

Test(grep, counts_lines_as_an_editor)
{
    assert_lines("", "a\n\nb", "1 2 3");
    assert_lines("", "a\n", "1");
    assert_lines("", "", "");
    assert_lines("x*", "a\n\n", "1 2");
    assert_lines("^$", "a\n\nb\n\n", "2 4");
    assert_lines("$", "a\r\nb\n", "1 2");
    assert_lines("b", "a\nb\nb", "2 3");
}

Test(grep, refuses_in_the_words_of_grep)
{
    assert_refused("[", "Invalid regular expression");
    assert_refused("a[^", "Invalid regular expression");
    assert_refused("[a", "Unmatched [, [^, [:, [., or [=");
    assert_refused("[a\nb]", "Unmatched [, [^, [:, [., or [=");
    assert_refused("[[:alpha:", "Unmatched [, [^, [:, [., or [=");
    assert_refused("[[:foo:]]", "Invalid character class name");
    assert_refused("[[.xx.]]", "Invalid collation character");
    assert_refused("[:space:]", "character class syntax is [[:space:]], not [:space:]");
    assert_refused("\\(", "Unmatched ( or \\(");
    assert_refused("\\(a\nb\\)", "Unmatched ( or \\(");
    assert_refused("a\\)", "Unmatched ) or \\)");
    assert_refused("a\\{", "Unmatched \\{");
    assert_refused("a\\{2,1\\}", "Invalid content of \\{\\}");
    assert_refused("a\\{x\\}", "Invalid content of \\{\\}");
    assert_refused("a\\{1,2,3\\}", "Invalid content of \\{\\}");
    assert_refused("a\\{99999\\}", "Regular expression too big");
    assert_refused("a\\", "Trailing backslash");
    assert_refused("\\1", "Invalid back reference");
    assert_refused("\\(a\\)\\2", "Invalid back reference");
    assert_refused("\\(a\\1\\)", "Invalid back reference");
    assert_refused("[b-a]", "Invalid range end");
    assert_refused("[a-[:digit:]]", "Invalid range end");
}

Test(grep, literal_is_literal)
{
    static const char text[] = "-n\nSave 30% now\nx[0]\n$(touch z)\na\\b.*\nn\xc3\xa4h\n";

    cr_assert_str_eq(lines(MATCH_LITERAL, "-n", text), "1");
    cr_assert_str_eq(lines(MATCH_LITERAL, "30%", text), "2");
    cr_assert_str_eq(lines(MATCH_LITERAL, "x[0]", text), "3");
    cr_assert_str_eq(lines(MATCH_LITERAL, "$(touch z)", text), "4");
    cr_assert_str_eq(lines(MATCH_LITERAL, "\\b.*", text), "5");
    cr_assert_str_eq(lines(MATCH_LITERAL, "\xc3\xa4", text), "6");
    cr_assert_str_eq(lines(MATCH_LITERAL, "(", text), "4");
}

Test(grep, ends_in_time_whatever_the_expression)
{
    char text[200];

    memset(text, 'a', 60);
    (void)snprintf(text + 60, sizeof text - 60, "cb\nok aab\n");
    assert_lines("^\\(a\\|a\\)*b", text, "?TIMEOUT");
    assert_lines("\\(a\\|b\\)*b", text, "1 2");
    assert_lines("^\\(a*\\)*\\(a*\\)*\\(a*\\)*\\1\\2\\3b$", text, "?TIMEOUT");
}

Test(grep, refuses_floods_of_signs)
{
    char *pattern = malloc(70000);

    memset(pattern, '*', 60000);
    memcpy(pattern, "a", 1);
    pattern[60000] = '\0';
    cr_assert_str_eq(lines(MATCH_BASIC, pattern, "b\n"), "1");
    for (size_t i = 0; i < 10000; i++)
        memcpy(pattern + 1 + 6 * i, "\\{1\\}*", 6);
    cr_assert_str_eq(lines(MATCH_BASIC, pattern, "b\n"), "!Regular expression too big");
    for (size_t i = 0; i < 10000; i++)
        memcpy(pattern + 2 * i, "\\(", 2);
    cr_assert_str_eq(lines(MATCH_BASIC, pattern, "b\n"), "!Regular expression too big");
    free(pattern);
}

Test(grep, searches_long_texts_in_pieces_of_whole_lines)
{
    enum { LINES = 50000 };
    struct match_grep *grep = NULL;
    struct match_line line;
    struct error err = ERROR_INIT;
    char *text = malloc(LINES * 16 + 1);
    size_t size = 0;
    int64_t expected = 0;

    for (int i = 1; i <= LINES; i++)
        size += (size_t)snprintf(text + size, 16, "line %05d\n", i);
    cr_assert_eq(match_grep_new(MATCH_BASIC, "7$", 2, &grep, &err), 0);
    match_grep_start(grep, text, size);
    while (match_grep_next(grep, &never, &line, &err) > 0) {
        expected = expected ? expected + 10 : 7;
        cr_assert_eq(line.number, expected);
        cr_assert_eq(line.size, 10);
        cr_assert_eq(strtol(line.line + 5, NULL, 10), expected);
    }
    cr_assert_eq(expected, LINES - 3);
    match_grep_free(grep);
    free(text);
}

/* Of a text that cannot match nothing more is read: what is looked for first has to be right. */
static bool can_match(enum match_syntax syntax, const char *pattern, const char *text)
{
    struct match_grep *grep = NULL;
    struct error err = ERROR_INIT;
    bool can;

    cr_assert_eq(match_grep_new(syntax, pattern, strlen(pattern), &grep, &err), 0);
    can = match_grep_can_match(grep, text, strlen(text));
    match_grep_free(grep);
    return can;
}

Test(grep, knows_what_every_match_holds)
{
    cr_assert_not(can_match(MATCH_BASIC, "the needle", "the hay and a needl"));
    cr_assert(can_match(MATCH_BASIC, "the needle", "in it the needle"));
    cr_assert_not(can_match(MATCH_BASIC, "^def *main(", "def  Main("));
    cr_assert(can_match(MATCH_BASIC, "^def *main(", "demain("));
    cr_assert_not(can_match(MATCH_BASIC, "a\\.b\\[", "axb["));
    cr_assert_not(can_match(MATCH_BASIC, "needle[0-9]", "needl5"));
    cr_assert_not(can_match(MATCH_BASIC, "caf\xc3\xa9 noir", "caf\xe9 noi"));
    cr_assert(can_match(MATCH_BASIC, "caf\xc3\xa9 noir", "caf\xe9 noir"));
    cr_assert(can_match(MATCH_BASIC, "needles*", "a needle"));
    cr_assert(can_match(MATCH_BASIC, "needles\\?", "a needle"));
    cr_assert(can_match(MATCH_BASIC, "needle\\|hay", "hay"));
    cr_assert(can_match(MATCH_BASIC, "needle\nhay", "hay"));
    cr_assert(can_match(MATCH_BASIC, "\\(needle\\)*", "hay"));
    cr_assert(can_match(MATCH_BASIC, "ne\\{0\\}", "n"));
    cr_assert_not(can_match(MATCH_LITERAL, "a.*b[", "a.*b"));
    cr_assert(can_match(MATCH_LITERAL, "a.*b[", "a.*b["));
}

/* Compared at each place it would take minutes. */
Test(grep, looks_for_a_long_literal_in_bytes_that_are_all_but_it, .timeout = 60)
{
    enum { TEXT = 48 * 1024 * 1024, LITERAL = 20 * 1000 };
    char *text = malloc(TEXT + 1);
    char *literal = malloc(LITERAL + 1);

    memset(text, 'a', TEXT);
    memset(literal, 'a', LITERAL);
    text[TEXT] = literal[LITERAL] = '\0';
    literal[LITERAL - 1] = 'b';
    cr_assert_not(can_match(MATCH_LITERAL, literal, text));
    text[TEXT - 1] = 'b';
    cr_assert(can_match(MATCH_LITERAL, literal, text));
    free(text);
    free(literal);
}

static const char *searchable(const char *name, const char *data, size_t size)
{
    static char kept[128];
    auto_buf struct buf scratch = BUF_INIT(1000);
    struct error err = ERROR_INIT;
    const char *text;

    if (match_grep_text(name, data, size, &scratch, &text, &size, &err) < 0)
        return err.text[0] == '[' ? "[Binary File]" : "?";
    (void)snprintf(kept, sizeof kept, "%.*s", (int)size, text);
    return kept;
}

Test(grep, searches_text_only)
{
    cr_assert_str_eq(searchable("a.bin", "needle", 6), "needle");
    cr_assert_str_eq(searchable("a.txt", "nee\0dle", 7), "[Binary File]");
    cr_assert_str_eq(searchable("a.bin", "caf\xe9", 4), "[Binary File]");
    cr_assert_str_eq(searchable("a.txt", "caf\xe9", 4), "caf\xc3\xa9");
    cr_assert_str_eq(searchable("a", "", 0), "");
}

/* -- edits -- */

static const char *edited(const char *text, const char *old, const char *new, bool all)
{
    static char kept[256];
    auto_buf struct buf out = BUF_INIT(255);
    struct error err = ERROR_INIT;

    cr_assert_eq(edit_replace(text, strlen(text), old, strlen(old), new, strlen(new), all, &out, &err), 0);
    (void)snprintf(kept, sizeof kept, "%s", buf_str(&out));
    return kept;
}

Test(edit, counts_as_python_does)
{
    cr_assert_eq(edit_count("aaaa", 4, "aa", 2), 2);
    cr_assert_eq(edit_count("abc", 3, "x", 1), 0);
    cr_assert_eq(edit_count("a\xc3\xa9", 3, "", 0), 3);
    cr_assert_eq(edit_count("", 0, "", 0), 1);
    cr_assert_eq(edit_count("a\0b\0", 4, "\0", 1), 2);
}

Test(edit, touches_the_matched_bytes_only)
{
    cr_assert_str_eq(edited("a\r\nb\nc", "b", "B", false), "a\r\nB\nc");
    cr_assert_str_eq(edited("aaaa", "aa", "b", true), "bb");
    cr_assert_str_eq(edited("aaaa", "aa", "b", false), "baa");
    cr_assert_str_eq(edited("abc", "c", "", true), "ab");
    cr_assert_str_eq(edited("abc", "x", "y", true), "abc");
    cr_assert_str_eq(edited("a\xc3\xa9", "", "-", true), "-a-\xc3\xa9-");
    cr_assert_str_eq(edited("ab", "", "-", false), "-ab");
}

Test(edit, keeps_to_the_maximum)
{
    struct buf out = BUF_INIT(3);
    struct error err = ERROR_INIT;

    cr_assert_eq(edit_replace("aaaa", 4, "a", 1, "bb", 2, true, &out, &err), -1);
    cr_assert_eq(err.code, ERROR_TOO_LARGE);
    buf_done(&out);
}
