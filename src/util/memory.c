#include "memory.h"

#include "cleanup.h"

#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

void memory_trim(void)
{
    auto_file FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];

    (void)malloc_trim(0);
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin;
        unsigned long end;
        unsigned long offset;
        unsigned long inode;
        char rights[5];

        /* Of a file and never written to, so that nothing is lost: code, and what stands before it in the file (symbols,
         * relocations). Read-only data behind the code is left alone: relocating made a part of it private. */
        if (sscanf(line, "%lx-%lx %4s %lx %*s %lu", &begin, &end, rights, &offset, &inode) == 5 && inode != 0 &&
            rights[0] == 'r' && rights[1] == '-' && (rights[2] == 'x' || offset == 0))
            (void)madvise((void *)(uintptr_t)begin, end - begin, MADV_DONTNEED);
    }
}
