/* util/cleanup.h: variables that free themselves, and the only way to hand them over.
 *
 * An auto_ variable is initialised where it is declared. take_ptr()/take_fd() empty it and return what it held.
 */
#ifndef BERTH_CLEANUP_H
#define BERTH_CLEANUP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define auto_cleanup(function) __attribute__((cleanup(function)))

/* Defines cleanup_<name>() for `T *` variables that `free_function` releases; NULL is left alone. */
#define DEFINE_CLEANUP(name, type, free_function)     \
    static inline void cleanup_##name(type *variable) \
    {                                                 \
        if (*variable)                                \
            free_function(*variable);                 \
    }

static inline void cleanup_free(void *variable)
{
    free(*(void **)variable);
}

static inline void cleanup_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

static inline void cleanup_dir(DIR **dir)
{
    if (*dir)
        (void)closedir(*dir);
}

static inline void cleanup_file(FILE **file)
{
    if (*file)
        (void)fclose(*file);
}

#define auto_free auto_cleanup(cleanup_free)
#define auto_close auto_cleanup(cleanup_fd)
#define auto_dir auto_cleanup(cleanup_dir)
#define auto_file auto_cleanup(cleanup_file)

#define take_ptr(variable)                        \
    __extension__({                               \
        __typeof__(variable) taken_ = (variable); \
        (variable) = NULL;                        \
        taken_;                                   \
    })

static inline int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

#endif
