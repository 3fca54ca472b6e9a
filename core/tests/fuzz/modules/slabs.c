/* slabs.c: slabs of three arenas, with joined blocks, seals and purges, beside a list of live blocks. All classes'
 * bytes outside of slabs are those of the blocks in the list. */
#include "world.h"

#include "../../../src/counters.h"
#include "../../../src/purge.h"
#include "../../../src/slab.h"
#include "../../../src/slab_join.h"
#include "../../../src/slab_purge.h"

enum { SLAB_ARENAS = 3, LIVE_MAX = 1 << 16, BATCH = 64, CLASSES_AT_ONCE = 8 };

enum slab_operation {
  SLAB_TAKE,
  SLAB_TAKE_MANY,
  SLAB_GIVE,
  SLAB_GIVE_MANY,
  SLAB_GIVE_MOST,
  SLAB_SEAL,
  SLAB_PURGE,
  SLAB_PURGE_AGED,
  SLAB_TICK,
  SLAB_JOIN_TICK,
  SLAB_LOOK,
  SLAB_MAKE_HOLES,
};

static const char *const slab_operations[] = {
    "take",       "take_many", "give",      "give_many", "give_most",  "seal", "purge",
    "purge_aged", "tick",      "join_tick", "look",      "make_holes", NULL,
};

static struct live_block {
  char *start;
  uint64_t seed;
} live[LIVE_MAX];
static size_t live_count;
static uint64_t random_state, bytes_before, live_bytes;

/* Blocks outside slabs. */
static uint64_t counted_bytes(void) {
  uint64_t sum = 0;
  for (unsigned arena = 0; arena < SLAB_ARENAS; arena++)
    for (unsigned i = 1; i < CLASS_COUNT; i++)
      sum += snug_counters.classes[arena][i].outstanding_blocks * class_shapes[i].size_bytes;
  return sum;
}

static bool is_marked(const struct live_block *block) {
  return memcmp(block->start, &block->seed, 8) == 0 &&
         memcmp(block->start + slab_block_size(block->start) - 8, &block->seed, 8) == 0;
}

static void take(unsigned arena, unsigned class_index, size_t wanted) {
  void *blocks[BATCH];
  bool contended = false;
  uint64_t refused = refused_calls;
  size_t bytes = class_shapes[class_index].size_bytes;
  if (live_count + wanted > LIVE_MAX || live_bytes > 64 * MIB) return;
  size_t got = slab_take(arena, class_index, blocks, wanted, bytes, &contended);
  if (got > wanted) fuzz_fail("%zu blocks of %zu", got, wanted);
  if (got == 0) {
    if (refused == refused_calls) fuzz_fail("no memory for a block of %zu bytes", bytes);
    fuzz_counts->failed++;
  }
  for (size_t i = 0; i < got; i++) {
    struct live_block block = {blocks[i], random_next(&random_state)};
    size_t usable = slab_block_size(block.start);
    if (usable < bytes) fuzz_fail("%zu usable bytes of %zu", usable, bytes);
    memcpy(block.start, &block.seed, 8);
    memcpy(block.start + usable - 8, &block.seed, 8);
    live[live_count++] = block;
    live_bytes += usable;
  }
}

static void give(size_t wanted) {
  void *blocks[BATCH];
  size_t count = 0;
  for (; count < wanted && live_count != 0; count++) {
    size_t i = random_below(&random_state, live_count);
    if (!is_marked(&live[i])) fuzz_fail("the block %p was overwritten", (void *)live[i].start);
    blocks[count] = live[i].start;
    live_bytes -= slab_block_size(live[i].start);
    live[i] = live[--live_count];
  }
  if (slab_give(blocks, count)) fuzz_fail("a lock was held by nobody");
}

static void look(size_t number) {
  if (live_count == 0) return;
  const struct live_block *block = &live[number % live_count];
  if (!slab_is_taken(block->start)) fuzz_fail("%p is not in use", (void *)block->start);
  bool joined = slab_is_joined(block->start);
  if (joined != (slab_block_size(block->start) > slab_slot_size(block->start)))
    fuzz_fail("%p is %sa joined block", (void *)block->start, joined ? "" : "not ");
}

/* Many small blocks, of which few are left, at random. The next ticks see the holes. */
static void make_holes(unsigned class_index, size_t batches) {
  size_t before = live_count;
  for (size_t i = 0; i < batches; i++) take(0, class_index, BATCH);
  for (size_t left = before + (live_count - before) / 5; live_count > left + BATCH;) give(BATCH);
  slab_join_tick();
}

static void slab_begin(void) {
  begin_core();
  if (!purge_try_lock()) fuzz_fail("the purge lock is taken"); /* so nobody else purges */
  for (unsigned i = 0; i < SLAB_ARENAS; i++) arena_join(i);
  bytes_before = counted_bytes();
  random_state = 1;
}

static void slab_step(unsigned operation, unsigned a, unsigned b) {
  /* Few classes at a time, that slabs fill and empty; their neighbours, that holes of one serve another. */
  unsigned class_index = 1 + (a / 3 % CLASSES_AT_ONCE * 5 + b % 3) % (CLASS_COUNT - 1);
  switch ((enum slab_operation)operation) {
    case SLAB_TAKE: return take(a % SLAB_ARENAS, class_index, 1);
    case SLAB_TAKE_MANY: return take(a % SLAB_ARENAS, class_index, 1 + b % BATCH);
    case SLAB_GIVE: return give(1);
    case SLAB_GIVE_MANY: return give(1 + b % BATCH);
    case SLAB_GIVE_MOST:
      while (a % 16 == 0 && live_count > b % 1024) give(live_count - b % 1024 < BATCH ? 1 : BATCH);
      return;
    case SLAB_SEAL:
      if (a % 8 != 0) return;
      slab_lock_all();
      slab_seal(b % 4);
      return slab_unlock_all();
    case SLAB_PURGE:
      if (a % 8 == 0) slab_purge(b % 2 == 0 ? 0 : 1024, false, b, b % 1000);
      return;
    case SLAB_PURGE_AGED:
      if (a % 8 == 0) slab_purge(b % 2 == 0 ? 0 : 1024, true, b, b % 1000);
      return;
    case SLAB_TICK: return slab_tick();
    case SLAB_JOIN_TICK: return slab_join_tick();
    case SLAB_LOOK: return look(b);
    case SLAB_MAKE_HOLES:
      if (b % 16 == 0) make_holes(1 + a % 16, b / 16 % 200);
      return;
  }
}

static void slab_check_all(void) {
  for (size_t i = 0; i < live_count; i++)
    if (!is_marked(&live[i])) fuzz_fail("the block %p was overwritten", (void *)live[i].start);
  slab_check();
  pages_check();
  if (counted_bytes() != bytes_before + live_bytes)
    fuzz_fail("%lld bytes are outside of slabs, not %llu", (long long)(counted_bytes() - bytes_before),
              (unsigned long long)live_bytes);
}

static void slab_end(void) {
  while (live_count != 0) give(live_count < BATCH ? live_count : BATCH);
  slab_purge(0, false, slab_record_count(), SIZE_MAX);
  slab_check_all();
}

static void slab_spoil(void) {
  fuzz_refuse(0, 0);
  give(BATCH);
  take(0, 5, 1);
  live[live_count - 1].start[0] ^= 1;
}

const struct fuzz_module slabs_module = {"slabs",        slab_operations, slab_begin, slab_step,
                                         slab_check_all, slab_end,        slab_spoil};
