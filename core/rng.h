/* Counter-based random numbers (Philox 4x32-10, Salmon et al., SC 2011): the n-th number of a stream is a
 * function of (seed, stream, n) and needs no state, so any rank can make any part of any sequence. */
#ifndef DDP_CORE_RNG_H
#define DDP_CORE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Four words of block `block`. */
void ddp_rng_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t words[4]);

uint64_t ddp_rng_u64(uint64_t seed, uint64_t stream, uint64_t n);

/* count values from position `first` of the stream on. */
void ddp_rng_fill_uniform(uint64_t seed, uint64_t stream, uint64_t first, float *to, size_t count, float low,
                          float high);
void ddp_rng_fill_normal(uint64_t seed, uint64_t stream, uint64_t first, float *to, size_t count,
                         float deviation);

/* A 64-bit mix of any bytes (after FNV-1a, eight bytes at a time, with a final avalanche): names to streams,
 * digests. Chain by passing the last result as `start` (0 to begin). */
uint64_t ddp_rng_hash(uint64_t start, const void *bytes, size_t count);

#endif
