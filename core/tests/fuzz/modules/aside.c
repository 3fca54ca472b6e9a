/* aside.c: blocks beside the heap, which signal handlers get, and what they freed of it, beside a list of both. */
#include "world.h"

#include "../../../src/aside.h"
#include "blocks.h"

enum { ASIDE_SLOTS = 128, KEPT_MAX = 512 };

enum aside_operation {
  ASIDE_TAKE,
  ASIDE_TAKE_ALIGNED,
  ASIDE_GIVE,
  ASIDE_SIZE,
  ASIDE_KEEP,
  ASIDE_KEEP_UNWRITABLE,
  ASIDE_ALL,
  ASIDE_LIMIT
};

static const char *const aside_operations[] = {
    "take", "take_aligned", "give", "size", "keep", "keep_unwritable", "all", "limit", NULL,
};

static struct aside_block {
  char *start; /* NULL: none */
  size_t bytes;
  uint64_t seed;
} blocks[ASIDE_SLOTS];
static uint64_t seeds;
static void *kept[KEPT_MAX]; /* in the order in which they were kept */
static size_t kept_count;
static bool is_limited;

static void check_block(const struct aside_block *block) {
  size_t at = mark_mismatch(block->start, block->bytes, block->bytes, block->seed);
  if (at != SIZE_MAX) fuzz_fail("the block %p of %zu bytes has changed at %zu", (void *)block->start, block->bytes, at);
  if (!aside_holds(block->start)) fuzz_fail("%p is not in the range", (void *)block->start);
}

static void take(struct aside_block *block, size_t alignment, size_t bytes) {
  uint64_t refused = refused_calls;
  if (block->start != NULL) return;
  char *start = aside_take(alignment, bytes);
  if (start == NULL) {
    if (refused == refused_calls && bytes <= 16 * MIB && !is_limited) fuzz_fail("no memory for %zu bytes", bytes);
    fuzz_counts->failed++;
    return;
  }
  if ((uintptr_t)start % (alignment > 16 ? alignment : 16) != 0) fuzz_fail("%p is not aligned", (void *)start);
  if (aside_size(start) < bytes) fuzz_fail("%zu usable bytes of %zu", aside_size(start), bytes);
  *block = (struct aside_block){start, bytes, ++seeds};
  mark(start, bytes, seeds);
}

static void give(struct aside_block *block) {
  if (block->start == NULL) return;
  check_block(block);
  char *start = block->start;
  block->start = NULL;
  aside_give(start);
}

static void keep(bool may_write) {
  uint64_t refused = refused_calls;
  if (kept_count == KEPT_MAX) return;
  void *block = own_allocator.malloc(32);
  if (block == NULL) return;
  aside_keep(block, may_write);
  /* Where there is no room for what stands for it, it is lost. */
  bool may_be_lost = !may_write && (refused_calls != refused || is_limited);
  if (may_be_lost && (this_thread.kept == NULL || !aside_holds(this_thread.kept))) return;
  kept[kept_count++] = block;
}

static void give_kept(void) {
  void *list = aside_all_kept(), *block;
  size_t lost = 0;
  while ((block = aside_next_kept(&list)) != NULL) {
    while (kept_count != 0 && kept[kept_count - 1] != block) kept_count--, lost++;
    if (kept_count == 0) fuzz_fail("%p was kept by nobody", block);
    kept_count--;
    own_allocator.free(block);
  }
  if ((kept_count != 0 || lost != 0) && refused_calls == 0 && !is_limited) fuzz_fail("%zu blocks are lost", lost);
  kept_count = 0;
}

static void aside_begin(void) {
  begin_core();
  cache_gives_kept = NULL; /* the module does */
}

static void aside_step(unsigned operation, unsigned a, unsigned b) {
  struct aside_block *block = &blocks[a % ASIDE_SLOTS];
  switch ((enum aside_operation)operation) {
    case ASIDE_TAKE: return take(block, 1, b % 16 == 0 ? size_from(b / 16 * 16) : b % 2000);
    case ASIDE_TAKE_ALIGNED: return take(block, (size_t)1 << b % 16, b / 16);
    case ASIDE_GIVE: return give(block);
    case ASIDE_SIZE:
      if (block->start != NULL && aside_size(block->start) < block->bytes)
        fuzz_fail("%p has shrunk", (void *)block->start);
      return;
    case ASIDE_KEEP: return keep(true);
    case ASIDE_KEEP_UNWRITABLE: return keep(false);
    case ASIDE_ALL: return give_kept();
    case ASIDE_LIMIT:
      if (a != 0 || b % 8 != 0) return;
      is_limited = true;
      return aside_release_reservations();
  }
}

static void aside_check(void) {
  for (size_t i = 0; i < ASIDE_SLOTS; i++)
    if (blocks[i].start != NULL) check_block(&blocks[i]);
}

static void aside_end(void) {
  give_kept();
  for (size_t i = 0; i < ASIDE_SLOTS; i++) give(&blocks[i]);
  snug_check();
}

static void aside_spoil(void) {
  fuzz_refuse(0, 0);
  give(&blocks[0]);
  take(&blocks[0], 1, 100);
  if (blocks[0].start == NULL) fuzz_fail("no room");
  blocks[0].start[50] ^= 1;
}

const struct fuzz_module aside_module = {"aside",     aside_operations, aside_begin, aside_step,
                                         aside_check, aside_end,        aside_spoil};
