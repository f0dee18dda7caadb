#include "cli_private.h"

#include "alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -- the table -- */

#define VERB(id, ...) static const struct cli_option options_of_##id[] = {
#define OPTION(name, letter, value, help) {name, letter, value, help},
#define VERB_END(id)           \
    {                          \
        NULL, '\0', NULL, NULL \
    }                          \
    }                          \
    ;
#include "verbs.def"
#undef VERB
#undef OPTION
#undef VERB_END

const struct cli_verb cli_verbs[] = {
#define VERB(id, arguments, least, most, verbatim, summary, text, examples) \
    {#id, arguments, least, most, verbatim, summary, text, examples, options_of_##id, verb_##id},
#define OPTION(name, letter, value, help)
#define VERB_END(id)
#include "verbs.def"
#undef VERB
#undef OPTION
#undef VERB_END
    {.name = NULL},
};

const struct cli_option cli_common_options[] = {
    {"url", '\0', "URL", "where the broker is (BERTH_URL, SANDBOXD_URL; otherwise http://127.0.0.1:8080)"},
    {"token-file", '\0', "FILE", "a file with its token (BERTH_TOKEN_FILE, or the token itself in BERTH_TOKEN)"},
    {"help", 'h', NULL, "help, also of a verb"},
    {"version", '\0', NULL, "the version"},
    {NULL, '\0', NULL, NULL},
};

const struct cli_verb *cli_verb_of(const char *name)
{
    for (const struct cli_verb *verb = cli_verbs; verb->name; verb++)
        if (strcmp(verb->name, name) == 0)
            return verb;
    return NULL;
}

/* -- words -- */

static const struct cli_option *find(const struct cli_option *list, const char *name, size_t size, char letter)
{
    for (; list->name; list++)
        if (letter ? list->letter == letter : strlen(list->name) == size && memcmp(list->name, name, size) == 0)
            return list;
    return NULL;
}

static const struct cli_option *find_for(const struct cli *cli, const char *name, size_t size, char letter)
{
    const struct cli_option *option = cli->verb ? find(cli->verb->options, name, size, letter) : NULL;

    return option ? option : find(cli_common_options, name, size, letter);
}

static void add(struct cli *cli, const struct cli_option *option, const char *value)
{
    cli->given = alloc_grow(cli->given, cli->given_count + 1, sizeof *cli->given);
    cli->given[cli->given_count++] = (struct cli_given){option, value};
}

/* An option's value is behind '=', or the next word; one that begins with '?' may be left out, and is behind '=' only. */
static int long_option(struct cli *cli, char ***at, struct error *err)
{
    const char *name = **at + 2;
    size_t size = strcspn(name, "=");
    const struct cli_option *option = find_for(cli, name, size, '\0');
    const char *value = name[size] ? name + size + 1 : NULL;

    if (!option)
        return fail(err, INVALID, "there is no option --%.*s%s%s", (int)(size < 40 ? size : 40), name,
                    cli->verb ? " of " : " before the verb", cli->verb ? cli->verb->name : "");
    if (value && !option->value)
        return fail(err, INVALID, "--%s takes no value", option->name);
    if (!value && option->value && *option->value != '?') {
        value = *++*at;
        if (!value)
            return fail(err, INVALID, "--%s needs a value: %s", option->name, option->value);
    }
    add(cli, option, value);
    return 0;
}

/* "-abc" is -a -b -c; the rest of the word, or the next one, is the value of the first that takes one. */
static int short_options(struct cli *cli, char ***at, struct error *err)
{
    for (const char *letter = **at + 1; *letter; letter++) {
        const struct cli_option *option = find_for(cli, NULL, 0, *letter);
        const char *value = NULL;

        if (!option)
            return fail(err, INVALID, "there is no option -%c%s%s", *letter > ' ' && *letter < 127 ? *letter : '?',
                        cli->verb ? " of " : " before the verb", cli->verb ? cli->verb->name : "");
        if (option->value) {
            value = letter[1] ? letter + 1 : NULL;
            if (!value && *option->value != '?' && !(value = *++*at))
                return fail(err, INVALID, "-%c needs a value: %s", *letter, option->value);
        }
        add(cli, option, value);
        if (value)
            break;
    }
    return 0;
}

static void add_argument(struct cli *cli, char *word)
{
    cli->arguments = alloc_grow(cli->arguments, cli->argument_count + 2, sizeof *cli->arguments);
    cli->arguments[cli->argument_count++] = word;
    cli->arguments[cli->argument_count] = NULL;
}

static int check_count(const struct cli *cli, struct error *err)
{
    const struct cli_verb *verb = cli->verb;

    if (cli_has(cli, "help"))
        return 0;
    if (cli->argument_count < verb->least)
        return fail(err, INVALID, "%s needs more: berth %s %s", verb->name, verb->name, verb->arguments);
    if (cli->argument_count > verb->most)
        return fail(err, INVALID, "%s takes no \"%.60s\": berth %s %s", verb->name, cli->arguments[verb->most],
                    verb->name, verb->arguments);
    return 0;
}

int cli_parse(int argc, char **argv, struct cli *ret, struct error *err)
{
    bool options_end = false;

    (void)argc;
    for (char **at = argv + 1; *at; at++) {
        bool verbatim = ret->verb && ret->verb->verbatim_after && ret->argument_count > ret->verb->verbatim_after;

        if (verbatim || options_end || **at != '-' || !(*at)[1]) {
            if (ret->verb) {
                add_argument(ret, *at);
            } else if (!(ret->verb = cli_verb_of(*at))) {
                return fail(err, INVALID, "there is no verb \"%.40s\"; berth --help lists them", *at);
            }
        } else if (strcmp(*at, "--") == 0) {
            options_end = true;
        } else if (((*at)[1] == '-' ? long_option(ret, &at, err) : short_options(ret, &at, err)) < 0) {
            return -1;
        }
    }
    return ret->verb ? check_count(ret, err) : 0;
}

bool cli_has(const struct cli *cli, const char *option)
{
    for (unsigned i = 0; i < cli->given_count; i++)
        if (strcmp(cli->given[i].option->name, option) == 0)
            return true;
    return false;
}

const char *cli_value(const struct cli *cli, const char *option)
{
    for (unsigned i = cli->given_count; i-- > 0;)
        if (strcmp(cli->given[i].option->name, option) == 0)
            return cli->given[i].value;
    return NULL;
}

int cli_number(const struct cli *cli, const char *option, int64_t least, int64_t most, int64_t fallback, int64_t *ret,
               struct error *err)
{
    const char *text = cli_value(cli, option);
    char *end;

    *ret = fallback;
    if (!text)
        return 0;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    if (end == text || *end || errno || *ret < least || *ret > most)
        return fail(err, INVALID, "--%s takes a whole number from %lld to %lld", option, (long long)least,
                    (long long)most);
    return 0;
}
