#include "fuzz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INPUT_MAX_BYTES = 4096, RUN_MS = 1500, GENERATIONS = 8 };

static uint64_t state;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t setting(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoll(text, NULL, 0) : otherwise;
}

static int replay_file(const char *path)
{
    static uint8_t input[1 << 20];
    FILE *file = fopen(path, "rb");
    size_t size;

    if (!file) {
        perror(path);
        return -1;
    }
    size = fread(input, 1, sizeof input, file);
    (void)fclose(file);
    (void)LLVMFuzzerTestOneInput(input, size);
    return 0;
}

int main(int argc, char **argv)
{
    const int64_t until_ms = now_ms() + setting("BERTH_FUZZ_MS", RUN_MS);
    const uint64_t seed = (uint64_t)setting("BERTH_FUZZ_SEED", now_ms());
    uint64_t inputs = 0;

    for (int i = 1; i < argc; i++)
        if (replay_file(argv[i]) < 0)
            return 1;
    if (argc > 1)
        return 0;
    state = seed * 2 + 1;
    printf("seed %" PRIu64 "\n", seed); /* before anything goes wrong */
    (void)fflush(stdout);
    while (now_ms() < until_ms) {
        uint8_t input[INPUT_MAX_BYTES];
        size_t size = draw() % (draw() % 8 ? 256 : sizeof input);

        for (size_t i = 0; i < size; i++)
            input[i] = (uint8_t)(draw() >> 24);
        for (int generation = 0; generation < GENERATIONS; generation++, inputs++) {
            uint8_t *exact = malloc(size + !size); /* so that a sanitizer sees the end */

            if (!exact)
                return 1;
            memcpy(exact, input, size);
            (void)LLVMFuzzerTestOneInput(exact, size);
            free(exact);
            if (size)
                input[draw() % size] = (uint8_t)(draw() >> 24);
        }
    }
    printf("%" PRIu64 " inputs\n", inputs);
    return 0;
}
