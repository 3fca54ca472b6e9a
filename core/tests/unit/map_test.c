/* map_test.c: the zone and its tables grow, shrink and refuse; also under a limit of the address space.
 *
 * The heap is reserved without MAP_NORESERVE, as in a sandbox that refuses that flag: what is writable, or was, is
 * charged to the process as it is everywhere under vm.overcommit_memory=2, where the kernel ignores the flag. smaps
 * shows such mappings by "ac". */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>
#undef MAP_NORESERVE
#define MAP_NORESERVE 0
#include "../../src/sys.c"

/* The system's answers, refused on demand. */
static bool refuse_commit, refuse_reserve, refuse_remap;
static bool reserve_again_or_refuse(void *start, size_t length_bytes) {
  return !refuse_reserve && sys_reserve_again(start, length_bytes);
}
#define sys_reserve_again reserve_again_or_refuse
static bool commit_or_refuse(void *start, size_t length_bytes) {
  return !refuse_commit && sys_commit(start, length_bytes);
}
#define sys_commit commit_or_refuse
static bool map_at_or_refuse(void *start, size_t length_bytes) {
  return !refuse_commit && sys_map_at(start, length_bytes);
}
#define sys_map_at map_at_or_refuse
static void *remap_or_refuse(void *start, size_t old_bytes, size_t new_bytes, bool may_move) {
  return refuse_remap ? NULL : sys_remap(start, old_bytes, new_bytes, may_move);
}
#define sys_remap remap_or_refuse
#include "../../src/fatal.c"
#include "../../src/rights.c"
#include "../../src/lock.c"
#include "../../src/options.c"
#include "../../src/map.c"
#include "unit.h"

#include <sys/resource.h>

struct snug_counters snug_counters; /* stats.c has the real one */

static void init_once(void) {
  if (zone.base == NULL) REQUIRE(map_init());
}

/* The pages from..end-1 are usable, read as zero, and so do their descriptions. */
static void check_usable(size_t from, size_t end) {
  REQUIRE(map_reach(end));
  for (size_t page = from; page < end; page++) {
    uint64_t *words = (uint64_t *)page_address(page);
    if (words[0] != 0 || words[PAGE_BYTES / 8 - 1] != 0 || page_kind(page) != 0 || zone.owner[page] != 0) {
      CHECK_THAT(false, "page %zu does not read as zero", page);
    }
    words[0] = page;
    page_set_kind(page, 1 + page % 1000);
    zone.owner[page] = (uint32_t)~page;
    zone.free_bits[page / 64] ^= (uint64_t)1 << (page % 64);
    zone.dirty_bits[page / 64] ^= (uint64_t)1 << (page % 64);
  }
  for (size_t page = from; page < end; page++) {
    if (*(uint64_t *)page_address(page) != page || page_kind(page) != 1 + page % 1000 ||
        zone.owner[page] != (uint32_t)~page) {
      CHECK_THAT(false, "page %zu lost what was written", page);
    }
  }
}

static void limit_address_space(size_t more_bytes) {
  size_t bytes = address_space_bytes() + more_bytes;
  struct rlimit limit = {bytes, bytes};
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* Grows to the end under a limit; the heap must get most of it. */
static void grow_to_the_limit(size_t limit_bytes, size_t least_bytes) {
  limit_address_space(limit_bytes);
  CHECK(map_init());
  size_t before = 0, after;
  while ((after = map_grow(1)) != 0) {
    check_usable(before, after);
    before = after;
  }
  CHECK_THAT(before * PAGE_BYTES >= least_bytes, "of %zu bytes the heap got %zu", limit_bytes, before * PAGE_BYTES);
  CHECK(before == zone_pages());
  if (before == 0) return;
  CHECK(map_shrink(before - CHUNK_PAGES)); /* what is unmapped can be had again, by others, too */
  void *mapping = sys_map(CHUNK_PAGES * PAGE_BYTES);
  CHECK(mapping != NULL);
  CHECK(map_grow(1) == 0);
  sys_unmap(mapping, CHUNK_PAGES * PAGE_BYTES);
  CHECK(map_grow(1) == before);
}

static void limit_256_mib(void) { grow_to_the_limit(256 * MIB, 200 * MIB); }
static void limit_64_mib(void) { grow_to_the_limit(64 * MIB, 40 * MIB); }
static void limit_3_mib(void) {
  limit_address_space(3 * MIB);
  if (map_init())
    CHECK(map_grow(1) == 0 && zone_pages() == 0); /* not even one chunk: refused somewhere, without harm */
}

/* The first test: what others reserve would count. */
TEST(a_limit_of_the_address_space) {
  if (is_emulated()) SKIP("the emulator's own limit");
  run_in_child(limit_256_mib);
  run_in_child(limit_64_mib);
  run_in_child(limit_3_mib);
}

/* Of the first chunk no more can be touched than is taken soon: in a small program a write far beyond shows. */
static void reach_step_by_step(void) {
  REQUIRE(map_init() && map_grow(1) == CHUNK_PAGES);
  size_t end = FIRST_PAGES;
  check_usable(0, end);
  check_unreadable(page_address(end));
  refuse_commit = true;
  CHECK(map_reach(end) && !map_reach(end + 1));
  refuse_commit = false;
  check_usable(end, end + 1);
  *(volatile char *)page_address(2 * end - 1);
  check_unreadable(page_address(2 * end));
  CHECK(map_shrink(0) && map_grow(1) == CHUNK_PAGES);
  check_unreadable(page_address(FIRST_PAGES));
}

/* The rest of the first chunk, when the heap grows beyond it, whatever it grows by. */
static void grow_beyond(void) {
  REQUIRE(map_init() && map_grow(1) == CHUNK_PAGES && map_grow(1) != 0);
  check_usable(0, zone_pages());
}

static void grow_beyond_under_a_limit(void) {
  REQUIRE(map_init() && map_grow(1) == CHUNK_PAGES);
  map_release_reservations();
  REQUIRE(map_grow(1) != 0);
  check_usable(0, zone_pages());
}

TEST(the_first_chunk_is_reached_step_by_step) {
  run_in_child(reach_step_by_step);
  run_in_child(grow_beyond);
  run_in_child(grow_beyond_under_a_limit);
}

/* Others have the addresses behind: all before them can be used, and is described, to the last chunk. */
static void grow_to_a_neighbour(void) {
  REQUIRE(map_init() && map_grow(1) != 0);
  char *others = map.reserved_end + 5 * CHUNK_PAGES * PAGE_BYTES;
  REQUIRE(sys_map_at(others, zone.page_bytes));
  size_t before = zone_pages(), after;
  check_usable(0, before);
  while ((after = map_grow(1)) != 0) {
    check_usable(before, after);
    before = after;
  }
  CHECK_THAT(page_address(before) == others, "%p of %p", (void *)page_address(before), (void *)others);
  CHECK(!map_heap_is_reserved() && map_grow(1) == 0);
  CHECK(map_shrink(before - CHUNK_PAGES) && map_grow(1) == before);
  CHECK(sys_unmap(others, zone.page_bytes) && map_grow(1) == before + CHUNK_PAGES);
}

/* As in a sandbox that lacks mremap. */
static void grow_without_mremap(void) {
  refuse_remap = true;
  REQUIRE(map_init());
  for (size_t before = 0; before < 64 * CHUNK_PAGES; before = zone_pages()) {
    REQUIRE(map_grow(1) != 0);
    check_usable(before, zone_pages());
  }
  CHECK(!map_heap_is_reserved());
}

TEST(growth_in_place_ends_at_others_alone) {
  run_in_child(grow_to_a_neighbour);
  run_in_child(grow_without_mremap);
}

TEST(the_zone_grows_by_whole_chunks_of_zeros) {
  init_once();
  CHECK(zone.page_bytes >= PAGE_BYTES && zone.page_bytes == sys_page_size_bytes());
  CHECK(zone.reserved_pages % CHUNK_PAGES == 0);
  for (size_t wanted = 1; wanted <= 3000; wanted += 999) {
    size_t before = zone_pages(), after = map_grow(wanted);
    REQUIRE(after != 0);
    CHECK_THAT(after >= before + wanted && after % CHUNK_PAGES == 0 && after < before + wanted + 2 * CHUNK_PAGES,
               "%zu pages more: from %zu to %zu", wanted, before, after);
    CHECK(after == zone_pages());
    check_usable(before, after);
  }
}

TEST(indices_and_addresses) {
  init_once();
  size_t count = zone_pages();
  for (size_t page = 0; page < count; page += 37) {
    CHECK(page_index(page_address(page)) == page && page_index(page_address(page) + PAGE_BYTES - 1) == page);
  }
  int on_stack;
  static int in_data;
  CHECK(page_index(zone.base - 1) >= count && page_index(NULL) >= count && page_index(&on_stack) >= count &&
        page_index(&in_data) >= count && page_index((void *)UINTPTR_MAX) >= count &&
        page_index(page_address(count)) >= count);
}

TEST(a_large_zone_grows_by_an_eighth) {
  init_once();
  while (zone_pages() < 40 * CHUNK_PAGES) REQUIRE(map_grow(CHUNK_PAGES) != 0);
  size_t before = zone_pages(), after = map_grow(1);
  CHECK_THAT(after - before == before / CHUNK_PAGES / 8 * CHUNK_PAGES, "from %zu to %zu", before, after);
}

TEST(shrinking_takes_the_address_space_back) {
  init_once();
  size_t pages = zone_pages(), end = pages - 2 * CHUNK_PAGES;
  sys_purge(page_address(end), 2 * CHUNK_PAGES * PAGE_BYTES); /* as the page heap does before */
  CHECK(map_shrink(end) && zone_pages() == end);
  check_unreadable(page_address(end));
  check_unreadable(page_address(pages - 1));
  *(volatile char *)page_address(end - 1);
  CHECK(map_grow(1) == end + zone_pages() - end && zone_pages() > end);
  for (size_t page = end; page < zone_pages(); page++) {
    const uint64_t *words = (const uint64_t *)page_address(page);
    if (words[0] != 0) CHECK_THAT(false, "page %zu kept its contents", page);
  }
}

struct heap_mappings {
  size_t count, charged_bytes, huge_bytes; /* huge: where the kernel may make huge pages */
};

/* What the kernel says of the reserved zone. */
static struct heap_mappings heap_mappings(void) {
  struct heap_mappings sum = {0, 0, 0};
  FILE *file = fopen("/proc/self/smaps", "r");
  REQUIRE(file != NULL);
  static char line[4096];
  unsigned long begin = 0, end = 0;
  uintptr_t zone_begin = (uintptr_t)zone.base, zone_end = (uintptr_t)page_address(zone.reserved_pages);
  while (fgets(line, sizeof line, file) != NULL) {
    char *rest;
    unsigned long first = strtoul(line, &rest, 16);
    if (rest != line && *rest == '-') {
      begin = first;
      end = strtoul(rest + 1, NULL, 16);
    }
    if (strncmp(line, "VmFlags:", 8) != 0 || begin >= zone_end || end <= zone_begin) continue;
    sum.count++;
    if (strstr(line, " ac") != NULL) sum.charged_bytes += end - begin;
    if (strstr(line, " nh") == NULL) sum.huge_bytes += end - begin;
  }
  fclose(file);
  return sum;
}

TEST(what_the_zone_shrinks_by_is_charged_no_more) {
  if (is_emulated()) SKIP("smaps is the emulator's");
  init_once();
  while (zone_pages() < 16 * CHUNK_PAGES) REQUIRE(map_grow(CHUNK_PAGES) != 0);
  struct heap_mappings before = heap_mappings();
  CHECK_THAT(before.count == 2 && before.charged_bytes == zone_pages() * PAGE_BYTES, "%zu mappings, %zu of %zu",
             before.count, before.charged_bytes, zone_pages() * PAGE_BYTES);
  for (int turn = 0; turn < 3; turn++) {
    size_t end = zone_pages() - 3 * CHUNK_PAGES;
    memset(page_address(end), 1, PAGE_BYTES);
    sys_purge(page_address(end), 3 * CHUNK_PAGES * PAGE_BYTES);
    REQUIRE(map_shrink(end));
    struct heap_mappings after = heap_mappings();
    CHECK_THAT(after.charged_bytes + 3 * CHUNK_PAGES * PAGE_BYTES == before.charged_bytes, "%zu bytes, %zu before",
               after.charged_bytes, before.charged_bytes);
    CHECK_THAT(after.count == before.count, "%zu mappings, %zu before", after.count, before.count);
    CHECK_THAT(after.huge_bytes == before.huge_bytes, "%zu bytes may have huge pages", after.huge_bytes);
    before = after;
  }
}

/* As where the process has as many mappings as it may have: a new one is refused, even in place of another. */
TEST(a_zone_that_may_not_be_reserved_again_shrinks_all_the_same) {
  init_once();
  while (zone_pages() < 16 * CHUNK_PAGES) REQUIRE(map_grow(CHUNK_PAGES) != 0);
  size_t pages = zone_pages(), end = pages - 2 * CHUNK_PAGES;
  refuse_reserve = true;
  CHECK(map_shrink(end) && zone_pages() == end);
  check_unreadable(page_address(end));
  REQUIRE(map_grow(2 * CHUNK_PAGES) >= pages);
  *(volatile char *)page_address(end) = 0;
  refuse_reserve = false;
}

/* What is reserved beyond the zone is little, whatever the zone was once. */
static void check_reserved(const char *when) {
  size_t bytes = (size_t)(map.reserved_end - page_address(zone_pages())), eighth = zone_pages() / 8 * PAGE_BYTES;
  CHECK_THAT(bytes >= zone.page_bytes && bytes <= (eighth > 32 * MIB ? eighth : 32 * MIB) && bytes <= 256 * MIB,
             "%s: %zu MiB beyond %zu pages", when, bytes / MIB, zone_pages());
}

TEST(little_is_reserved_beyond_the_zone) {
  init_once();
  size_t pages = zone_pages();
  check_reserved("at first");
  while (zone_pages() < 4096 * CHUNK_PAGES) {
    REQUIRE(map_grow(1) != 0);
    check_reserved("growing");
  }
  if (!is_emulated()) CHECK_THAT(heap_mappings().count == 2, "%zu mappings", heap_mappings().count);
  while (zone_pages() > pages + 4 * CHUNK_PAGES) {
    CHECK(map_shrink(zone_pages() - (zone_pages() - pages) / 2 / CHUNK_PAGES * CHUNK_PAGES));
    check_reserved("shrinking");
  }
  if (!is_emulated()) CHECK_THAT(heap_mappings().count == 2, "%zu mappings", heap_mappings().count);
}

TEST(growth_ends_with_the_reservation) {
  init_once();
  size_t saved = zone.reserved_pages, pages = zone_pages();
  zone.reserved_pages = pages + CHUNK_PAGES;
  CHECK(map_grow(2 * CHUNK_PAGES) == 0 && zone_pages() == pages);
  CHECK(map_grow(1) == pages + CHUNK_PAGES); /* the eighth ahead does not fit, what is needed does */
  CHECK(map_grow(1) == 0 && zone_pages() == pages + CHUNK_PAGES);
  zone.reserved_pages = saved;
}

TEST(refused_memory_leaves_the_zone_as_it_was) {
  init_once();
  size_t pages = zone_pages();
  refuse_commit = true;
  CHECK(map_grow(1) == 0 && zone_pages() == pages);
  refuse_commit = false;
  CHECK(map_grow(1) > pages);
}

TEST(tables_grow_in_place_and_refuse_beyond_their_end) {
  init_once();
  struct table table = table_reserve(1000000, "snug test");
  REQUIRE(table.start != NULL);
  CHECK(table.reserved_bytes >= 1000000 && table.reserved_bytes % zone.page_bytes == 0);
  const char *start = table.start;
  for (size_t bytes = 1; bytes <= 1000000; bytes += bytes / 3 + 1) {
    CHECK(table_commit(&table, bytes));
    CHECK_THAT(table.committed_bytes >= bytes && table.committed_bytes <= table.reserved_bytes, "%zu",
               table.committed_bytes);
    CHECK(table.start[bytes - 1] == 0);
    table.start[bytes - 1] = 0;
  }
  CHECK(table.start == start);
  CHECK(table_commit(&table, 1) && table_commit(&table, table.reserved_bytes));
  CHECK(!table_commit(&table, table.reserved_bytes + 1));
  refuse_commit = true;
  struct table other = table_reserve(100000, "snug test");
  CHECK(!table_commit(&other, 1) && other.committed_bytes == 0);
  refuse_commit = false;
  CHECK(table_commit(&other, 1));
}
