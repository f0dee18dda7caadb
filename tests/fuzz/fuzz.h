/* tests/fuzz/fuzz.h: a fuzzer is one function over bytes. With clang, link it with -fsanitize=fuzzer; in `make check` it is
 * linked with fuzz_replay.c, which feeds it random and mutated input for a second or two (BERTH_FUZZ_MS, BERTH_FUZZ_SEED),
 * or the files named on its command line. */
#ifndef BERTH_FUZZ_H
#define BERTH_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
