#include "budget.h"

#include "counters.h"
#include "map.h"
#include "options.h"
#include "rights.h"
#include "sys.h"

#define MILLISECOND_NS UINT64_C(1000000)
#define SECOND_NS UINT64_C(1000000000)

enum {
  TOKENS_MAX_MS = 4,
  DEBT_MAX_MS = 20, /* what one large purge may cost later ones */
  OWN_PERCENT = 3,
  UNKNOWN_RATE = 1 << 30,
  PROBE_PAGES = 16,
  PROBE_ROUNDS = 3,
};

/* To purge a page and fault it in again, until it is measured: 1.3-2.3 us in virtual machines. */
#define FALLBACK_PRICE_NS UINT64_C(1500)
#define MIN_PRICE_NS UINT64_C(300)
#define MAX_PRICE_NS UINT64_C(20000)

#define BYTES_PER_CPU UINT64_C(8000000000) /* the memory that costs as much as a CPU: usual prices of clouds */

static struct {
  int64_t tokens_ns;
  uint64_t at_ns; /* when the bucket was filled last */
  uint64_t price_ns;
  bool measured;
  uint64_t looked_at_ns;  /* at the process's CPU time, */
  uint64_t process_ns;    /* which was this, */
  uint64_t used_millions; /* and lately so many millionths of the time that passed: 1000000 is a whole CPU */
} budget = {.price_ns = FALLBACK_PRICE_NS, .used_millions = UNKNOWN_RATE};

/* Once a second: with thousands of threads the system adds up as many clocks. */
static void look_at_process(uint64_t now) {
  if (now < budget.looked_at_ns + SECOND_NS || !rights_have(RIGHT_OTHERS)) return;
  uint64_t process_ns = sys_process_cpu_ns(), passed_us = (now - budget.looked_at_ns) / 1000;
  if (process_ns == 0) return;
  uint64_t used_ns = process_ns > budget.process_ns ? process_ns - budget.process_ns : process_ns; /* fork: a new one */
  if (budget.looked_at_ns != 0) {
    uint64_t used_millions = used_ns * 1000 / passed_us;
    bool known = budget.used_millions != UNKNOWN_RATE;
    budget.used_millions = known ? (budget.used_millions + used_millions) / 2 : used_millions;
  }
  budget.looked_at_ns = now;
  budget.process_ns = process_ns;
}

/* Millionths of the time that passes. */
static uint64_t rate_millions(size_t dirty_pages) {
  uint64_t share = 1000000 / 100, held = (uint64_t)dirty_pages * PAGE_BYTES * 1000 / (BYTES_PER_CPU / 1000);
  uint64_t own = budget.used_millions * OWN_PERCENT / 100, rate = held > share ? held : share;
  return (rate < own ? rate : own) * options.purge_cpu_percent;
}

void budget_earn(size_t dirty_pages) {
  const int64_t most = TOKENS_MAX_MS * (int64_t)MILLISECOND_NS, least = -DEBT_MAX_MS * (int64_t)MILLISECOND_NS;
  uint64_t now = sys_coarse_time_ns();
  look_at_process(now);
  if (budget.at_ns != 0 && now > budget.at_ns) {
    uint64_t passed_us = (now - budget.at_ns) / 1000;
    budget.tokens_ns += (int64_t)(passed_us * rate_millions(dirty_pages) / 1000);
    if (budget.tokens_ns > most) budget.tokens_ns = most;
    if (budget.tokens_ns < least) budget.tokens_ns = least;
  }
  budget.at_ns = now;
}

size_t budget_pages(void) { return budget.tokens_ns > 0 ? (size_t)budget.tokens_ns / budget.price_ns : 0; }

void budget_spend(size_t pages) { budget.tokens_ns -= (int64_t)(pages * budget.price_ns); }

bool budget_is_paid_by(uint64_t time_ns, size_t pages) {
  return pages * budget.price_ns <= time_ns * options.purge_cpu_percent / 100;
}

/* Faults some pages in and gives them back. Returns the time, 0 if that is not known. */
static uint64_t probe_ns(char *start, size_t length_bytes) {
  uint64_t begun_ns = sys_time_ns();
  for (size_t i = 0; i < length_bytes; i += zone.page_bytes) *(volatile char *)(start + i) = 1;
  return sys_purge(start, length_bytes) ? sys_time_ns() - begun_ns : 0;
}

/* The shortest of some rounds: what else the machine does is no part of the price. */
void budget_measure_price(void) {
  if (budget.measured) return;
  budget.measured = true;
  size_t length_bytes = PROBE_PAGES * zone.page_bytes;
  char *start = sys_map(length_bytes);
  if (start == NULL) return;
  if (!options.thp) sys_no_huge_pages(start, length_bytes); /* as on the heap */
  uint64_t shortest_ns = UINT64_MAX;
  for (int i = 0; i < PROBE_ROUNDS; i++) {
    uint64_t round_ns = probe_ns(start, length_bytes);
    if (round_ns < shortest_ns) shortest_ns = round_ns;
  }
  sys_unmap(start, length_bytes);
  uint64_t price_ns = shortest_ns / (length_bytes / PAGE_BYTES);
  if (shortest_ns == 0) return; /* the clock stands still, or memory is locked */
  budget.price_ns = price_ns < MIN_PRICE_NS ? MIN_PRICE_NS : price_ns > MAX_PRICE_NS ? MAX_PRICE_NS : price_ns;
}
