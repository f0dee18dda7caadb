#include "workspace_private.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

int dir_reader_next(struct dir_reader *reader, struct dir_name *ret)
{
    for (;;) {
        const struct dirent64 *entry;

        if (reader->at >= reader->end) {
            ssize_t got = getdents64(reader->fd, reader->buffer, reader->size);

            if (got < 0 && errno == ENOENT)
                return 0; /* the directory itself was removed meanwhile */
            if (got <= 0)
                return (int)got;
            reader->at = 0;
            reader->end = (size_t)got;
        }
        entry = (const struct dirent64 *)(const void *)(reader->buffer + reader->at);
        reader->at += entry->d_reclen;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        ret->name = entry->d_name;
        ret->type = entry->d_type;
        return 1;
    }
}
