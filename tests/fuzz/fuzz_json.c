/* JSON from outside: what is taken is valid UTF-8, survives being written and read again, and never reads past its end. */
#include "buf.h"
#include "fuzz.h"
#include "json.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

/* The input chooses what comes next, so that most documents are nearly JSON and many are. */
struct choice {
    const uint8_t *at;
    const uint8_t *end;
    struct buf text;
};

static const char *const scalars[] = {"1", "-0", "1.5", "1e9", "true", "null", "false", "99999999999999999999"};
static const char *const pieces[] = {"a", "\\n", "\\\"", "\\u00e9", "\\ud83d\\ude00", "\xc3\xa9", "\\\\", "/"};
static const char *const faults[] = {"\\u0000", "\\ud83d", "\xff", ",",  "\"", "]",
                                     "NaN",     "1e999",   "\\x",  "01", "\t", "e"};

#define ONE_OF(words, number) (words)[(number) % (sizeof(words) / sizeof *(words))]

static void require(bool holds)
{
    if (!holds)
        abort();
}

static unsigned next(struct choice *choice)
{
    return choice->at < choice->end ? *choice->at++ : 0;
}

static void put(struct choice *choice, const char *word)
{
    struct error err = ERROR_INIT;

    (void)buf_append_str(&choice->text, word, &err);
}

static void put_string(struct choice *choice)
{
    put(choice, "\"");
    for (unsigned count = next(choice) % 5; count--;) {
        unsigned number = next(choice);

        put(choice, number < 250 ? ONE_OF(pieces, number) : ONE_OF(faults, next(choice)));
    }
    put(choice, "\"");
}

static void put_value(struct choice *choice, int depth)
{
    unsigned kind = next(choice);
    unsigned count = depth > 34 ? 0 : next(choice) % 4;
    bool is_object = kind % 2;

    if (kind > 250)
        put(choice, ONE_OF(faults, next(choice)));
    if (kind < 80)
        return kind < 40 ? put(choice, ONE_OF(scalars, count + kind)) : put_string(choice);
    put(choice, is_object ? "{" : " [");
    for (unsigned i = 0; i < count; i++) {
        put(choice, i ? "," : "");
        if (is_object) {
            put_string(choice);
            put(choice, ":");
        }
        put_value(choice, depth + 1);
    }
    put(choice, is_object ? "}\n" : "]");
}

/* On the heap and without a NUL behind it, so that a sanitizer sees a byte too many. */
static char *exact_copy(const struct buf *text)
{
    char *copy = malloc(text->size + !text->size);

    require(copy != NULL);
    memcpy(copy, buf_str(text), text->size);
    return copy;
}

static void check(const char *text, size_t size)
{
    auto_json struct json_object *object = NULL;
    auto_json struct json_object *again = NULL;
    struct error err = ERROR_INIT;
    size_t offset = size + 1;
    const char *written;

    if (json_parse(text, size, &object, &offset, &err) < 0) {
        require(!object && offset <= size && err.code != ERROR_NONE);
        return;
    }
    written = json_object_to_json_string(object);
    require(utf8_valid(written, strlen(written)));
    require(json_parse(written, strlen(written), &again, &offset, &err) == 0);
    require(json_object_equal(object, again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choice choice = {data, data + size, BUF_INIT(64 * 1024)};
    char *text;

    put_value(&choice, 0);
    text = exact_copy(&choice.text);
    check(text, choice.text.size);
    free(text);
    buf_done(&choice.text);
    check((const char *)data, size);
    return 0;
}
