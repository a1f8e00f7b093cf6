/* Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#include "core/rng.h"

#include <math.h>
#include <string.h>

void ddp_rng_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t words[4])
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)stream,
             c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* The n-th 64-bit number: two to a block. */
uint64_t ddp_rng_u64(uint64_t seed, uint64_t stream, uint64_t n)
{
    uint32_t words[4];
    ddp_rng_block(seed, stream, n / 2, words);
    int half = (int)(n % 2) * 2;
    return words[half] | (uint64_t)words[half + 1] << 32;
}

/* Value n is the top 24 bits of word n, so that it is exact. */
void ddp_rng_fill_uniform(uint64_t seed, uint64_t stream, uint64_t first, float *to, size_t count, float low,
                          float high)
{
    uint32_t words[4];
    for (size_t i = 0; i < count; i++) {
        uint64_t n = first + i;
        if (i == 0 || n % 4 == 0)
            ddp_rng_block(seed, stream, n / 4, words);
        to[i] = low + (high - low) * ((float)(words[n % 4] >> 8) * 0x1p-24f);
    }
}

/* Box-Muller: values 2k and 2k + 1 are the two coordinates of one random point of the plane, made from words
 * 2k and 2k + 1: radius from the first, shifted into (0, 1], angle from the second. */
static void normal_pair(const uint32_t words[2], float deviation, float pair[2])
{
    float radius = deviation * sqrtf(-2.0f * logf(((float)(words[0] >> 8) + 1.0f) * 0x1p-24f));
    float angle = (float)(words[1] >> 8) * (6.283185307f * 0x1p-24f);
    sincosf(angle, &pair[1], &pair[0]);
    pair[0] *= radius;
    pair[1] *= radius;
}

void ddp_rng_fill_normal(uint64_t seed, uint64_t stream, uint64_t first, float *to, size_t count,
                         float deviation)
{
    for (uint64_t block = first / 4; block * 4 < first + count; block++) {
        uint32_t words[4];
        float values[4];
        ddp_rng_block(seed, stream, block, words);
        normal_pair(words, deviation, values);
        normal_pair(words + 2, deviation, values + 2);
        for (uint64_t n = block * 4; n < block * 4 + 4; n++)
            if (n >= first && n < first + count)
                to[n - first] = values[n % 4];
    }
}

uint64_t ddp_rng_hash(uint64_t start, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t hash = start ^ 0xCBF29CE484222325u;
    size_t i = 0;
    for (; i + 8 <= count; i += 8) { /* FNV's step, a word at a time; the shift brings high bits down */
        uint64_t word;
        memcpy(&word, at + i, sizeof word);
        hash = (hash ^ word) * 0x100000001B3u;
        hash ^= hash >> 32;
    }
    for (; i < count; i++)
        hash = (hash ^ at[i]) * 0x100000001B3u;
    hash ^= hash >> 33; /* the finalizer of MurmurHash3 */
    hash *= 0xFF51AFD7ED558CCDu;
    hash ^= hash >> 33;
    hash *= 0xC4CEB9FE1A85EC53u;
    return hash ^ hash >> 33;
}
