/* poisson.h: the arithmetic of samples taken by bytes, without libm.
 *
 * The distance to the next sample is exponentially distributed around a mean, so a request of s bytes is sampled with
 * the probability 1 - exp(-s / mean), whatever came before. core/tests/unit/poisson_test.c compares with libm. */
#ifndef SNUG_POISSON_H
#define SNUG_POISSON_H

#include <string.h>

#include "base.h"

/* The natural logarithm of a positive, normal number; relative error below 1e-14 away from 1, absolute near it. */
static inline double poisson_log(double x) {
  static const double ln_2 = 0.693147180559945309417, root_2 = 1.41421356237309504880;
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  double exponent = (double)((int64_t)(bits >> 52) - 1023);
  bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52;
  memcpy(&x, &bits, sizeof x);
  if (x > root_2) {
    x /= 2;
    exponent += 1;
  }
  /* ln x = 2 artanh((x - 1) / (x + 1)); the argument is at most 0.172, so 10 terms do. */
  double t = (x - 1) / (x + 1), square = t * t, sum = 0;
  for (int n = 19; n > 0; n -= 2) sum = sum * square + 2.0 / n;
  return exponent * ln_2 + t * sum;
}

/* Bytes from one sample to the next. random: 64 bits, all alike. */
static inline uint64_t poisson_distance(uint64_t mean_bytes, uint64_t random) {
  double uniform = (double)((random >> 11) + 1) * 0x1p-53; /* above 0, up to 1 */
  return (uint64_t)(-poisson_log(uniform) * (double)mean_bytes);
}

/* The probability that a request of size_bytes is sampled: 1 - exp(-size / mean). */
static inline double poisson_share(uint64_t size_bytes, uint64_t mean_bytes) {
  double x = (double)size_bytes / (double)mean_bytes;
  if (x > 40) return 1;
  int halvings = 0;
  for (; x > 0x1p-4; x /= 2) halvings++;
  double share = x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6 * (1 - x / 7))))));
  while (halvings-- > 0) share *= 2 - share; /* of 2x */
  return share;
}

/* splitmix64 (Steele, Lea and Flood, 2014): the number that belongs to a counter, which rises by the gamma. */
#define POISSON_GAMMA UINT64_C(0x9e3779b97f4a7c15)
static inline uint64_t poisson_mix(uint64_t counter) {
  counter = (counter ^ (counter >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  counter = (counter ^ (counter >> 27)) * UINT64_C(0x94d049bb133111eb);
  return counter ^ (counter >> 31);
}

#endif
