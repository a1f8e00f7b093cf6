/* Eight floats at a time, in the vector types of GCC and Clang: one source for AVX2, AVX-512VL, NEON (two
 * halves) or none. Everything is written with explicit accumulators, so sums have one order whatever the
 * compiler does, and NaN and infinity survive (no -ffast-math).
 *
 * Tails: ..._part functions touch only the first n (0..8) elements. */
#ifndef DDP_CORE_DEVICE_CPU_SIMD_H
#define DDP_CORE_DEVICE_CPU_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 8 };

typedef float vec __attribute__((vector_size(32)));
typedef float vec_at __attribute__((vector_size(32), aligned(4), may_alias)); /* in memory, anywhere */
typedef int32_t ivec __attribute__((vector_size(32)));
typedef uint32_t uvec __attribute__((vector_size(32)));
typedef double dvec __attribute__((vector_size(32)));
typedef float half_vec __attribute__((vector_size(16)));

#define SIMD static inline __attribute__((always_inline))

SIMD vec vec_load(const float *p)
{
    return *(const vec_at *)p;
}

SIMD void vec_store(float *p, vec v)
{
    *(vec_at *)p = v;
}

SIMD vec vec_all(float x)
{
    return (vec){x, x, x, x, x, x, x, x};
}

SIMD vec vec_load_part(const float *p, int64_t n, float rest)
{
    float a[LANES] = {rest, rest, rest, rest, rest, rest, rest, rest};
    memcpy(a, p, (size_t)n * sizeof *a);
    return vec_load(a);
}

SIMD void vec_store_part(float *p, vec v, int64_t n)
{
    float a[LANES];
    vec_store(a, v);
    memcpy(p, a, (size_t)n * sizeof *a);
}

/* Lane by lane: mask (all ones or all zeros) chooses yes. */
SIMD vec vec_choose(ivec mask, vec yes, vec no)
{
    return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

/* a > b ? a : b and a < b ? a : b: with a NaN on either side both give b. */
SIMD vec vec_max(vec a, vec b)
{
#ifdef __AVX__
    return __builtin_ia32_maxps256(a, b);
#else
    return vec_choose(a > b, a, b);
#endif
}

SIMD vec vec_min(vec a, vec b)
{
#ifdef __AVX__
    return __builtin_ia32_minps256(a, b);
#else
    return vec_choose(a < b, a, b);
#endif
}

SIMD float vec_sum(vec v)
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

SIMD float vec_largest(vec v)
{
    float m[4];
    for (int i = 0; i < 4; i++)
        m[i] = v[i] > v[i + 4] ? v[i] : v[i + 4];
    m[0] = m[0] > m[2] ? m[0] : m[2];
    m[1] = m[1] > m[3] ? m[1] : m[3];
    return m[0] > m[1] ? m[0] : m[1];
}

/* e^x, relative error below 2e-7; 0 below -87.3, infinity above 88.37; NaN stays NaN. The usual way: x = n ln
 * 2 + r with |r| <= ln 2 / 2, Taylor-like minimax polynomial of degree 6 for e^r, 2^n put together from bits.
 * Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits. */
SIMD vec vec_exp(vec x)
{
    const vec magic = vec_all(12582912.0f);
    vec limited = vec_min(vec_all(88.38f), x); /* gives n = 128, the exponent of infinity */
    vec t = limited * 1.44269504088896341f + magic;
    vec n = t - magic;
    vec r = limited - n * 0.693359375f; /* exact: ten bits times at most eight */
    r = r + n * 2.12194440e-4f;
    vec p = vec_all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    vec power = (vec)(((uvec)t << 23) + 0x3f800000u);
    return (vec)(~(ivec)(x < vec_all(-87.3f)) & (ivec)(p * power)); /* whatever overflowed below is cut off */
}

#endif
