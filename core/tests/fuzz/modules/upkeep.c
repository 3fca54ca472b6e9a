/* upkeep.c: when memory goes back: ticks, idle purges, the budget, the container's limit, and a fork that stops all of
 * it, while a program allocates. Nothing that is live goes; what was to go went, unless the kernel refused. */
#include "world.h"

#include "../../../src/block.h"
#include "../../../src/large.h"
#include "../../../src/maintain.h"
#include "../../../src/options.h"
#include "../../../src/pages.h"
#include "../../../src/purge.h"
#include "../../../src/tick.h"
#include "blocks.h"

enum { UPKEEP_SLOTS = 512 };

enum upkeep_operation {
  UPKEEP_MALLOC,
  UPKEEP_FREE,
  UPKEEP_FREE_SOME,
  UPKEEP_TIME,
  UPKEEP_LONG_TIME,
  UPKEEP_TICK,
  UPKEEP_TICK_IF_DUE,
  UPKEEP_EXCESS,
  UPKEEP_IDLE,
  UPKEEP_ALL,
  UPKEEP_TOO_MUCH,
  UPKEEP_BUDGET,
  UPKEEP_CONTAINER,
  UPKEEP_STOP,
  UPKEEP_LOOK,
};

static const char *const upkeep_operations[] = {
    "malloc", "free", "free_some", "time",   "long_time", "tick", "tick_if_due", "excess",
    "idle",   "all",  "too_much",  "budget", "container", "stop", "look",        NULL,
};

static struct upkeep_block {
  char *start; /* NULL: none */
  size_t bytes;
  uint64_t seed;
} blocks[UPKEEP_SLOTS];
static uint64_t seeds;
static char limit_text[32], use_text[32];

static void check_block(const struct upkeep_block *block) {
  size_t at = mark_mismatch(block->start, block->bytes, block->bytes, block->seed);
  if (at != SIZE_MAX) fuzz_fail("the block %p of %zu bytes has changed at %zu", (void *)block->start, block->bytes, at);
}

static void give(struct upkeep_block *block) {
  if (block->start == NULL) return;
  check_block(block);
  own_allocator.free(block->start);
  block->start = NULL;
}

static void take(struct upkeep_block *block, size_t bytes) {
  uint64_t refused = refused_calls;
  give(block);
  if (bytes > 16 * MIB) return;
  char *start = own_allocator.malloc(bytes);
  if (start == NULL) {
    if (refused == refused_calls) fuzz_fail("no memory for %zu bytes", bytes);
    fuzz_counts->failed++;
    return;
  }
  *block = (struct upkeep_block){start, bytes, ++seeds};
  mark(start, bytes, seeds);
}

static void purge_everything(void) {
  uint64_t refused = refused_calls;
  bool is_stopped = is_purging_stopped();
  maintain_give_all_back();
  if (is_stopped || refused_calls != refused) return;
  if (pages_purgeable() != 0 || large_retained_pages() != 0)
    fuzz_fail("%zu dirty pages and %zu of retained mappings are left", pages_dirty(), large_retained_pages());
}

static void put_into_container(unsigned a, unsigned b) {
  uint64_t limit = (uint64_t)(1 + a) << 22;
  snprintf(limit_text, sizeof limit_text, a % 4 == 0 ? "max\n" : "%llu\n", (unsigned long long)limit);
  snprintf(use_text, sizeof use_text, "%llu\n", (unsigned long long)(limit / 65536 * b));
  container_limit = limit_text;
  container_use = use_text;
}

static void upkeep_begin(void) {
  begin_core();
  options.purge_cpu_percent = 20;
}

static void upkeep_step(unsigned operation, unsigned a, unsigned b) {
  struct upkeep_block *block = &blocks[(a + b * 7) % UPKEEP_SLOTS];
  uint64_t left_bytes;
  switch ((enum upkeep_operation)operation) {
    case UPKEEP_MALLOC: return take(block, size_from(b));
    case UPKEEP_FREE: return give(block);
    case UPKEEP_FREE_SOME:
      for (size_t i = a; i < UPKEEP_SLOTS; i += 1 + b % 16) give(&blocks[i]);
      return;
    case UPKEEP_TIME: clock_ns += (uint64_t)b * 1000; return;
    case UPKEEP_LONG_TIME: clock_ns += (uint64_t)b * 100000; return;
    case UPKEEP_TICK:
      if (a % 4 == 0) tick_now(a % 8 == 0 ? this_thread.own : NULL, b % 2);
      return;
    case UPKEEP_TICK_IF_DUE: return (void)tick_if_due(this_thread.own, b % 2);
    case UPKEEP_EXCESS: return purge_excess();
    case UPKEEP_IDLE:
      if (a % 16 == 0) purge_idle();
      return;
    case UPKEEP_ALL:
      if (a % 16 == 0) purge_everything();
      return;
    case UPKEEP_TOO_MUCH:
      if (a % 16 == 0 && purge_for_request(this_thread.own, (size_t)1 << 46, &left_bytes) && b % 2 == 0)
        purge_served_nothing(left_bytes);
      return;
    case UPKEEP_BUDGET: options.purge_cpu_percent = b % 101; return;
    case UPKEEP_CONTAINER: return put_into_container(a, b);
    case UPKEEP_STOP: return purge_stop(a % 4 == 0);
    case UPKEEP_LOOK: return maintain_look_at_clock(this_thread.own, 1);
  }
}

static void upkeep_check(void) {
  for (size_t i = 0; i < UPKEEP_SLOTS; i++)
    if (blocks[i].start != NULL) check_block(&blocks[i]);
  snug_check();
}

static void upkeep_end(void) {
  purge_stop(false);
  for (size_t i = 0; i < UPKEEP_SLOTS; i++) give(&blocks[i]);
  purge_everything();
  snug_check();
}

static void upkeep_spoil(void) {
  take(&blocks[0], 100);
  blocks[0].start[50] ^= 1;
}

const struct fuzz_module upkeep_module = {"upkeep",     upkeep_operations, upkeep_begin, upkeep_step,
                                          upkeep_check, upkeep_end,        upkeep_spoil};
