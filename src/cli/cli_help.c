#include "cli_private.h"

#include <string.h>

enum { WIDTH = 92, INDENT = 4, OPTION_WIDTH = 26 };

static void blanks(FILE *out, int count)
{
    (void)fprintf(out, "%*s", count > 0 ? count : 0, "");
}

/* Words, filled into lines. `column`: where the first of them begins. */
static void fill(FILE *out, const char *text, int indent, int column)
{
    blanks(out, indent - column);
    column = column > indent ? column : indent;
    while (*text) {
        int size = (int)strcspn(text, " ");

        if (column > indent && column + 1 + size > WIDTH) {
            (void)fputc('\n', out);
            blanks(out, indent);
            column = indent;
        } else if (column > indent) {
            (void)fputc(' ', out);
            column++;
        }
        (void)fprintf(out, "%.*s", size, text);
        column += size;
        text += size;
        text += strspn(text, " ");
    }
    (void)fputc('\n', out);
}

static void put_options(FILE *out, const struct cli_option *option)
{
    for (; option->name; option++) {
        const char *value = option->value;
        bool is_free = value && *value == '?';
        int column = fprintf(out, "  %s%.1s%s--%s%s%s%s", option->letter ? "-" : " ",
                             option->letter ? &option->letter : " ", option->letter ? ", " : "  ", option->name,
                             value ? (is_free ? "[=" : " ") : "", value ? value + is_free : "", is_free ? "]" : "");

        fill(out, option->help, OPTION_WIDTH + INDENT, column);
    }
}

static void put_examples(FILE *out, const char *at)
{
    (void)fputs("\nExamples:\n", out);
    while (*at) {
        int size = (int)strcspn(at, "\n");

        (void)fprintf(out, "  %.*s\n", size, at);
        at += size + (at[size] == '\n');
    }
}

static void help_of(const struct cli_verb *verb, FILE *out)
{
    (void)fprintf(out, "Usage: berth %s%s %s\n\n", verb->name, verb->options->name ? " [OPTION...]" : "",
                  verb->arguments);
    fill(out, verb->text, 0, 0);
    if (verb->options->name) {
        (void)fputs("\nOptions:\n", out);
        put_options(out, verb->options);
    }
    put_examples(out, verb->examples);
}

void cli_help(const struct cli_verb *verb, FILE *out)
{
    if (verb) {
        help_of(verb, out);
        return;
    }
    (void)fputs("Usage: berth VERB [OPTION...] [ARGUMENT...]\n\n"
                "Drives a broker of sandboxes (berthd) over its API.\n\n",
                out);
    for (verb = cli_verbs; verb->name; verb++)
        fill(out, verb->summary, 16, fprintf(out, "  %s", verb->name));
    (void)fputs("\nEverywhere:\n", out);
    put_options(out, cli_common_options);
    (void)fputs("\nThe token never goes onto a command line, where every user of the machine could read it.\n"
                "\nTo begin with:\n"
                "  export BERTH_URL=http://127.0.0.1:8080 BERTH_TOKEN_FILE=/etc/berth/token\n"
                "  berth status\n"
                "  berth shell --open me\n"
                "\nExit status:\n",
                out);
#define CODE(name, number, text) fill(out, text, 6, fprintf(out, "  %d", number));
    CLI_CODES(CODE)
#undef CODE
    (void)fputs("\nMore of a verb: berth VERB --help. All of it: man berth.\n", out);
}
