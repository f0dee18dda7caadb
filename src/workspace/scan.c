#include "scan.h"

#include <assert.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* How common a byte is in text, roughly: the rarer the better to look for. */
static int commonness(unsigned char byte)
{
    static const char common[] = " etaoinsrhldcumfpgwybvk,.\n0_1-=()x2;\"/";
    const char *at = byte ? strchr(common, byte) : NULL;

    return at ? (int)(sizeof common - (size_t)(at - common)) : 0;
}

void scan_init(struct scan *scan, const char *const *literals, const size_t *sizes, size_t count)
{
    assert(count > 0 && count <= SCAN_LITERALS_MAX);
    *scan = (struct scan){.count = count, .second_at = 1, .shortest = sizes[0]};
    for (size_t i = 0; i < count; i++) {
        scan->literals[i] = literals[i];
        scan->sizes[i] = sizes[i];
        if (sizes[i] < scan->shortest)
            scan->shortest = sizes[i];
    }
    assert(scan->shortest > 0 && (count == 1 || scan->shortest > 1));
    if (scan->shortest == 1)
        scan->second_at = 0;
    if (count > 1 || scan->shortest == 1)
        return;
    for (size_t i = 1; i < sizes[0] && i < 64; i++) /* the two rarest */
        if (commonness((unsigned char)literals[0][i]) < commonness((unsigned char)literals[0][scan->first_at]))
            scan->first_at = i;
    scan->second_at = scan->first_at == 0;
    for (size_t i = 0; i < sizes[0] && i < 64; i++)
        if (i != scan->first_at &&
            commonness((unsigned char)literals[0][i]) < commonness((unsigned char)literals[0][scan->second_at]))
            scan->second_at = i;
}

static bool begins(const struct scan *scan, const char *at, const char *end)
{
    for (size_t i = 0; i < scan->count; i++)
        if ((size_t)(end - at) >= scan->sizes[i] && memcmp(at, scan->literals[i], scan->sizes[i]) == 0)
            return true;
    return false;
}

#ifdef __SSE2__
/* Goes on from *at as far as whole vectors reach. */
static const char *find_vectors(const struct scan *scan, const char **at, const char *end)
{
    size_t reach = (scan->first_at > scan->second_at ? scan->first_at : scan->second_at) + 16;
    __m128i first[SCAN_LITERALS_MAX];
    __m128i second[SCAN_LITERALS_MAX];

    for (size_t i = 0; i < scan->count; i++) {
        first[i] = _mm_set1_epi8(scan->literals[i][scan->first_at]);
        second[i] = _mm_set1_epi8(scan->literals[i][scan->second_at]);
    }
    for (; (size_t)(end - *at) >= reach; *at += 16) {
        __m128i one = _mm_loadu_si128((const __m128i *)(const void *)(*at + scan->first_at));
        __m128i two = _mm_loadu_si128((const __m128i *)(const void *)(*at + scan->second_at));
        __m128i found = _mm_and_si128(_mm_cmpeq_epi8(one, first[0]), _mm_cmpeq_epi8(two, second[0]));
        unsigned places;

        for (size_t i = 1; i < scan->count; i++)
            found = _mm_or_si128(found, _mm_and_si128(_mm_cmpeq_epi8(one, first[i]), _mm_cmpeq_epi8(two, second[i])));
        for (places = (unsigned)_mm_movemask_epi8(found); places; places &= places - 1) {
            const char *place = *at + __builtin_ctz(places);

            if (begins(scan, place, end))
                return place;
        }
    }
    return NULL;
}
#endif

/* Each place where two bytes are right may be compared to nearly the whole literal: of a long one that is too much, on bytes that are meant
 * to make it so. */
enum { LONG_BYTES = 256 };

const char *scan_find(const struct scan *scan, const char *at, const char *end)
{
    if (scan->count == 1 && scan->shortest > LONG_BYTES)
        return memmem(at, (size_t)(end - at), scan->literals[0], scan->shortest);
#ifdef __SSE2__
    const char *found = find_vectors(scan, &at, end);

    if (found)
        return found;
#endif
    for (; (size_t)(end - at) >= scan->shortest; at++)
        if (begins(scan, at, end))
            return at;
    return NULL;
}

size_t scan_count_newlines(const char *at, const char *end)
{
    size_t count = 0;

#ifdef __SSE2__
    const __m128i newline = _mm_set1_epi8('\n');

    while (end - at >= 16) {
        size_t rounds = (size_t)(end - at) / 16 < 255 ? (size_t)(end - at) / 16 : 255;
        __m128i sums = _mm_setzero_si128();

        for (size_t i = 0; i < rounds; i++, at += 16)
            sums = _mm_sub_epi8(sums, _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(const void *)at), newline));
        sums = _mm_sad_epu8(sums, _mm_setzero_si128());
        count += (size_t)_mm_cvtsi128_si32(sums) + (size_t)_mm_cvtsi128_si32(_mm_srli_si128(sums, 8));
    }
#endif
    for (; at < end; at++)
        count += *at == '\n';
    return count;
}
