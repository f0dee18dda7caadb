#include "cli_private.h"

#include "alloc.h"
#include "clock.h"
#include "utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { TEXT_MAX_BYTES = 64 * 1024 * 1024 };

/* -- what a terminal could take for a command -- */

static bool is_harmless(uint32_t character)
{
    if (character < 0x20 || (character >= 0x7f && character < 0xa0))
        return false;
    /* Marks that turn text around or hide it: an eye takes it for another. */
    return !((character >= 0x200b && character <= 0x200f) || (character >= 0x2028 && character <= 0x202e) ||
             (character >= 0x2060 && character <= 0x206f) || character == 0x061c || character == 0xfeff ||
             (character >= 0xe0000 && character <= 0xe007f));
}

/* `json`: as JSON writes it. */
static int escape(struct buf *out, const char *text, size_t size, bool json, struct error *err)
{
    while (size) {
        size_t length;
        uint32_t character = utf8_next(text, size, &length);
        bool is_broken = !utf8_valid(text, length);

        if (!is_broken && is_harmless(character)) {
            if (buf_append(out, text, length, err) < 0)
                return -1;
        } else if (is_broken || character < 0x100) {
            for (size_t i = 0; i < (is_broken ? length : 1); i++)
                if (buf_append_format(out, err, json ? "\\u%04x" : "\\x%02x",
                                      is_broken ? (unsigned char)text[i] : (unsigned)character) < 0)
                    return -1;
        } else if (character < 0x10000) {
            if (buf_append_format(out, err, "\\u%04x", (unsigned)character) < 0)
                return -1;
        } else if (buf_append_format(out, err, json ? "\\u%04x\\u%04x" : "\\U%04x%04x",
                                     json ? 0xd800 + ((unsigned)(character - 0x10000) >> 10)
                                          : (unsigned)(character >> 16),
                                     json ? 0xdc00 + ((unsigned)(character - 0x10000) & 0x3ff)
                                          : (unsigned)(character & 0xffff)) < 0) {
            return -1;
        }
        text += length;
        size -= length;
    }
    return 0;
}

int cli_escape(struct buf *out, const char *text, size_t size, bool is_terminal, struct error *err)
{
    return is_terminal ? escape(out, text, size, false, err) : buf_append(out, text, size, err);
}

/* Whether `out` is a terminal: standard output was asked once, standard error is taken for one always. */
static bool is_seen(const struct cli *cli, const FILE *out)
{
    return out != stdout || cli->is_terminal;
}

void cli_put(const struct cli *cli, FILE *out, const char *text)
{
    auto_buf struct buf clean = BUF_INIT(TEXT_MAX_BYTES);
    struct error err = ERROR_INIT;

    if (cli_escape(&clean, text, strlen(text), is_seen(cli, out), &err) == 0)
        (void)fwrite(buf_str(&clean), 1, clean.size, out);
}

void cli_put_json(const struct cli *cli, struct json_object *object)
{
    auto_buf struct buf clean = BUF_INIT(TEXT_MAX_BYTES);
    struct error err = ERROR_INIT;
    const char *text = json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);

    if (cli->is_terminal && escape(&clean, text, strlen(text), true, &err) == 0)
        text = buf_str(&clean);
    (void)puts(text);
}

/* -- numbers for people -- */

void cli_size(int64_t bytes, char out[static 24])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    unsigned unit = 0;

    for (; value >= 1023.95 && unit < 5; unit++)
        value /= 1024;
    if (bytes < 0)
        (void)snprintf(out, 24, "-");
    else
        (void)snprintf(out, 24, unit && value < 99.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void cli_since(double unix_seconds, char out[static 24])
{
    double seconds = (double)clock_unix_ms() / 1000 - unix_seconds;

    if (!(unix_seconds > 0) || !isfinite(unix_seconds))
        (void)snprintf(out, 24, "-");
    else if (seconds < 60)
        (void)snprintf(out, 24, "%.0fs", seconds < 0 ? 0 : seconds);
    else if (seconds < 3600)
        (void)snprintf(out, 24, "%.0fm", floor(seconds / 60));
    else if (seconds < 2 * 86400)
        (void)snprintf(out, 24, "%.0fh", floor(seconds / 3600));
    else
        (void)snprintf(out, 24, "%.0fd", floor(seconds / 86400));
}

/* -- tables -- */

void cli_table_add(struct cli_table *table, const char *text)
{
    table->cells = alloc_grow(table->cells, table->count + 1, sizeof *table->cells);
    table->cells[table->count++] = alloc_str(text && *text ? text : "-");
}

void cli_table_addf(struct cli_table *table, const char *format, ...)
{
    char text[256];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cli_table_add(table, text);
}

static void put_cell(const char *text, size_t width, bool right, bool last)
{
    size_t size = utf8_count(text, strlen(text));
    int blanks = size < width ? (int)(width - size) : 0;

    if (right)
        (void)printf("%*s%s", blanks, "", text);
    else
        (void)printf("%s%*s", text, last ? 0 : blanks, "");
    (void)fputs(last ? "\n" : "  ", stdout);
}

/* Printed text has to be of whole characters, whatever it was: widths are counted in them. */
static char *printable(const char *text)
{
    auto_buf struct buf clean = BUF_INIT(TEXT_MAX_BYTES);
    struct error err = ERROR_INIT;

    (void)escape(&clean, text, strlen(text), false, &err);
    return buf_take(&clean, NULL);
}

void cli_table_print(const struct cli_table *table)
{
    size_t *widths = alloc_array(table->columns, sizeof *widths);
    bool *numbers = alloc_array(table->columns, sizeof *numbers);

    for (unsigned column = 0; column < table->columns; column++) {
        widths[column] = strlen(table->heads[column]);
        numbers[column] = table->count > 0;
    }
    for (size_t i = 0; i < table->count; i++) {
        unsigned column = (unsigned)(i % table->columns);
        char *clean = printable(table->cells[i]);
        size_t width = utf8_count(clean, strlen(clean));

        free(table->cells[i]);
        table->cells[i] = clean;
        widths[column] = width > widths[column] ? width : widths[column];
        numbers[column] &= (*clean >= '0' && *clean <= '9') || strcmp(clean, "-") == 0;
    }
    for (unsigned column = 0; column < table->columns; column++)
        put_cell(table->heads[column], widths[column], column && numbers[column], column + 1 == table->columns);
    for (size_t i = 0; i < table->count; i++) {
        unsigned column = (unsigned)(i % table->columns);

        put_cell(table->cells[i], widths[column], column && numbers[column], column + 1 == table->columns);
    }
    free(widths);
    free(numbers);
}

void cli_table_done(struct cli_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    table->cells = NULL;
    table->count = 0;
}

/* -- members -- */

struct json_object *cli_member(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;

    return json_object_is_type(object, json_type_object) && json_member(object, key, &value) ? value : NULL;
}

const char *cli_str(struct json_object *object, const char *key)
{
    struct json_object *value = cli_member(object, key);

    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

int64_t cli_int(struct json_object *object, const char *key, int64_t fallback)
{
    struct json_object *value = cli_member(object, key);
    bool is_number = json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double);

    return is_number ? json_object_get_int64(value) : fallback;
}

double cli_real(struct json_object *object, const char *key)
{
    struct json_object *value = cli_member(object, key);
    bool is_number = json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double);

    return is_number ? json_object_get_double(value) : 0;
}

bool cli_bool(struct json_object *object, const char *key)
{
    struct json_object *value = cli_member(object, key);

    return json_object_is_type(value, json_type_boolean) && json_object_get_boolean(value);
}

size_t cli_length(struct json_object *array)
{
    return json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
}
