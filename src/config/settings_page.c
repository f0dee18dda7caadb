/* Manual pages of the table: berthd(8) and berthd.conf(5). */
#include "settings_private.h"

#include <string.h>

struct row {
    const char *variable;
    const char *fallback; /* NULL: none */
    const char *help;
    const char *kind;
};

static const struct row table[] = {
#define SETTING_STR(field, env, text, help) {env, text, help, "text"},
#define SETTING_OPT_STR(field, env, text, help) {env, text, help, "text, or empty"},
#define SETTING_INT(field, env, text, help) {env, text, help, "a whole number"},
#define SETTING_OPT_INT(field, env, text, help) {env, text, help, "a whole number, or empty"},
#define SETTING_OPT_FLOAT(field, env, text, help) {env, text, help, "a number, or empty"},
#define SETTING_BOOL(field, env, text, help) {env, text, help, "true or false (1, 0, yes, no, on, off)"},
#include "settings.def"
};

static void raw(struct buf *out, const char *text)
{
    struct error err = ERROR_INIT;

    (void)buf_append_str(out, text, &err);
}

/* Text for roff, in the middle of a line. */
static void roff(struct buf *out, const char *text)
{
    struct error err = ERROR_INIT;

    for (; *text; text++) {
        const char *escaped = *text == '\\' ? "\\e" : *text == '-' ? "\\-" : *text == '\'' ? "\\(aq" : NULL;

        if (escaped)
            raw(out, escaped);
        else
            (void)buf_append(out, text, 1, &err);
    }
}

static void head(struct buf *out, const char *title, const char *section, const char *name, const char *what)
{
    struct error err = ERROR_INIT;

    (void)buf_append_format(out, &err, ".TH %s %s \"\" \"berth " PACKAGE_VERSION "\" \"Berth\"\n.SH NAME\n%s \\- %s\n",
                            title, section, name, what);
}

static void berthd(struct buf *out)
{
    head(out, "BERTHD", "8", "berthd", "the broker of sandboxes");
    raw(out, ".SH SYNOPSIS\n.B berthd\n[\\fB\\-\\-config\\fR \\fIFILE\\fR] [\\fB\\-\\-check\\-config\\fR] "
             "[\\fB\\-\\-new\\-key\\fR]\n"
             ".SH DESCRIPTION\n"
             "Gives every user of an application a sandbox (a container) over HTTP, and alone holds the container "
             "engine\\(aqs socket.\n"
             "It stays in the foreground and writes its log to standard error.\n"
             "It is set by the environment and by a file; see\n.BR berthd.conf (5).\n"
             ".SH OPTIONS\n"
             ".TP\n\\fB\\-\\-config\\fR \\fIFILE\\fR\nRead this file instead of " SETTINGS_FILE
             ", which is read if it is there.\n"
             ".TP\n.B \\-\\-check\\-config\nRead the environment and the file, say what is wrong, and end: 0 when "
             "nothing is, 2 otherwise.\n"
             ".TP\n.B \\-\\-new\\-key\nTake a key file that is not the one the database knows. All tokens of sessions "
             "change.\n"
             ".TP\n.BR \\-h \", \" \\-\\-help\nList the settings.\n"
             ".TP\n.B \\-\\-version\nPrint the version.\n"
             ".SH SIGNALS\n"
             ".TP\n.BR SIGTERM \", \" SIGINT\nStop: requests end, sandboxes are put to sleep (SANDBOXD_ON_STOP=keep "
             "leaves them running). At most 20 seconds.\n"
             ".TP\n.B SIGHUP\nRead the configuration again; see\n.BR berthd.conf (5).\n"
             ".SH EXIT STATUS\n0 after a stop that was asked for, 1 when it could not start, 2 for a wrong option or "
             "setting.\n"
             ".SH FILES\n"
             ".TP\n.I " SETTINGS_FILE "\nThe configuration.\n"
             ".TP\n.I /var/lib/berth\nDatabase, key and agent, unless SANDBOXD_STATE_DIR or SANDBOXD_WORKSPACE_ROOT "
             "(then its .berth) is set.\n"
             ".SH SEE ALSO\n.BR berth (1),\n.BR berthd.conf (5)\n");
}

static void berthd_conf(struct buf *out)
{
    struct error err = ERROR_INIT;

    head(out, "BERTHD.CONF", "5", "berthd.conf", "configuration of the broker of sandboxes");
    raw(out, ".SH DESCRIPTION\n"
             "Lines of \\fINAME\\fB=\\fIvalue\\fR.\nEmpty lines, and lines that begin with #, are nothing. Blanks "
             "around name and value are left out. Quotes (\\(aq or\n"
             "\\(dq) around the whole of a value are taken off; nothing in it is expanded, and # has no meaning "
             "there.\nAn empty value of an optional setting is none.\n"
             ".PP\nWhat the environment says of the same name wins.\n"
             ".PP\nThe start is refused, with file and line, for a line that is none of these, a name that is no "
             "setting, a name that is there twice, and a wrong\n"
             "value. It is also refused for a file that everybody may write, and for one that everybody may read if it "
             "holds a token: mode 600, or 640\n"
             "with a group of its own.\n"
             ".PP\nAt SIGHUP the file is read again. In force at once is what changed of the limits and ceilings that "
             "PUT /policy has too (SANDBOXD_MAX_SESSIONS,\n"
             "SANDBOXD_MEM_LIMIT and their like), SANDBOXD_LOG_LEVEL, and SANDBOXD_POLICY_OVERRIDES with its file. "
             "What else changed needs a restart, and the log says so.\n"
             "A wrong file changes nothing.\n"
             ".SH SETTINGS\n");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        (void)buf_append_format(out, &err, ".TP\n\\fB%s\\fR (%s", table[i].variable, table[i].kind);
        if (table[i].fallback) {
            raw(out, "; default ");
            roff(out, table[i].fallback);
        }
        raw(out, ")\n\\&");
        roff(out, table[i].help);
        raw(out, "\n");
    }
    raw(out, ".TP\n\\fBDOCKER_HOST\\fR (text, or empty)\n"
             "The socket of the engine, unix:///path. Otherwise the first that is there of the usual ones of Docker "
             "and Podman.\n"
             ".SH EXAMPLE\n.nf\n"
             "# /etc/berth/berthd.conf, mode 640\n"
             "SANDBOXD_TOKEN=long\\-and\\-random\n"
             "SANDBOXD_WORKSPACE_ROOT=/srv/berth\n"
             "SANDBOXD_PERSIST_CONTAINERS=true\n"
             "SANDBOXD_RUNTIMES=\\(aqpython=python:3.12\\-slim\\(aq\n"
             ".fi\n"
             ".SH SEE ALSO\n.BR berthd (8),\n.BR berth (1)\n");
}

int settings_page(const char *name, struct buf *out, struct error *err)
{
    if (strcmp(name, "berthd.8") == 0)
        berthd(out);
    else if (strcmp(name, "berthd.conf.5") == 0)
        berthd_conf(out);
    else
        return fail(err, NOT_FOUND, "there is no page %.40s", name);
    return 0;
}
