/* config/settings_private.h: the parts of settings_load(), for this room and its test only. Threads: any, at start.
 *
 * Texts of errors name no variable unless said: the caller, who knows it, puts it in front. They never hold the whole of a
 * value, and nothing that would make a second line.
 */
#ifndef BERTH_SETTINGS_PRIVATE_H
#define BERTH_SETTINGS_PRIVATE_H

#include "settings.h"

enum { SETTINGS_SHOWN_BYTES = 48, SETTINGS_SOURCE_MAX = 1024 * 1024 };

/* -- values (settings_parse.c) -- */

/* White space around a number is left out, one sign is taken. INVALID: no whole number, or over 64 bits. */
int settings_parse_int(const char *text, int64_t *ret, struct error *err);
/* Decimal or with an exponent; finite only. */
int settings_parse_float(const char *text, double *ret, struct error *err);
/* 1/0 true/false yes/no on/off, any case. */
int settings_parse_bool(const char *text, bool *ret, struct error *err);
/* The beginning of a value, for an error's text. Returns `out`. */
const char *settings_shown(const char *value, char out[SETTINGS_SHOWN_BYTES]);
/* The network of a sandbox: none, or the name of one of the engine's; never the host's or another container's. */
int settings_check_network(const char *name, struct error *err);
bool settings_is_printable(const char *text); /* no control characters; valid UTF-8 */

/* -- where values come from (settings_source.c) -- */

struct settings_pair {
    char *name;
    char *value;
    unsigned line;
};
struct settings_source {
    const char *const *environment; /* borrowed */
    const char *file;               /* borrowed; NULL: none */
    struct settings_pair *pairs;    /* of the file, in its order */
    size_t pair_count;
};

/* `file` may be NULL. Errors begin with "file:line". Caller frees with settings_source_done(), on success only. */
int settings_source_open(const char *const *environment, const char *file, struct settings_source *ret,
                         struct error *err);
void settings_source_done(struct settings_source *source);
/* The environment wins. NULL: not there. Borrowed. */
const char *settings_source_get(const struct settings_source *source, const char *name);
/* An error whose text begins with the name of a variable gets the "file:line" of it in front, if it came from there. Always -1. */
int settings_source_place(const struct settings_source *source, struct error *err);

/* A variable that is read: of the table, or DOCKER_HOST (settings.c). */
bool settings_known(const char *name);

/* The engine's socket by DOCKER_HOST (may be NULL) or the first of `usual` that is a socket, else usual[0]. Errors name
 * DOCKER_HOST. *ret: caller frees. */
int settings_engine_socket(const char *docker_host, const char *const *usual, size_t usual_count, char **ret,
                           struct error *err);

/* -- SANDBOXD_RUNTIMES (settings_runtimes.c) -- */

/* Both forms. On failure *ret_list is untouched. */
int settings_parse_runtimes(const char *text, struct runtime_setting **ret_list, size_t *ret_count, struct error *err);
void settings_runtimes_done(struct runtime_setting *list, size_t count);

/* -- SANDBOXD_POOL (settings_pool.c): sets `pool` of the runtimes it names. Errors name the variable. -- */
enum { SETTINGS_POOL_MAX = 1000 };
int settings_parse_pool(struct settings *settings, struct error *err);

/* -- what must fit together (settings_check.c): errors name the variable -- */
int settings_check(const struct settings *settings, struct error *err);

#endif
