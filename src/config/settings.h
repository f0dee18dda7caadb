/* config/settings.h: everything an operator can set, from one table (settings.def).
 *
 * Sources, later wins: defaults, a file of KEY=value lines (--config), the environment. Only main includes this header; it hands
 * each room its own settings struct. Names, defaults, parsing and cross-checks of the SANDBOXD_* variables are the reference's
 * (wires/sandboxd-current.md, section 10).
 */
#ifndef BERTH_SETTINGS_H
#define BERTH_SETTINGS_H

#include "buf.h"
#include "error.h"
#include "opt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One entry of the allowlist. NULL and unset: the service's default applies. */
struct runtime_setting {
    char *alias;
    char *image; /* ready; NULL where `build` says what it is made of */
    struct {
        bool is_wanted;
        char *base_image;
        char *apt, *pip, *npm; /* packages, separated by blanks */
        char *setup;           /* commands, a line each */
        char *env;             /* NAME=value, a line each */
        char *dockerfile;      /* a folder with a Dockerfile; then nothing else of these */
    } build;
    char *description;
    char *mem_limit;
    char *memswap_limit;
    struct opt_float cpus;
    struct opt_int cpu_shares;
    struct opt_int pids_limit;
    char *network_mode;
    char *oci_runtime;
    bool caps_none; /* caps=none: drop the seven too */
    unsigned pool;  /* of SANDBOXD_POOL */
};

struct settings {
#define SETTING_STR(field, env, text, help) char *field;     /* required or with a default */
#define SETTING_OPT_STR(field, env, text, help) char *field; /* NULL: none */
#define SETTING_INT(field, env, text, help) int64_t field;
#define SETTING_OPT_INT(field, env, text, help) struct opt_int field;
#define SETTING_OPT_FLOAT(field, env, text, help) struct opt_float field;
#define SETTING_BOOL(field, env, text, help) bool field;
#include "settings.def"
    struct runtime_setting *runtime_list; /* made of SANDBOXD_RUNTIMES, in its order; one at least */
    size_t runtime_count;
    char *
        engine_socket; /* of DOCKER_HOST, or the first usual path that is there, or /var/run/docker.sock where none is */
};

#define SETTINGS_FILE "/etc/berth/berthd.conf"

/* SETTINGS_FILE where it is there (or cannot be looked at), else NULL. */
const char *settings_usual_file(void);

/* Reads `environ`-like NAME=value strings (NULL-terminated) over an optional file (NULL: none) of NAME=value lines. In the file '#'
 * begins a line of comment, quotes around the whole of a value are taken off, nothing is expanded; a name that is no setting, or is
 * there twice, is wrong; so is a file that everybody may write, or read while it holds a token. Afterwards default_runtime and state_dir
 * are always set, and work_dir has no slash at its end. On failure err->text is one line that names the variable, behind "file:line: "
 * where it comes from there, never the value of SANDBOXD_TOKEN, and *ret is empty. One warning in the log for each unknown SANDBOXD_*
 * of the environment. Blocks on the disk only. Caller frees with settings_done(). */
int settings_load(const char *const *environment, const char *file, struct settings *ret, struct error *err);
void settings_done(struct settings *settings); /* of a zeroed one: nothing */

/* Calls `visit` for each variable whose value is another one in `after`. */
void settings_differences(struct settings *before, struct settings *after,
                          void (*visit)(const char *variable, void *context), void *context);

/* The whole --help text. Caller frees. */
char *settings_help(void);

/* A manual page: "berthd.8" or "berthd.conf.5". NOT_FOUND: another one. */
int settings_page(const char *name, struct buf *out, struct error *err);

#endif
