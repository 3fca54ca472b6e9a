/* slab_test.c: slabs of blocks against a list of live ones; order, adoption, sealing, misuse. */
#include "live_blocks.h"

static uint64_t random_state = 1;
enum { MODEL_MAX = 20000 };
static const unsigned classes_used[] = {1, 2, 7, 8, 16, 24, 32, 40, 43, 48, 58, CLASS_COUNT - 1};

/* ---- the model ---- */

static size_t take(unsigned arena, unsigned class_index, size_t wanted) {
  void *blocks[BATCH];
  bool contended = false;
  size_t count = slab_take(arena, class_index, blocks, wanted, size_of(class_index) - 1, &contended);
  CHECK(count >= 1 && count <= wanted && !contended);
  for (size_t i = 0; i < count; i++) {
    CHECK_THAT(page_kind(page_index(blocks[i])) == (arena << ARENA_SHIFT | class_index), "%p", blocks[i]);
    CHECK_THAT((uintptr_t)blocks[i] % 16 == 0 && slab_block_size(blocks[i]) == size_of(class_index), "%p", blocks[i]);
    keep(blocks[i], class_index);
  }
  return count;
}

/* Sums over arenas: which arena a block belongs to changes when its slab is adopted. */
static void compare(void) {
  static size_t blocks[CLASS_COUNT];
  memset(blocks, 0, sizeof blocks);
  for (size_t i = 0; i < live_count; i++) blocks[live[i].class_index]++;
  uint64_t slab_bytes = 0, slabs_counted = 0;
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    uint64_t outstanding = 0;
    for (unsigned arena = 0; arena < ARENAS; arena++) {
      const struct snug_counters_class *row = &snug_counters.classes[arena][i];
      outstanding += row->outstanding_blocks;
      slab_bytes += row->slab_bytes;
      slabs_counted += row->slabs;
      CHECK(row->slab_bytes == (uint64_t)row->slabs * class_shapes[i].pages * PAGE_BYTES);
    }
    CHECK_THAT(outstanding == blocks[i], "class %u: %llu outstanding, %zu live", i, (unsigned long long)outstanding,
               blocks[i]);
  }
  CHECK(slab_bytes == pages_used() * PAGE_BYTES);
  size_t seen = slab_check();
  CHECK_THAT(seen == slabs_counted, "%zu slabs seen, %llu counted", seen, (unsigned long long)slabs_counted);
  uint64_t purged = 0;
  for (uint32_t number = 1; number < slab_record_count(); number++) {
    if (slabs.records[number].bucket != BUCKET_NO_SLAB)
      purged += (uint64_t)__builtin_popcountll(slabs.records[number].purged);
  }
  CHECK(snug_counters.slab_purged_bytes == purged * PAGE_BYTES);
}

TEST(random_operations_agree_with_the_model) {
  init_once();
  for (int step = 0; step < 30000; step++) {
    size_t choice = random_below(&random_state, 1000);
    unsigned class_index = classes_used[random_below(&random_state, COUNT_OF(classes_used))];
    size_t many = 1 + random_below(&random_state, BATCH);
    if (choice < 480 && live_count + BATCH < (size_t)(step / 6000 % 2 ? 300 : MODEL_MAX)) {
      take((unsigned)random_below(&random_state, ARENAS), class_index, many);
    } else if (choice < 980) {
      give_some(many);
    } else if (choice < 985) {
      slab_tick();
    } else if (choice < 995) {
      size_t min_bytes = random_below(&random_state, 2) ? 2048 : 0;
      size_t records = 1 + random_below(&random_state, slab_record_count() + 10);
      slab_purge(min_bytes, random_below(&random_state, 2), records, 1 + random_below(&random_state, 100));
    } else if (choice < 997) {
      unsigned arena = 1 + (unsigned)random_below(&random_state, ARENAS - 1);
      if (arena_users(arena) == 0) {
        arena_join(arena);
      } else {
        arena_leave(arena); /* others adopt its slabs */
      }
    } else if (choice == 997) {
      slab_lock_all();
      slab_seal((unsigned)random_below(&random_state, 3));
      slab_unlock_all();
    } else {
      pages_purge(0, false);
    }
    if (step % 100 == 0) compare();
    if (test_failed) return;
  }
  give_until(0);
  slab_purge(0, false, slab_record_count(), SIZE_MAX); /* slabs kept empty for reuse */
  compare();
  CHECK_THAT(pages_used() == 0, "%zu pages are in use without a block", pages_used());
}

TEST(the_fullest_slab_serves_its_lowest_slot) {
  init_once();
  enum { SLABS = 4 };
  const unsigned class_index = class_holding(512); /* 32 slots */
  size_t slots = class_shapes[class_index].slots;
  char *blocks[SLABS * 32];
  bool contended;
  REQUIRE(slots == 32);
  take_slabs(class_index, SLABS, blocks);
  for (size_t i = 0; i < SLABS * slots; i++) {
    CHECK(slab_number(blocks[i]) == slab_number(blocks[i / slots * slots]) &&
          blocks[i] == blocks[i / slots * slots] + i % slots * 512);
  }
  static const size_t freed[SLABS] = {20, 3, 31, 12};
  size_t total = 0;
  for (size_t slab = 0; slab < SLABS; slab++) {
    for (size_t i = 0; i < freed[slab]; i++) slab_give((void **)&blocks[slab * slots + slots - 1 - i], 1);
    total += freed[slab];
  }
  static const size_t order[SLABS] = {1, 3, 0, 2}; /* from the fullest */
  for (size_t turn = 0; turn < SLABS; turn++) {
    for (size_t i = slots - freed[order[turn]]; i < slots; i++) {
      char *block;
      slab_take(0, class_index, (void **)&block, 1, 1, &contended);
      CHECK_THAT(block == blocks[order[turn] * slots + i], "turn %zu, slot %zu: slab %u", turn, i, slab_number(block));
    }
  }
  slab_check();
  CHECK(!slab_give((void **)blocks, SLABS * slots) && total == 66);
  slab_check();
}

TEST(a_batch_is_used_from_the_lowest_slot_up) {
  init_once();
  void *blocks[BATCH];
  bool contended;
  size_t count = slab_take(0, 5, blocks, 10, 1, &contended);
  REQUIRE(count == 10);
  for (size_t i = 1; i < count; i++) CHECK(blocks[i - 1] > blocks[i]); /* the cache hands out the last one first */
  slab_give(blocks, count);
}

TEST(an_unused_arena_lends_its_slabs) {
  init_once();
  void *first[BATCH], *second[BATCH];
  bool contended;
  REQUIRE(arena_users(1) <= 1 && arena_users(2) <= 1);
  if (arena_users(1) == 0) arena_join(1);
  if (arena_users(2) == 0) arena_join(2);
  size_t count = slab_take(1, 9, first, 7, 1, &contended);
  arena_leave(1);
  struct snug_counters_class *from = row_of(1, 9), *to = row_of(2, 9);
  CHECK(from->slabs == 1 && to->slabs == 0 && from->outstanding_blocks == count);
  size_t more = slab_take(2, 9, second, 5, 1, &contended);
  CHECK(more == 5 && slab_number(second[0]) == slab_number(first[0]));
  CHECK(from->slabs == 0 && from->slab_bytes == 0 && from->outstanding_blocks == 0);
  CHECK(to->slabs == 1 && to->outstanding_blocks == count + more);
  CHECK(page_kind(page_index(first[0])) == (2 << ARENA_SHIFT | 9));
  slab_check();
  CHECK(!slab_give(first, count) && !slab_give(second, more) && to->outstanding_blocks == 0);
  slab_check();
}

/* Takes `count` blocks that must lie in one slab; returns its number. */
static uint32_t take_from_one_slab(unsigned class_index, void **blocks, size_t count) {
  bool contended;
  for (size_t i = 0; i < count; i++) {
    REQUIRE(slab_take(0, class_index, &blocks[i], 1, 1, &contended) == 1);
    CHECK(slab_number(blocks[i]) == slab_number(blocks[0]));
  }
  return slab_number(blocks[0]);
}

TEST(a_sealed_slab_takes_frees_and_does_not_serve) {
  init_once();
  enum { CLASS = 12, TAKEN = 80 }; /* 192 bytes, 85 slots; a quarter: 21 */
  void *old[TAKEN], *fresh[30];
  bool contended;
  uint32_t sealed = take_from_one_slab(CLASS, old, TAKEN), slabs_before = row_of(0, CLASS)->slabs;
  slab_lock_all();
  slab_seal(2);
  slab_unlock_all();
  slab_check();
  slab_give(old, 15); /* 20 are free */
  slab_check();
  CHECK(take_from_one_slab(CLASS, fresh, 20) != sealed);
  slab_give(old + 15, 1); /* a quarter is free: from now on it serves again, and first, as the fullest */
  slab_check();
  CHECK(slab_take(0, CLASS, &fresh[20], 1, 1, &contended) == 1 && slab_number(fresh[20]) == sealed);
  slab_lock_all();
  slab_seal(2);
  slab_unlock_all();
  slab_give(old + 16, TAKEN - 16);
  slab_give(fresh, 21);
  slab_purge(0, false, slab_record_count(), SIZE_MAX);
  slab_check();
  CHECK(row_of(0, CLASS)->slabs < slabs_before || row_of(0, CLASS)->slabs == 0);
}

TEST(a_sealed_slab_ends_with_its_last_block) {
  init_once();
  const unsigned class_index = class_holding(2048); /* 8 slots */
  void *old[8];
  uint32_t sealed = take_from_one_slab(class_index, old, 8), slabs_before = row_of(0, class_index)->slabs;
  slab_lock_all();
  slab_seal(0); /* all of it must be free */
  slab_unlock_all();
  slab_give(old, 7);
  CHECK(slabs.records[sealed].bucket != BUCKET_NO_SLAB);
  slab_give(old + 7, 1);
  CHECK(slabs.records[sealed].bucket == BUCKET_NO_SLAB && row_of(0, class_index)->slabs == slabs_before - 1);
  slab_check();
}

/* Empty and kept for reuse at the moment of sealing: nobody frees into it again. */
TEST(an_empty_slab_is_not_lost_by_sealing) {
  init_once();
  enum { CLASS = 12 };
  void *block;
  bool contended;
  slab_purge(0, false, slab_record_count(), SIZE_MAX);
  uint32_t slabs_before = row_of(0, CLASS)->slabs;
  slab_take(0, CLASS, &block, 1, 1, &contended);
  slab_give(&block, 1);
  CHECK(row_of(0, CLASS)->slabs == slabs_before + 1);
  slab_lock_all();
  slab_seal(2);
  slab_unlock_all();
  slab_purge(0, false, slab_record_count(), SIZE_MAX);
  CHECK_THAT(row_of(0, CLASS)->slabs == slabs_before, "%u slabs, %u before", row_of(0, CLASS)->slabs, slabs_before);
}

/* ---- misuse ---- */

static char *victim;
static void free_twice(void) {
  slab_give((void **)&victim, 1);
  slab_give((void **)&victim, 1);
}
static void free_twice_in_one_batch(void) {
  void *batch[] = {victim, victim};
  slab_give(batch, 2);
}
static void free_inside(void) {
  void *inside = victim + 16;
  slab_give(&inside, 1);
}
static void free_unaligned(void) {
  void *inside = victim + 1;
  slab_give(&inside, 1);
}
static void free_the_tail(void) {
  void *tail = page_address(slabs.records[slab_number(victim)].page + 4) - 1;
  slab_give(&tail, 1);
}
static void free_foreign(void) {
  void *foreign = &victim;
  slab_give(&foreign, 1);
}
static void size_of_freed(void) {
  slab_give((void **)&victim, 1);
  slab_block_size(victim);
}
static void lose_the_owner(void) {
  zone.owner[page_index(victim)] = 0;
  slab_give((void **)&victim, 1);
}
static void flip_a_bit(void) {
  slabs.records[slab_number(victim)].bits[0] ^= 2;
  slab_check();
}
static void lose_from_its_list(void) {
  row_of(0, 9)->slabs++; /* unrelated, not checked here */
  slabs.heads[0][9].first[slabs.records[slab_number(victim)].bucket] = 0;
  slab_check();
}

TEST(misuse_and_broken_state_end_the_process) {
  init_once();
  bool contended;
  char *neighbour;
  slab_take(0, 9, (void **)&victim, 1, 1, &contended); /* 144 bytes */
  slab_take(0, 9, (void **)&neighbour, 1, 1, &contended);
  check_dies(free_twice, "double free");
  check_dies(free_twice_in_one_batch, "double free");
  check_dies(size_of_freed, "double free");
  check_dies(free_inside, "free of a pointer inside a block");
  check_dies(free_inside, "in the block of 144 bytes");
  check_dies(free_unaligned, "free of a pointer inside a block");
  check_dies(free_the_tail, "free of a pointer inside a block");
  check_dies(free_foreign, "free of a pointer that snug did not allocate");
  check_dies(lose_the_owner, "heap metadata is corrupted");
  check_dies(flip_a_bit, "heap metadata is corrupted");
  check_dies(lose_from_its_list, "heap metadata is corrupted");
}
