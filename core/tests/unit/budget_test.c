/* budget_test.c: how fast the bucket of tokens fills, and the price of a page. */
#include "purging.h"

TEST(tokens_are_a_share_of_the_time_that_passes) {
  start_again(2);
  now_ns += 100 * MILLISECOND;
  budget_earn(0);
  CHECK_THAT(budget.tokens_ns == 2 * MILLISECOND, "%lld", (long long)budget.tokens_ns);
  budget_earn(0); /* no time, no tokens */
  CHECK(budget.tokens_ns == 2 * MILLISECOND);
  now_ns += 50 * MILLISECOND;
  budget_earn(0);
  CHECK(budget.tokens_ns == 3 * MILLISECOND);
  now_ns += 3600000ull * MILLISECOND; /* an hour of rest buys no hour of purging */
  budget_earn(0);
  CHECK(budget.tokens_ns == (int64_t)TOKENS_MAX_MS * MILLISECOND);
  now_ns -= 1000 * MILLISECOND; /* coarse clocks may lag behind on another CPU */
  budget_earn(0);
  CHECK(budget.tokens_ns == (int64_t)TOKENS_MAX_MS * MILLISECOND);
  now_ns += 1000 * MILLISECOND;
  options.purge_cpu_percent = 0;
  budget.tokens_ns = 0;
  now_ns += 1000 * MILLISECOND;
  budget_earn(0);
  CHECK(budget.tokens_ns == 0);
}

/* Lets the time pass in which the process uses so many thousandths of a CPU, and says how many tokens that made. */
static int64_t earned_in_a_second(uint64_t thousandths, size_t waiting_pages) {
  int64_t earned = 0;
  for (int i = 0; i < 100; i++) {
    budget.tokens_ns = 0;
    now_ns += 10 * MILLISECOND;
    used_ns += 10 * MILLISECOND / 1000 * thousandths;
    budget_earn(waiting_pages);
    earned += budget.tokens_ns;
  }
  return earned;
}

static void let_it_use(uint64_t thousandths) {
  for (int i = 0; i < 20; i++) earned_in_a_second(thousandths, 0);
}

TEST(a_server_that_does_little_spends_little) {
  start_again(1);
  used_ns = 1000 * MILLISECOND;
  let_it_use(10); /* a hundredth of a CPU: 3 % of 10 ms a second */
  int64_t earned = earned_in_a_second(10, 0);
  CHECK_THAT(earned > 290000 && earned <= 300000, "%lld ns in a second", (long long)earned);
  let_it_use(500); /* half of one: the share of the time is less */
  earned = earned_in_a_second(500, 0);
  CHECK_THAT(earned == 10 * MILLISECOND, "%lld ns in a second", (long long)earned);
  options.purge_cpu_percent = 2;
  let_it_use(10);
  earned = earned_in_a_second(10, 0);
  CHECK_THAT(earned > 580000 && earned <= 600000, "%lld ns in a second, of twice the share", (long long)earned);
}

TEST(memory_that_waits_is_worth_what_it_costs) {
  start_again(1);
  used_ns = 1000 * MILLISECOND;
  let_it_use(1000);
  size_t pages = 160000000 / PAGE_BYTES; /* a fiftieth of 8 GB */
  int64_t earned = earned_in_a_second(1000, pages);
  CHECK_THAT(earned > 19900000 && earned <= 20 * MILLISECOND, "%lld ns in a second", (long long)earned);
  CHECK(earned_in_a_second(1000, pages / 4) == 10 * MILLISECOND);
  earned = earned_in_a_second(1000, pages * 100); /* and no more than what the process can bear */
  CHECK_THAT(earned == 30 * MILLISECOND, "%lld ns in a second", (long long)earned);
}

TEST(where_the_cpu_time_is_unknown_the_share_of_time_stands) {
  start_again(1);
  uint32_t rights = 0;
  fork_lock_all();
  rights = rights_end();
  fork_unlock_all();
  used_ns = 1000 * MILLISECOND;
  let_it_use(0);
  CHECK(earned_in_a_second(0, 0) == 10 * MILLISECOND);
  fork_lock_all();
  rights_resume(rights);
  fork_unlock_all();
}

/* A child's clock begins at zero. */
TEST(a_forked_child_counts_anew) {
  start_again(1);
  used_ns = 100000ull * MILLISECOND;
  let_it_use(1000);
  used_ns = MILLISECOND;
  let_it_use(10);
  int64_t earned = earned_in_a_second(10, 0);
  CHECK_THAT(earned > 290000 && earned <= 300000, "%lld ns in a second", (long long)earned);
}

TEST(the_price_of_a_page_is_measured_once) {
  start_again(1);
  size_t pages = PROBE_PAGES * zone.page_bytes / PAGE_BYTES;
  budget.measured = false;
  probe_step_ns = 4000 * pages;
  budget_measure_price();
  CHECK_THAT(budget.price_ns == 4000, "%zu ns", (size_t)budget.price_ns);
  probe_step_ns = 1000 * pages;
  budget_measure_price();
  CHECK(budget.price_ns == 4000);
  budget.tokens_ns = 40001;
  CHECK(budget_pages() == 10);
  budget_spend(11);
  CHECK(budget.tokens_ns == -3999 && budget_pages() == 0);
  CHECK(budget_is_paid_by(1000000, 2) && !budget_is_paid_by(1000000, 3)); /* 1 % of a millisecond */
  struct {
    uint64_t step_ns, price_ns;
  } odd[] = {{1, MIN_PRICE_NS}, {1000000000, MAX_PRICE_NS}, {0, FALLBACK_PRICE_NS}};
  for (size_t i = 0; i < COUNT_OF(odd); i++) {
    budget.measured = false;
    budget.price_ns = FALLBACK_PRICE_NS;
    probe_step_ns = odd[i].step_ns;
    budget_measure_price();
    CHECK_THAT(budget.price_ns == odd[i].price_ns, "%zu ns", (size_t)budget.price_ns);
  }
  probe_step_ns = 0;
}

/* Locked memory cannot be given back: nothing is known of a price. */
TEST(a_price_that_cannot_be_measured_stays) {
  start_again(1);
  budget.measured = false;
  purge_refused = true;
  probe_step_ns = 4000 * PROBE_PAGES;
  budget_measure_price();
  purge_refused = false;
  probe_step_ns = 0;
  CHECK(budget.price_ns == FALLBACK_PRICE_NS);
}
