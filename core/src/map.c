#include "map.h"

#include "counters.h"
#include "fatal.h"
#include "lock.h"
#include "options.h"
#include "rights.h"
#include "sys.h"

#define GIB ((size_t)1 << 30)
#define CHUNK_BYTES ((size_t)CHUNK_PAGES * PAGE_BYTES)

enum {
  ZONE_MIN_CHUNKS = 4,
  TABLES_MAX = SNUG_COUNTERS_TABLES,
  GROW_CHUNKS_MAX = 16, /* 64 MiB: a large heap grows in few system calls */
  FIRST_PAGES = 256, /* of the first chunk, twice as many at the next need: a write far beyond a block may then show */
};

struct zone zone __attribute__((aligned(64)));

static struct {
  struct lock lock; /* rank MAP: growth of the zone and of the tables */
  struct table heap, kind, owner, free_bits, dirty_bits, aged_bits;
  size_t writable_pages; /* of the heap; those beyond, in its first chunk, were not needed yet. Atomic */
  bool heap_reserved;    /* atomic; false: under an address-space limit the heap is mapped as it grows */
  struct table *tables[TABLES_MAX];
  size_t table_count;
} map;

static void name_mapping(void *start, size_t length_bytes, const char *name) {
  if (rights_have(RIGHT_OTHERS)) sys_name_mapping(start, length_bytes, name);
}

void map_set_dumped(void *start, size_t bytes, bool dumped) {
  if (bytes != 0 && rights_have(RIGHT_OTHERS)) sys_set_dumped(start, bytes, dumped);
}

struct table table_reserve(size_t max_bytes, const char *name) {
  struct table table = {NULL, round_up(max_bytes, zone.page_bytes), 0, false};
  table.start = sys_reserve(table.reserved_bytes);
  if (table.start != NULL) name_mapping(table.start, table.reserved_bytes, name);
  return table;
}

/* Commits so that `bytes` from the start are usable. Tables grow in steps, for few system calls and few
 * page-table splits; untouched memory costs nothing. */
bool table_commit(struct table *table, size_t bytes) {
  if (bytes <= table->committed_bytes) return true;
  if (bytes > table->reserved_bytes) return false;
  size_t step = round_up(table->committed_bytes / 4 + 16 * 1024, zone.page_bytes);
  size_t wanted = round_up(bytes, zone.page_bytes);
  if (wanted < table->committed_bytes + step) wanted = table->committed_bytes + step;
  if (wanted > table->reserved_bytes) wanted = table->reserved_bytes;
  char *end = table->start + table->committed_bytes;
  size_t more = wanted - table->committed_bytes;
  if (!table->unreserved) map_set_dumped(end, more, true);
  if (!(table->unreserved ? sys_map_at(end, more) : sys_commit(end, more))) return false;
  table->committed_bytes = wanted;
  return true;
}

void table_register(struct table *table) {
  ASSERT(map.table_count < TABLES_MAX);
  struct snug_counters_range *range = &snug_counters.tables[map.table_count];
  counter_set(&range->reserved_bytes, table->reserved_bytes);
  counter_set(&range->address, (uintptr_t)table->start);
  map.tables[map.table_count++] = table;
}

void table_release_rest(struct table *table) {
  size_t rest = table->reserved_bytes - table->committed_bytes;
  if (table->start == NULL || table->unreserved || rest == 0) return;
  table->unreserved = sys_unmap(table->start + table->committed_bytes, rest);
}

static void release(struct table *table) {
  if (table->start != NULL) sys_unmap(table->start, table->reserved_bytes);
  table->start = NULL;
}

/* Reserves a zone of `pages` with its arrays. Under a limit the heap's own address space is not reserved, only looked
 * for: the limit counts reserved space, too. */
static bool reserve_zone(size_t pages, bool limited) {
  size_t heap_bytes = pages * PAGE_BYTES + CHUNK_BYTES; /* the last to begin at a whole chunk */
  map.kind = table_reserve(pages * sizeof zone.kind[0], "snug page kinds");
  map.owner = table_reserve(pages * sizeof zone.owner[0], "snug page owners");
  map.free_bits = table_reserve(pages / 8, "snug free pages");
  map.dirty_bits = table_reserve(pages / 8, "snug dirty pages");
  map.aged_bits = table_reserve(pages / 8, "snug aged pages");
  map.heap = (struct table){sys_reserve(limited ? CHUNK_BYTES : heap_bytes), heap_bytes, 0, limited};
  if (map.kind.start != NULL && map.owner.start != NULL && map.free_bits.start != NULL &&
      map.dirty_bits.start != NULL && map.aged_bits.start != NULL && map.heap.start != NULL) {
    zone.reserved_pages = pages;
    map.heap_reserved = !limited;
    return true;
  }
  release(&map.kind);
  release(&map.owner);
  release(&map.free_bits);
  release(&map.dirty_bits);
  release(&map.aged_bits);
  if (map.heap.start != NULL) sys_unmap(map.heap.start, limited ? CHUNK_BYTES : heap_bytes);
  map.heap.start = NULL;
  return false;
}

/* Under a limit: a base with free address space above it. The kernel hands out addresses downwards, so the space below
 * the lowest mapping is free; half a limit further down nothing will come in the way soon. */
static void place_limited_heap(size_t heap_bytes) {
  char *probe = map.heap.start;
  sys_unmap(probe, CHUNK_BYTES);
  size_t below = (size_t)probe / 2 < 2 * heap_bytes ? (size_t)probe / 2 : 2 * heap_bytes;
  map.heap.start = (char *)round_down((size_t)probe - below, CHUNK_BYTES);
}

bool map_init(void) {
  zone.page_bytes = sys_page_size_bytes();
  uint64_t limit_bytes = sys_address_space_limit_bytes();
  bool limited = limit_bytes != UINT64_MAX;
  size_t zone_bytes = 256 * GIB;
  while (zone_bytes < 2 * rights_physical_bytes() && zone_bytes < 16384 * GIB) zone_bytes *= 2;
  if (limited && limit_bytes < zone_bytes) zone_bytes = (size_t)limit_bytes;
  for (;; zone_bytes /= 2) {
    zone_bytes = round_down(zone_bytes, CHUNK_BYTES);
    if (zone_bytes < ZONE_MIN_CHUNKS * CHUNK_BYTES) return false;
    if (reserve_zone(zone_bytes / PAGE_BYTES, limited)) break;
  }
  if (limited) {
    place_limited_heap(zone_bytes);
  } else {
    sys_no_huge_pages(map.heap.start, zone_bytes + CHUNK_BYTES); /* docs/decisions/0006 */
    name_mapping(map.heap.start, zone_bytes + CHUNK_BYTES, "snug heap");
  }
  zone.base = (char *)round_up((uintptr_t)map.heap.start, CHUNK_BYTES); /* so that runs can be aligned by their index */
  counter_set(&snug_counters.heap_address, (uintptr_t)zone.base);
  zone.kind = (uint16_t *)map.kind.start;
  zone.owner = (uint32_t *)map.owner.start;
  zone.free_bits = (uint64_t *)map.free_bits.start;
  zone.dirty_bits = (uint64_t *)map.dirty_bits.start;
  zone.aged_bits = (uint64_t *)map.aged_bits.start;
  table_register(&map.kind);
  table_register(&map.owner);
  table_register(&map.free_bits);
  table_register(&map.dirty_bits);
  table_register(&map.aged_bits);
  return true;
}

bool map_heap_is_reserved(void) { return __atomic_load_n(&map.heap_reserved, __ATOMIC_RELAXED); }

void map_release_reservations(void) {
  for (size_t i = 0; i < map.table_count; i++) table_release_rest(map.tables[i]);
  if (zone.base == NULL || !map.heap_reserved) return;
  char *end = page_address(zone.pages), *reserved_end = map.heap.start + map.heap.reserved_bytes;
  size_t before = (size_t)(zone.base - map.heap.start); /* at a whole chunk */
  if (before != 0 && sys_unmap(map.heap.start, before)) {
    map.heap.start += before;
    map.heap.reserved_bytes -= before;
  }
  if (end != reserved_end && sys_unmap(end, (size_t)(reserved_end - end))) {
    __atomic_store_n(&map.heap_reserved, false, __ATOMIC_RELAXED);
  }
}

void map_dump_reservations(bool dumped) {
  for (size_t i = 0; i < map.table_count; i++) {
    struct table *table = map.tables[i];
    size_t rest = table->unreserved ? 0 : table->reserved_bytes - table->committed_bytes;
    map_set_dumped(table->start + table->committed_bytes, rest, dumped);
  }
  if (zone.base == NULL || !map.heap_reserved) return;
  char *end = page_address(zone.pages);
  map_set_dumped(end, (size_t)(map.heap.start + map.heap.reserved_bytes - end), dumped);
  map_set_dumped(map.heap.start, (size_t)(zone.base - map.heap.start), dumped);
}

void map_apply_options(void) {
  lock_take(&map.lock, RANK_MAP);
  map_dump_reservations(false);
  lock_give(&map.lock, RANK_MAP);
  if (options.thp == THP_ALWAYS && zone.base != NULL && map.heap_reserved)
    sys_huge_pages(zone.base, zone.reserved_pages * PAGE_BYTES);
}

/* The map lock is held. */
static bool make_writable_up_to(size_t pages) {
  size_t before = map.writable_pages;
  if (pages <= before) return true;
  map_set_dumped(page_address(before), (pages - before) * PAGE_BYTES, true);
  if (!sys_commit(page_address(before), (pages - before) * PAGE_BYTES)) return false;
  __atomic_store_n(&map.writable_pages, pages, __ATOMIC_RELAXED);
  return true;
}

/* Makes the heap up to `pages` usable, with its arrays first (M1). */
static bool commit_zone(size_t pages) {
  ASSERT(pages > zone.pages && pages <= zone.reserved_pages);
  if (!table_commit(&map.kind, pages * sizeof zone.kind[0])) return false;
  if (!table_commit(&map.owner, pages * sizeof zone.owner[0])) return false;
  if (!table_commit(&map.free_bits, pages / 8) || !table_commit(&map.dirty_bits, pages / 8) ||
      !table_commit(&map.aged_bits, pages / 8)) {
    return false;
  }
  if (map.heap_reserved) return make_writable_up_to(pages == CHUNK_PAGES ? FIRST_PAGES : pages);
  if (!make_writable_up_to(zone.pages)) return false;
  char *start = page_address(zone.pages);
  size_t bytes = (pages - zone.pages) * PAGE_BYTES;
  if (!sys_map_at(start, bytes)) return false;
  sys_no_huge_pages(start, bytes);
  __atomic_store_n(&map.writable_pages, pages, __ATOMIC_RELAXED);
  return true;
}

bool map_reach(size_t pages) {
  size_t writable_pages = __atomic_load_n(&map.writable_pages, __ATOMIC_RELAXED);
  if (likely(pages <= writable_pages)) return true;
  lock_take(&map.lock, RANK_MAP);
  size_t wanted = FIRST_PAGES;
  while (wanted < pages) wanted *= 2;
  bool done = make_writable_up_to(wanted < zone.pages ? wanted : zone.pages);
  lock_give(&map.lock, RANK_MAP);
  return done;
}

size_t map_grow(size_t pages) {
  lock_take(&map.lock, RANK_MAP);
  size_t chunks = (pages + CHUNK_PAGES - 1) / CHUNK_PAGES;
  size_t ahead = zone.pages / CHUNK_PAGES / 8; /* grow an eighth at once, at most 64 MiB */
  if (ahead > GROW_CHUNKS_MAX) ahead = GROW_CHUNKS_MAX;
  size_t result = 0;
  for (size_t count = chunks > ahead ? chunks : ahead; result == 0; count = chunks) {
    size_t wanted = zone.pages + count * CHUNK_PAGES;
    if (zone.base != NULL && wanted <= zone.reserved_pages && commit_zone(wanted)) {
      __atomic_store_n(&zone.pages, wanted, __ATOMIC_RELEASE);
      result = wanted;
    }
    if (count == chunks) break;
  }
  lock_give(&map.lock, RANK_MAP);
  return result;
}

/* Space that is made unwritable only stays charged to the process where the system allows no more than it has
 * (vm.overcommit_memory=2): so it is reserved anew. What else is said of the heap is said again, and the kernel makes
 * one mapping of it and what is reserved beyond. Where the process has no mapping left for that, the boundary moves. */
static bool release_heap(char *start, size_t bytes) {
  if (!map.heap_reserved) return sys_unmap(start, bytes);
  if (!sys_reserve_again(start, bytes)) return sys_decommit(start, bytes);
  if (options.thp == THP_ALWAYS) {
    sys_huge_pages(start, bytes);
  } else {
    sys_no_huge_pages(start, bytes);
  }
  name_mapping(start, bytes, "snug heap");
  map_set_dumped(start, bytes, false);
  return true;
}

bool map_shrink(size_t pages) {
  ASSERT(pages % CHUNK_PAGES == 0 && pages <= zone.pages);
  lock_take(&map.lock, RANK_MAP);
  char *start = page_address(pages);
  size_t bytes = (zone.pages - pages) * PAGE_BYTES;
  bool done = release_heap(start, bytes);
  if (done) {
    __atomic_store_n(&zone.pages, pages, __ATOMIC_RELEASE);
    if (pages < map.writable_pages) __atomic_store_n(&map.writable_pages, pages, __ATOMIC_RELAXED);
  }
  lock_give(&map.lock, RANK_MAP);
  return done;
}

void map_lock_all(void) { lock_take_in_fork(&map.lock, RANK_MAP); }
void map_unlock_all(void) { lock_give_in_fork(&map.lock, RANK_MAP); }
void map_reset_locks(void) { lock_reset(&map.lock); }
