/* provider/provider_recipe.h: an image that is to be built: what the operator asked for, as a Dockerfile and a build context.
 *
 * Everything here is the operator's word. The context is made the same at every start from the same files: names in order, no times, no
 * owners; its SHA-256 is the image's tag, so that an image of that name is the right one. Blocks on the disk only. Threads: any.
 */
#ifndef BERTH_PROVIDER_RECIPE_H
#define BERTH_PROVIDER_RECIPE_H

#include "buf.h"
#include "error.h"
#include "provider.h"

#include <stddef.h>

enum { RECIPE_TEXT_MAX = 256 * 1024, RECIPE_TAG_BYTES = 13, RECIPE_ENTRIES_MAX = 50000 };
#define RECIPE_CONTEXT_MAX_BYTES ((int64_t)512 * 1024 * 1024)

/* The Dockerfile of packages and commands. INVALID: a word that cannot stand in one. */
int recipe_dockerfile(const struct provider_recipe *recipe, struct buf *out, struct error *err);

/* The context as a tar: of the recipe's folder, or a Dockerfile alone. *ret_fd: an unlinked file in `spool_dir`, read from its start; the
 * caller closes it. ret_tag: 12 hex digits of its digest. INVALID: the folder has no Dockerfile, or something that is neither file,
 * folder nor link. TOO_LARGE. */
int recipe_context(const struct provider_recipe *recipe, const char *spool_dir, int *ret_fd, int64_t *ret_size_bytes,
                   char ret_tag[RECIPE_TAG_BYTES], struct error *err);

#endif
