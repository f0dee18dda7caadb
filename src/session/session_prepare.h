/* session/session_prepare.h: images of runtimes, had ready ahead of their use, and how far that is.
 *
 * One preparation an image at a time, by a thread of its own: who asks for one that is under way joins it, and it goes on when all
 * of them left. Threads: any.
 */
#ifndef BERTH_SESSION_PREPARE_H
#define BERTH_SESSION_PREPARE_H

#include "cancel.h"
#include "error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sessions;
struct preparation;

enum { PREPARE_TEXT_BYTES = 160, PREPARE_ID_BYTES = 80, PREPARE_IMAGE_BYTES = 256 };

struct preparation_view {
    char text[PREPARE_TEXT_BYTES]; /* the engine's words, one line; "" none yet */
    bool is_done;
    bool was_here;
    char image[PREPARE_IMAGE_BYTES];
    char image_id[PREPARE_ID_BYTES];
    struct error why; /* of one that failed; NONE: it did not */
};

/* Begins, or joins. Never blocks. NOT_FOUND: no such runtime; LIMIT: too many at once. ret: preparation_leave(). */
int sessions_prepare(struct sessions *sessions, const char *alias, struct preparation **ret, struct error *err);
/* The next thing that is to be said of it, after `*seen` (0 at first), which moves on. Blocks. TIMEOUT: nothing was, within the cancel's deadline. */
int preparation_next(struct preparation *preparation, uint64_t *seen, const struct cancel *cancel,
                     struct preparation_view *ret, struct error *err);
void preparation_leave(struct preparation *preparation); /* NULL is fine */

/* Before the provider goes: waits for all of them, which end with the broker's stop. */
void prepare_stop(struct sessions *sessions);

struct runtime_view {
    char *alias;
    char *image;
    char *description;
    char image_id[PREPARE_ID_BYTES]; /* "": not here */
    struct error why;                /* the engine could not be asked; NONE: it was */
};
/* The policy's runtimes, and whether their images are here. Blocks on the engine; one that is away is no error here. */
void sessions_runtimes(struct sessions *sessions, const struct cancel *cancel, struct runtime_view **ret_list,
                       size_t *ret_count);
void runtime_views_free(struct runtime_view *list, size_t count);

#endif
