/* slab_purge_test.c: which pages inside slabs go, and when. */
#include "slabs.h"

static void give_range(char **blocks, size_t from, size_t end) {
  for (size_t i = from; i < end; i++) slab_give((void **)&blocks[i], 1);
}

static size_t resident_pages_of(const char *start, size_t pages_count) {
  size_t count = 0;
  for (size_t i = 0; i < pages_count; i++) count += is_resident(start + i * PAGE_BYTES);
  return count;
}

/* A class of 8 KiB with 7 slots in 14 pages, so that a slab has whole system pages of 16 KiB to give; for 64 KiB: 32
 * KiB. */
static unsigned purge_class(void) { return class_index_large[(zone.page_bytes > 16384 ? 32768 : 8192) / 128 - 1]; }

TEST(pages_that_no_block_touches_are_given_back) {
  init_once();
  unsigned class_index = purge_class();
  const struct class_shape *shape = &class_shapes[class_index];
  size_t slots = shape->slots, pages_per_slot = shape->size_bytes / PAGE_BYTES, whole = zone.page_bytes / PAGE_BYTES;
  char *blocks[8] = {NULL};
  slab_purge(0, false, slab_record_count(), SIZE_MAX);
  take_slabs(class_index, 1, blocks);
  for (size_t i = 0; i < slots; i++) memset(blocks[i], (int)i + 1, shape->size_bytes);
  char *start = blocks[0];
  size_t pages_held = shape->pages, before = snug_counters.slab_purged_bytes;
  if (!is_emulated()) CHECK(resident_pages_of(start, pages_held) == pages_held);
  give_range(blocks, 1, slots - 1);
  size_t freed_pages = (slots - 2) * pages_per_slot, purged = slab_purge(2048, false, slab_record_count(), SIZE_MAX);
  CHECK_THAT(purged <= freed_pages && purged + 2 * (whole - 1) >= freed_pages && purged % whole == 0,
             "%zu pages of %zu free", purged, freed_pages);
  CHECK(snug_counters.slab_purged_bytes == before + purged * PAGE_BYTES);
  if (!is_emulated()) CHECK(resident_pages_of(start, pages_held) == pages_held - purged);
  CHECK(blocks[0][0] == 1 && blocks[0][shape->size_bytes - 1] == 1 &&
        blocks[slots - 1][shape->size_bytes - 1] == (char)slots);
  slab_check();
  CHECK(slab_purge(2048, false, slab_record_count(), SIZE_MAX) == 0); /* nothing new was freed */
  bool contended;
  for (size_t i = 1; i < slots - 1; i++) {
    REQUIRE(slab_take(0, class_index, (void **)&blocks[i], 1, 1, &contended) == 1);
    memset(blocks[i], 7, shape->size_bytes);
    slab_check();
  }
  CHECK_THAT(snug_counters.slab_purged_bytes <= before, "%zu bytes count as purged",
             (size_t)snug_counters.slab_purged_bytes);
  slab_give((void **)blocks, slots);
}

/* Where the system's pages are larger than ours, a block that is taken brings back pages beside its own. */
TEST(pages_that_were_touched_again_are_given_back_again) {
  init_once();
  unsigned class_index = purge_class();
  const struct class_shape *shape = &class_shapes[class_index];
  char *blocks[8] = {NULL}, *again;
  bool contended;
  slab_purge(0, false, slab_record_count(), SIZE_MAX);
  take_slabs(class_index, 1, blocks);
  char *start = blocks[0];
  memset(start, 1, shape->pages * PAGE_BYTES);
  give_range(blocks, 0, shape->slots - 1);
  CHECK(slab_purge(2048, false, slab_record_count(), SIZE_MAX) != 0);
  size_t before = snug_counters.slab_purged_bytes, resident = resident_pages_of(start, shape->pages);
  REQUIRE(slab_take(0, class_index, (void **)&again, 1, 1, &contended) == 1);
  memset(again, 7, shape->size_bytes);
  slab_give((void **)&again, 1);
  slab_purge(2048, false, slab_record_count(), SIZE_MAX);
  CHECK(snug_counters.slab_purged_bytes == before);
  if (!is_emulated()) CHECK(resident_pages_of(start, shape->pages) == resident);
  slab_check();
  slab_give((void **)&blocks[shape->slots - 1], 1);
}

TEST(blocks_come_from_pages_that_hold_memory_first) {
  init_once();
  if (zone.page_bytes != PAGE_BYTES) SKIP("counts pages of 4 KiB");
  const unsigned class_index = class_holding(2304); /* 7 slots in 4 pages */
  char *blocks[7] = {NULL}, *again;
  bool contended;
  slab_purge(0, false, slab_record_count(), SIZE_MAX);
  take_slabs(class_index, 1, blocks);
  give_range(blocks, 0, 4); /* pages 0 and 1, half of 2 */
  CHECK(slab_purge(2048, false, slab_record_count(), SIZE_MAX) == 2);
  give_range(blocks, 5, 7); /* page 3, not purged */
  CHECK(slab_take(0, class_index, (void **)&again, 1, 1, &contended) == 1);
  CHECK_THAT(again == blocks[5], "slot %td", (again - blocks[0]) / 2304);
  slab_check();
  slab_give((void **)&again, 1);
  slab_give((void **)&blocks[4], 1);
  slab_check();
}

TEST(only_aged_slabs_are_purged_on_ticks) {
  init_once();
  unsigned class_index = purge_class();
  char *blocks[8] = {NULL};
  slab_purge(0, false, slab_record_count(), SIZE_MAX);
  take_slabs(class_index, 1, blocks);
  memset(blocks[0], 1, class_shapes[class_index].slots * class_shapes[class_index].size_bytes);
  give_range(blocks, 0, class_shapes[class_index].slots - 1);
  CHECK(slab_purge(2048, true, slab_record_count(), SIZE_MAX) == 0);
  slab_tick();
  CHECK(slab_purge(2048, true, slab_record_count(), SIZE_MAX) == 0);
  slab_tick();
  CHECK(slab_purge(65536, true, slab_record_count(), SIZE_MAX) == 0); /* no class is that large */
  CHECK(slab_purge(2048, true, slab_record_count(), SIZE_MAX) > 0);
  slab_give((void **)&blocks[class_shapes[class_index].slots - 1], 1);
}
