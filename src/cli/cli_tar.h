/* cli/cli_tar.h: a directory here as a stream of tar, both ways. Threads: one.
 *
 * What comes out of a sandbox is hostile: nothing is written outside the target, over a link, or with set-id bits or another owner; devices,
 * FIFOs and sockets are left out.
 */
#ifndef BERTH_CLI_TAR_H
#define BERTH_CLI_TAR_H

#include "error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reading a tree: bytes of the archive as they are asked for. */
struct cli_pack;
int cli_pack_open(const char *dir, struct cli_pack **ret, struct error *err);
int64_t cli_pack_next(void *pack, char *out, size_t max, struct error *err); /* as cli_request.next */
unsigned cli_pack_skipped(const struct cli_pack *pack);
void cli_pack_free(struct cli_pack *pack);

/* Unpacks into `dir`, which is made if it is not there (its parent is). `next`: 1 with borrowed bytes, 0 at the end, -1 with an error.
 * *ret_skipped: what was left out; each is said on standard error unless `quiet`. */
int cli_unpack(const char *dir, int (*next)(void *context, const char **ret_data, size_t *ret_size, struct error *err),
               void *context, bool quiet, unsigned *ret_skipped, struct error *err);

#endif
