/* Pages made of the table: berth(1), and the completions of shells. */
#include "cli_private.h"

#include <string.h>

/* -- berth(1) -- */

/* Text for roff: a line that begins with a dot or a quote would be a request, a backslash an escape, a minus a hyphen. */
static void roff(struct buf *out, const char *text)
{
    struct error err = ERROR_INIT;
    bool begins = true;

    for (; *text; text++) {
        if (begins && (*text == '.' || *text == '\''))
            (void)buf_append_str(out, "\\&", &err);
        begins = *text == '\n';
        if (*text == '\\')
            (void)buf_append_str(out, "\\e", &err);
        else if (*text == '-')
            (void)buf_append_str(out, "\\-", &err);
        else if (*text == '\'')
            (void)buf_append_str(out, "\\(aq", &err);
        else
            (void)buf_append(out, text, 1, &err);
    }
}

static void raw(struct buf *out, const char *text)
{
    struct error err = ERROR_INIT;

    (void)buf_append_str(out, text, &err);
}

static void man_options(struct buf *out, const struct cli_option *option)
{
    for (; option->name; option++) {
        const char *value = option->value;
        struct error err = ERROR_INIT;

        raw(out, ".TP\n");
        if (option->letter)
            (void)buf_append_format(out, &err, "\\fB\\-%c\\fR, ", option->letter);
        raw(out, "\\fB\\-\\-");
        roff(out, option->name);
        raw(out, "\\fR");
        if (value) {
            raw(out, *value == '?' ? "[=\\fI" : " \\fI");
            roff(out, value + (*value == '?'));
            raw(out, *value == '?' ? "\\fR]" : "\\fR");
        }
        raw(out, "\n");
        roff(out, option->help);
        raw(out, "\n");
    }
}

static void man_examples(struct buf *out, const char *examples)
{
    raw(out, ".PP\n.nf\n.RS\n");
    roff(out, examples);
    raw(out, ".RE\n.fi\n");
}

static void man_verb(struct buf *out, const struct cli_verb *verb)
{
    raw(out, ".SS \"berth ");
    roff(out, verb->name);
    raw(out, " ");
    roff(out, verb->arguments);
    raw(out, "\"\n");
    roff(out, verb->text);
    raw(out, "\n");
    man_options(out, verb->options);
    man_examples(out, verb->examples);
}

static void man(struct buf *out)
{
    raw(out, ".TH BERTH 1 \"\" \"berth " PACKAGE_VERSION "\" \"Berth\"\n"
             ".SH NAME\nberth \\- drive a broker of sandboxes\n"
             ".SH SYNOPSIS\n.B berth\n.I VERB\n[\\fIOPTION\\fR...] [\\fIARGUMENT\\fR...]\n"
             ".SH DESCRIPTION\n"
             "Talks to\n.BR berthd (8)\nover its HTTP API, and to nothing else. What comes out of sandboxes (names, "
             "paths, reasons) is shown with its\n"
             "control characters escaped when standard output is a terminal; only the output of\n.B run\nand\n.B "
             "shell\nis passed on as it is.\n"
             ".SH OPTIONS\nOf every verb:\n");
    man_options(out, cli_common_options);
    raw(out, ".SH VERBS\n");
    for (const struct cli_verb *verb = cli_verbs; verb->name; verb++)
        man_verb(out, verb);
    raw(out, ".SH EXIT STATUS\n");
#define CODE(name, number, text)    \
    raw(out, ".TP\n" #number "\n"); \
    roff(out, text);                \
    raw(out, "\n");
    CLI_CODES(CODE)
#undef CODE
    raw(out, ".SH ENVIRONMENT\n"
             ".TP\n.BR BERTH_URL \", \" SANDBOXD_URL\nWhere the broker is: http:// or https://. The first that is set "
             "counts. Proxies are not used.\n"
             ".TP\n.B BERTH_TOKEN\nThe token: the service\\(aqs, or that of one session for what that may.\n"
             ".TP\n.B BERTH_TOKEN_FILE\nA file that holds it.\n"
             ".TP\n.B SANDBOXD_TOKEN\nThe token, if neither is set.\n"
             ".SH SEE ALSO\n.BR berthd (8),\n.BR berthd.conf (5)\n");
}

/* -- bash -- */

/* Verbs whose arguments are sessions. */
static bool takes_sessions(const struct cli_verb *verb)
{
    return strncmp(verb->arguments, "SESSION", 7) == 0 || strcmp(verb->name, "open") == 0;
}

static void words(struct buf *out, const struct cli_option *option)
{
    struct error err = ERROR_INIT;

    for (; option->name; option++)
        (void)buf_append_format(out, &err, "--%s%s ", option->name, option->value && *option->value != '?' ? "" : "");
}

static void bash(struct buf *out)
{
    struct error err = ERROR_INIT;

    raw(out, "# bash completion of berth, made of its table of verbs\n"
             "_berth() {\n"
             "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb= options= kind= i\n"
             "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
             "        case ${COMP_WORDS[i]} in\n"
             "        --url | --token-file) ((i++)) ;;\n"
             "        -*) ;;\n"
             "        *) verb=${COMP_WORDS[i]}; break ;;\n"
             "        esac\n"
             "    done\n"
             "    COMPREPLY=()\n"
             "    case $before in\n"
             "    --token-file) mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return ;;\n"
             "    esac\n"
             "    case $verb in\n"
             "    '') kind=verbs ;;\n");
    for (const struct cli_verb *verb = cli_verbs; verb->name; verb++) {
        (void)buf_append_format(out, &err, "    %s) options='", verb->name);
        words(out, verb->options);
        (void)buf_append_format(out, &err, "' kind=%s ;;\n",
                                strcmp(verb->name, "cp") == 0           ? "files"
                                : strcmp(verb->name, "completion") == 0 ? "shells"
                                : strcmp(verb->name, "workspaces") == 0 ? "stored"
                                : takes_sessions(verb)                  ? "sessions"
                                                                        : "none");
    }
    raw(out, "    esac\n"
             "    if [[ $word == -* ]]; then\n"
             "        mapfile -t COMPREPLY < <(compgen -W \"$options ");
    words(out, cli_common_options);
    raw(out, "\" -- \"$word\")\n"
             "        return\n"
             "    fi\n"
             "    case $kind in\n"
             "    verbs) options='");
    for (const struct cli_verb *verb = cli_verbs; verb->name; verb++)
        (void)buf_append_format(out, &err, "%s ", verb->name);
    raw(out, "' ;;\n"
             "    shells) options='bash zsh' ;;\n"
             "    stored) options='list pin unpin delete' ;;\n"
             "    sessions) options=$(timeout 2 berth sessions --quiet 2>/dev/null) ;;\n"
             "    files) mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return ;;\n"
             "    *) return ;;\n"
             "    esac\n"
             "    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
             "}\n"
             "complete -F _berth berth\n");
}

/* -- zsh -- */

/* Within single quotes and a pair of brackets. */
static void zsh_text(struct buf *out, const char *text)
{
    struct error err = ERROR_INIT;

    for (; *text; text++) {
        if (*text == '\'')
            raw(out, "'\\''");
        else if (strchr("[]:\\", *text))
            (void)buf_append_format(out, &err, "\\%c", *text);
        else
            (void)buf_append(out, text, 1, &err);
    }
}

static void zsh_options(struct buf *out, const struct cli_option *option)
{
    struct error err = ERROR_INIT;

    for (; option->name; option++) {
        bool is_free = option->value && *option->value == '?';

        (void)buf_append_format(out, &err, " '--%s%s[", option->name, option->value ? (is_free ? "=-" : "=") : "");
        zsh_text(out, option->help);
        (void)buf_append_format(out, &err, "]%s%s%s'", option->value ? (is_free ? "::" : ":") : "",
                                option->value ? option->value + is_free : "",
                                !option->value                            ? ""
                                : strcmp(option->name, "token-file") == 0 ? ":_files"
                                                                          : ":");
    }
}

static void zsh(struct buf *out)
{
    struct error err = ERROR_INIT;

    raw(out, "#compdef berth\n# zsh completion of berth, made of its table of verbs\n"
             "_berth_sessions() { local -a ids; ids=(${(f)\"$(timeout 2 berth sessions --quiet 2>/dev/null)\"}); "
             "compadd -a ids }\n"
             "_berth() {\n"
             "    local -a verbs\n"
             "    local context state line\n"
             "    verbs=(");
    for (const struct cli_verb *verb = cli_verbs; verb->name; verb++) {
        (void)buf_append_format(out, &err, " '%s:", verb->name);
        zsh_text(out, verb->summary);
        raw(out, "'");
    }
    raw(out, ")\n    _arguments -C");
    zsh_options(out, cli_common_options);
    raw(out, " '1:verb:->verb' '*::argument:->argument'\n"
             "    case $state in\n"
             "    verb) _describe verb verbs ;;\n"
             "    argument)\n"
             "        case $words[1] in\n");
    for (const struct cli_verb *verb = cli_verbs; verb->name; verb++) {
        (void)buf_append_format(out, &err, "        %s) _arguments", verb->name);
        zsh_options(out, verb->options);
        (void)buf_append_format(out, &err, " '*::argument:%s' ;;\n",
                                strcmp(verb->name, "cp") == 0 ? "_files"
                                : takes_sessions(verb)        ? "_berth_sessions"
                                                              : "");
    }
    raw(out, "        esac ;;\n    esac\n}\n_berth \"$@\"\n");
}

int cli_page(const char *name, struct buf *out, struct error *err)
{
    if (strcmp(name, "man") == 0)
        man(out);
    else if (strcmp(name, "bash") == 0)
        bash(out);
    else if (strcmp(name, "zsh") == 0)
        zsh(out);
    else
        return fail(err, INVALID, "there is no completion for \"%.40s\": bash and zsh", name);
    return 0;
}

int verb_completion(struct cli *cli, struct error *err)
{
    auto_buf struct buf out = BUF_INIT(1024 * 1024);

    if (cli_page(strcmp(cli->arguments[0], "man") == 0 ? "" : cli->arguments[0], &out, err) < 0)
        return -1;
    (void)fwrite(buf_str(&out), 1, out.size, stdout);
    return CLI_OK;
}
