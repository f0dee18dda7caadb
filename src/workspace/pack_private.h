/* workspace/pack_private.h: what pack.c and unpack.c share. */
#ifndef BERTH_PACK_PRIVATE_H
#define BERTH_PACK_PRIVATE_H

#include "cleanup.h"
#include "pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>

/* libarchive converts names by the thread's locale: in this one bytes stay what they are. */
locale_t pack_locale_enter(void);
static inline void pack_locale_leave(locale_t *before)
{
    (void)uselocale(*before);
}
#define auto_pack_locale auto_cleanup(pack_locale_leave)

static inline void cleanup_archive_entry(struct archive_entry **entry)
{
    archive_entry_free(*entry);
}

#endif
