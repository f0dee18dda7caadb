#include "alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *memory)
{
    if (!memory) {
        (void)fputs("out of memory\n", stderr);
        abort();
    }
    return memory;
}

void *alloc_zero(size_t size)
{
    return checked(calloc(1, size ? size : 1));
}

void *alloc_array(size_t count, size_t size)
{
    return checked(calloc(count ? count : 1, size));
}

void *alloc_grow(void *memory, size_t count, size_t size)
{
    return checked(reallocarray(memory, count ? count : 1, size));
}

char *alloc_str(const char *text)
{
    return text ? checked(strdup(text)) : NULL;
}

char *alloc_str_n(const char *text, size_t size)
{
    char *copy = alloc_zero(size + 1);

    if (size)
        memcpy(copy, text, size);
    return copy;
}

char *alloc_format(const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    return checked(text);
}
