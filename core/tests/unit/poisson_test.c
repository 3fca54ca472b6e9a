/* poisson_test.c: the arithmetic of samples against series in long double, and the estimates that come of it. */
#include "../../src/poisson.h"
#include "unit.h"

static long double difference(long double a, long double b) { return a > b ? a - b : b - a; }

/* e^y by its series after halvings. */
static long double exponential(long double y) {
  int halvings = 0;
  for (; y > 0.5L || y < -0.5L; y /= 2) halvings++;
  long double sum = 1, term = 1;
  for (int n = 1; n < 30; n++) sum += term *= y / n;
  while (halvings-- > 0) sum *= sum;
  return sum;
}

static uint64_t next_random(uint64_t *counter) { return poisson_mix(*counter += POISSON_GAMMA); }

TEST(the_logarithm_is_right) {
  uint64_t counter = 1;
  CHECK(poisson_log(1) == 0);
  for (int i = 0; i < 200000; i++) {
    double x = (double)((next_random(&counter) >> 11) + 1) * 0x1p-53;
    if (i % 4 == 1) x = 0x1p-53 * (i + 1);
    if (i % 4 == 2) x = 1 - 0x1p-53 * (i + 1);
    if (i % 4 == 3) x *= 0x1p40;
    long double error = difference(exponential(poisson_log(x)) / (long double)x, 1);
    CHECK_THAT(error < 1e-14L, "log of %a: relative error of its inverse %Lg", x, error);
  }
}

TEST(distances_and_shares_are_exponential) {
  enum { DRAWS = 400000, MEAN = 4096 };
  uint64_t counter = 2;
  double sum = 0, squares = 0;
  for (int i = 0; i < DRAWS; i++) {
    double distance = (double)poisson_distance(MEAN, next_random(&counter)) + 0.5; /* it was rounded down */
    sum += distance / MEAN;
    squares += distance * distance / MEAN / MEAN;
  }
  CHECK_THAT(difference(sum / DRAWS, 1) < 0.01L, "mean %g", sum / DRAWS);
  CHECK_THAT(difference(squares / DRAWS, 2) < 0.03L, "mean of squares %g", squares / DRAWS);
  CHECK(poisson_distance(MEAN, ~UINT64_C(0)) == 0);
  CHECK(poisson_distance(MEAN, 0) < 37 * MEAN); /* 53 ln 2 */
  for (uint64_t size = 1; size < UINT64_C(1) << 40; size += size / 7 + 1) {
    long double expected = 1 - exponential(-(long double)size / MEAN);
    if (size > 50 * MEAN) expected = 1;
    long double error = difference(poisson_share(size, MEAN) / expected, 1);
    CHECK_THAT(error < 1e-12L, "share of %llu: relative error %Lg", (unsigned long long)size, error);
  }
}

/* One stream of requests: what was asked for, what samples estimate, and the variance of that by the samples alone. */
struct run {
  double bytes, estimate, variance;
};

static struct run sample_stream(uint64_t *counter, uint64_t mean_bytes, bool mean_changes) {
  struct run run = {0, 0, 0};
  int64_t until = (int64_t)poisson_distance(mean_bytes, next_random(counter));
  while (run.bytes < 2e6) {
    uint64_t size = next_random(counter) % (UINT64_C(1) << (4 + next_random(counter) % 12)) + 1;
    run.bytes += (double)size;
    if ((until -= (int64_t)size) >= 0) continue;
    double weight = (double)size / poisson_share(size, mean_bytes);
    run.estimate += weight;
    run.variance += weight * (weight - (double)size);
    if (mean_changes) mean_bytes = mean_bytes < 30000 ? mean_bytes + 1000 : 5000;
    until = (int64_t)poisson_distance(mean_bytes, next_random(counter));
  }
  return run;
}

/* The seed is fixed, so this passes always or never. */
static void check_estimates(bool mean_changes) {
  enum { RUNS = 2000 };
  uint64_t counter = 3;
  double bytes = 0, estimate = 0;
  int inside = 0;
  for (int i = 0; i < RUNS; i++) {
    struct run run = sample_stream(&counter, 20000, mean_changes);
    double error = run.estimate - run.bytes;
    bytes += run.bytes;
    estimate += run.estimate;
    inside += error * error <= 1.96 * 1.96 * run.variance;
  }
  CHECK_THAT(difference(estimate / bytes, 1) < 0.01L, "estimate over truth: %g", estimate / bytes);
  CHECK_THAT(inside > RUNS * 0.93 && inside < RUNS * 0.97, "%d of %d intervals hold the truth", inside, RUNS);
}

TEST(estimates_are_unbiased) { check_estimates(false); }
TEST(estimates_are_unbiased_while_the_mean_changes) { check_estimates(true); }
