/* util/memory.h: giving back memory that only the start needed. */
#ifndef BERTH_MEMORY_H
#define BERTH_MEMORY_H

/* Unmap the pages of program and library code that were touched so far, and trim the heap. The start runs through much of what
 * the libraries drag in (libcurl alone initialises three cryptographic libraries that a Unix socket never uses); what is needed
 * again is mapped again from the page cache. Never fails: what cannot be given back stays. Threads: any, also while others run. */
void memory_trim(void);

#endif
