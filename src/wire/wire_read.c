#include "wire_read.h"

#include "wire_json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* -- what is wrong -- */

void wire_invalid_done(struct wire_invalid *invalid)
{
    buf_done(&invalid->items);
}

bool wire_invalid_any(const struct wire_invalid *invalid)
{
    return invalid->items.size > 0;
}

void wire_invalid_add(struct wire_invalid *invalid, struct wire_at at, const char *type, const char *message)
{
    struct wire_writer writer = WIRE_WRITER(&invalid->items);
    size_t before = invalid->items.size;

    wire_put_open(&writer, NULL, '{');
    wire_put_str(&writer, "type", type);
    wire_put_open(&writer, "loc", '[');
    wire_put_str(&writer, NULL, at.where);
    if (at.field)
        wire_put_str(&writer, NULL, at.field);
    if (at.key)
        wire_put_str(&writer, NULL, at.key);
    if (at.member)
        wire_put_str(&writer, NULL, at.member);
    if (at.index >= 0)
        wire_put_int(&writer, NULL, at.index);
    wire_put_close(&writer, ']');
    wire_put_str(&writer, "msg", message);
    wire_put_close(&writer, '}');
    if (writer.err.code == ERROR_NONE)
        return;
    if (before > 0) {
        invalid->items.size = before;
        invalid->items.data[before] = '\0';
    } else { /* a key of 64 KiB: say it without */
        buf_clear(&invalid->items);
        wire_invalid_add(invalid, WIRE_AT(at.where, at.field), type, message);
    }
}

void wire_invalid_pattern(struct wire_invalid *invalid, struct wire_at at, const char *pattern)
{
    char message[96];

    (void)snprintf(message, sizeof message, "String should match pattern '%s'", pattern);
    wire_invalid_add(invalid, at, "string_pattern_mismatch", message);
}

/* -- lax values -- */

static void trim(const char **text, size_t *size)
{
    static const char blanks[] = " \t\n\r\v\f";

    while (*size && memchr(blanks, **text, sizeof blanks - 1)) {
        ++*text;
        --*size;
    }
    while (*size && memchr(blanks, (*text)[*size - 1], sizeof blanks - 1))
        --*size;
}

/* " +5 ", "1_000", "5.00"; out of range: the nearest. */
static bool int_of_text(const char *text, size_t size, int64_t *ret)
{
    bool negative = false;
    bool digit = false;
    bool huge = false;
    int64_t value = 0;
    size_t i = 0;

    trim(&text, &size);
    if (i < size && (text[i] == '+' || text[i] == '-'))
        negative = text[i++] == '-';
    for (; i < size && text[i] != '.'; i++) {
        if (text[i] == '_' && digit) { /* between digits only */
            digit = false;
            continue;
        }
        if (text[i] < '0' || text[i] > '9')
            return false;
        digit = true;
        huge =
            huge || __builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text[i] - '0', &value);
    }
    if (!digit)
        return false;
    if (i < size && strspn(text + i + 1, "0") < size - i - 1)
        return false;
    if (i < size && i + 1 == size)
        return false; /* "5." */
    if (huge)
        value = INT64_MAX;
    *ret = negative ? -value : value;
    return true;
}

static bool float_of_text(const char *text, size_t size, double *ret)
{
    char copy[400]; /* the longest double that is written out */
    char *end;

    trim(&text, &size);
    if (size == 0 || size >= sizeof copy || memchr(text, '\0', size))
        return false;
    memcpy(copy, text, size);
    copy[size] = '\0';
    if (strpbrk(copy, "xX(")) /* what C reads and the wire does not */
        return false;
    *ret = strtod(copy, &end);
    return *end == '\0';
}

static bool bool_of_text(const char *text, size_t size, bool *ret)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {{"0", false}, {"1", true},  {"t", true},   {"f", false},  {"true", true}, {"false", false},
                 {"y", true},  {"n", false}, {"yes", true}, {"no", false}, {"on", true},   {"off", false}};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i].word) == size && strncasecmp(words[i].word, text, size) == 0) {
            *ret = words[i].value;
            return true;
        }
    }
    return false;
}

/* -- fields -- */

static struct wire_at at_field(const struct wire_reader *reader, const char *field)
{
    if (!reader->field)
        return WIRE_AT("body", field);
    return (struct wire_at){"body", reader->field, reader->key, field, -1};
}

/* The value of a field: true if there is one to judge; null counts as one unless it may be null. */
static bool member(const struct wire_reader *reader, const char *field, enum wire_need need, struct json_object **ret)
{
    if (!json_member(reader->object, field, ret)) {
        if (need == WIRE_REQUIRED)
            wire_invalid_add(reader->invalid, at_field(reader, field), "missing", "Field required");
        return false;
    }
    return *ret || need != WIRE_NULLABLE;
}

bool wire_has_nul(struct wire_text text)
{
    return text.size > 0 && memchr(text.data, '\0', text.size) != NULL; /* what is not there has no data */
}

bool wire_text_of(struct wire_invalid *invalid, struct wire_at at, struct json_object *value, struct wire_text *ret)
{
    if (!json_object_is_type(value, json_type_string)) {
        wire_invalid_add(invalid, at, "string_type", "Input should be a valid string");
        return false;
    }
    ret->data = json_object_get_string(value);
    ret->size = (size_t)json_object_get_string_len(value);
    return true;
}

bool wire_read_text(const struct wire_reader *reader, const char *field, enum wire_need need, struct wire_text *ret)
{
    struct json_object *value;

    return member(reader, field, need, &value) && wire_text_of(reader->invalid, at_field(reader, field), value, ret);
}

static bool refuse_bool(struct wire_invalid *invalid, struct wire_at at, bool is_scalar)
{
    if (is_scalar)
        wire_invalid_add(invalid, at, "bool_parsing", "Input should be a valid boolean, unable to interpret input");
    else
        wire_invalid_add(invalid, at, "bool_type", "Input should be a valid boolean");
    return false;
}

bool wire_read_bool(const struct wire_reader *reader, const char *field, enum wire_need need, bool *ret)
{
    struct json_object *value;
    enum json_type type;
    double number;

    if (!member(reader, field, need, &value))
        return false;
    type = json_object_get_type(value);
    if (type == json_type_boolean) {
        *ret = json_object_get_boolean(value);
        return true;
    }
    if (type == json_type_int || type == json_type_double) {
        number = json_object_get_double(value);
        if (number == 0 || number == 1) {
            *ret = number == 1;
            return true;
        }
        return refuse_bool(reader->invalid, at_field(reader, field), true);
    }
    if (type == json_type_string) {
        if (bool_of_text(json_object_get_string(value), (size_t)json_object_get_string_len(value), ret))
            return true;
        return refuse_bool(reader->invalid, at_field(reader, field), true);
    }
    return refuse_bool(reader->invalid, at_field(reader, field), false);
}

static bool refuse_int_text(struct wire_invalid *invalid, struct wire_at at)
{
    wire_invalid_add(invalid, at, "int_parsing",
                     "Input should be a valid integer, unable to parse string as an integer");
    return false;
}

static bool int_of_double(struct wire_invalid *invalid, struct wire_at at, double number, int64_t *ret)
{
    if (!isfinite(number)) {
        wire_invalid_add(invalid, at, "finite_number", "Input should be a finite number");
        return false;
    }
    if (number != trunc(number)) {
        wire_invalid_add(invalid, at, "int_from_float",
                         "Input should be a valid integer, got a number with a fractional part");
        return false;
    }
    *ret = number >= 9.2e18 ? INT64_MAX : number <= -9.2e18 ? INT64_MIN : (int64_t)number;
    return true;
}

static bool at_least(struct wire_invalid *invalid, struct wire_at at, int64_t value, int64_t minimum)
{
    char message[80];

    if (value >= minimum)
        return true;
    (void)snprintf(message, sizeof message, "Input should be greater than or equal to %lld", (long long)minimum);
    wire_invalid_add(invalid, at, "greater_than_equal", message);
    return false;
}

static bool at_most(struct wire_invalid *invalid, struct wire_at at, int64_t value, int64_t maximum)
{
    char message[80];

    if (value <= maximum)
        return true;
    (void)snprintf(message, sizeof message, "Input should be less than or equal to %lld", (long long)maximum);
    wire_invalid_add(invalid, at, "less_than_equal", message);
    return false;
}

bool wire_read_int(const struct wire_reader *reader, const char *field, enum wire_need need, int64_t minimum,
                   int64_t *ret)
{
    return wire_read_int_within(reader, field, need, minimum, INT64_MAX, ret);
}

bool wire_read_int_within(const struct wire_reader *reader, const char *field, enum wire_need need, int64_t minimum,
                          int64_t maximum, int64_t *ret)
{
    struct wire_at at = at_field(reader, field);
    struct json_object *value;
    int64_t number = 0;

    if (!member(reader, field, need, &value))
        return false;
    switch (json_object_get_type(value)) {
    case json_type_int: /* json-c gives the nearest of what is out of range */
        number = json_object_get_int64(value);
        break;
    case json_type_boolean:
        number = json_object_get_boolean(value);
        break;
    case json_type_double:
        if (!int_of_double(reader->invalid, at, json_object_get_double(value), &number))
            return false;
        break;
    case json_type_string:
        if (!int_of_text(json_object_get_string(value), (size_t)json_object_get_string_len(value), &number))
            return refuse_int_text(reader->invalid, at);
        break;
    default:
        wire_invalid_add(reader->invalid, at, "int_type", "Input should be a valid integer");
        return false;
    }
    if (!at_least(reader->invalid, at, number, minimum) || !at_most(reader->invalid, at, number, maximum))
        return false;
    *ret = number;
    return true;
}

static bool read_above_zero(const struct wire_reader *reader, const char *field, enum wire_need need,
                            bool may_be_infinite, double *ret)
{
    struct wire_at at = at_field(reader, field);
    struct json_object *value;
    double number = 0;

    if (!member(reader, field, need, &value))
        return false;
    switch (json_object_get_type(value)) {
    case json_type_int:
    case json_type_double:
        number = json_object_get_double(value);
        break;
    case json_type_boolean:
        number = json_object_get_boolean(value);
        break;
    case json_type_string:
        if (!float_of_text(json_object_get_string(value), (size_t)json_object_get_string_len(value), &number)) {
            wire_invalid_add(reader->invalid, at, "float_parsing",
                             "Input should be a valid number, unable to parse string as a number");
            return false;
        }
        break;
    default:
        wire_invalid_add(reader->invalid, at, "float_type", "Input should be a valid number");
        return false;
    }
    if (isnan(number) || (isinf(number) && !may_be_infinite)) {
        wire_invalid_add(reader->invalid, at, "finite_number", "Input should be a finite number");
        return false;
    }
    if (number <= 0) {
        wire_invalid_add(reader->invalid, at, "greater_than", "Input should be greater than 0");
        return false;
    }
    *ret = number;
    return true;
}

bool wire_read_positive(const struct wire_reader *reader, const char *field, enum wire_need need, double *ret)
{
    return read_above_zero(reader, field, need, false, ret);
}

bool wire_read_seconds(const struct wire_reader *reader, const char *field, enum wire_need need, double *ret)
{
    return read_above_zero(reader, field, need, true, ret);
}

void wire_read_only(const struct wire_reader *reader, const char *const *known)
{
    json_object_object_foreach(reader->object, name, value)
    {
        size_t i = 0;

        (void)value;
        while (known[i] && strcmp(known[i], name) != 0)
            i++;
        if (!known[i])
            wire_invalid_add(reader->invalid, at_field(reader, name), "extra_forbidden",
                             "Extra inputs are not permitted");
    }
}

struct json_object *wire_read_list(const struct wire_reader *reader, const char *field, enum wire_need need,
                                   size_t minimum, size_t maximum)
{
    struct wire_at at = at_field(reader, field);
    struct json_object *value;
    char message[80];
    size_t count;

    if (!member(reader, field, need, &value))
        return NULL;
    if (!json_object_is_type(value, json_type_array)) {
        wire_invalid_add(reader->invalid, at, "list_type", "Input should be a valid list");
        return NULL;
    }
    count = json_object_array_length(value);
    if (count >= minimum && count <= maximum)
        return value;
    (void)snprintf(message, sizeof message, "List should have at %s %zu items after validation, not %zu",
                   count < minimum ? "least" : "most", count < minimum ? minimum : maximum, count);
    wire_invalid_add(reader->invalid, at, count < minimum ? "too_short" : "too_long", message);
    return NULL;
}

struct json_object *wire_read_object(const struct wire_reader *reader, const char *field, enum wire_need need)
{
    struct json_object *value;

    if (!member(reader, field, need, &value))
        return NULL;
    if (json_object_is_type(value, json_type_object))
        return value;
    wire_invalid_add(reader->invalid, at_field(reader, field), "dict_type", "Input should be a valid dictionary");
    return NULL;
}

/* -- query -- */

void wire_query_bool(struct wire_invalid *invalid, const char *key, const char *text, size_t size, bool *ret)
{
    if (text && !bool_of_text(text, size, ret))
        (void)refuse_bool(invalid, WIRE_AT("query", key), true);
}

void wire_query_int(struct wire_invalid *invalid, const char *key, const char *text, size_t size, int64_t minimum,
                    int64_t *ret)
{
    struct wire_at at = WIRE_AT("query", key);
    int64_t number;

    if (!text)
        return;
    if (!int_of_text(text, size, &number))
        (void)refuse_int_text(invalid, at);
    else if (at_least(invalid, at, number, minimum))
        *ret = number;
}
