/* Fuzzer: a pattern and a text. Whatever translates must compile, end, and give lines that are in the text and hold what every match must. */
#include "cleanup.h"
#include "fuzz.h"
#include "match.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

static void check_lines(struct match_grep *grep, const char *text, size_t size)
{
    const struct cancel never = CANCEL_NEVER;
    struct error err = ERROR_INIT;
    struct match_line line;
    int64_t number = 0;

    match_grep_start(grep, text, size);
    while (match_grep_next(grep, &never, &line, &err) > 0) {
        if (line.line < text || line.line + line.size > text + size || line.number <= number ||
            memchr(line.line, '\n', line.size) || !match_grep_can_match(grep, line.line, line.size))
            abort();
        number = line.number;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const parts[] = {"a",  "b",   "*",        "\\(", "\\)", "\\|", "\\{", "\\}", "1",   ",",  "2",
                                        "[",  "]",   "^",        "$",   ".",   "\\1", "\\w", "\\W", "\\b", "\n", "-",
                                        "[:", ":]",  "\\+",      "\\?", "\\<", "\\'", "\\2", "x",   "{",   "(",  "\\",
                                        "[^", "\\s", "\xc3\xa9", "+",   "|",   ")",   "/",   "!",   "?"};
    auto_buf struct buf pattern = BUF_INIT(4096);
    auto_buf struct buf text = BUF_INIT(64 * 1024);
    struct match_grep *grep = NULL;
    struct error err = ERROR_INIT;

    for (size_t i = 0; i < size && i < 40; i++)
        (void)buf_append_str(&pattern, parts[data[i] % (sizeof parts / sizeof *parts)], &err);
    for (size_t i = 0; i < size; i++)
        (void)buf_append_str(&text, parts[data[i] / 4 % (sizeof parts / sizeof *parts)], &err);
    (void)match_glob(buf_str(&pattern), buf_str(&text));
    for (int syntax = MATCH_BASIC; syntax <= MATCH_LITERAL; syntax++) {
        error_clear(&err);
        if (match_grep_new(syntax, buf_str(&pattern), pattern.size, &grep, &err) == 0) {
            check_lines(grep, buf_str(&text), text.size);
            match_grep_free(grep);
        } else if (err.code != ERROR_INVALID) {
            abort();
        }
    }
    return 0;
}
