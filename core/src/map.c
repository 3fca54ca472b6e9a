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
  GROW_CHUNKS_MAX = 16,  /* 64 MiB: a large heap grows in few system calls */
  SPARE_CHUNKS_MIN = 8,  /* 32 MiB are reserved beyond the zone, */
  SPARE_CHUNKS_MAX = 64, /* of a large one an eighth, up to 256 MiB */
  FIRST_PAGES = 256, /* of the first chunk, twice as many at the next need: a write far beyond a block may then show */
};

struct zone zone __attribute__((aligned(64)));

static struct {
  struct lock lock; /* rank MAP: growth of the zone and of the tables */
  struct table kind, owner, free_bits, dirty_bits, aged_bits;
  char *reserved_end;    /* of the heap, while it is reserved */
  size_t writable_pages; /* of the heap; those beyond, in its first chunk, were not needed yet. Atomic */
  bool heap_reserved;    /* atomic; false: under an address-space limit the heap is mapped as it grows */
  char *free_addresses, *free_addresses_end; /* where tables may be placed: at start, later under the pages lock */
  struct table *tables[TABLES_MAX];
  size_t table_count;
} map;

static void name_mapping(void *start, size_t length_bytes, const char *name) {
  if (rights_have(RIGHT_OTHERS)) sys_name_mapping(start, length_bytes, name);
}

void map_set_dumped(void *start, size_t bytes, bool dumped) {
  if (bytes != 0 && rights_have(RIGHT_OTHERS)) sys_set_dumped(start, bytes, dumped);
}

void map_try_set_dumped(void *start, size_t bytes, bool dumped) {
  if (!lock_try(&map.lock, RANK_MAP)) return;
  map_set_dumped(start, bytes, dumped);
  lock_give(&map.lock, RANK_MAP);
}

/* Among the addresses before the heap nothing is mapped but what tables have committed. */
struct table table_reserve(size_t max_bytes, const char *name) {
  struct table table = {NULL, round_up(max_bytes, zone.page_bytes), 0, false, name};
  if (round_up(table.reserved_bytes, CHUNK_BYTES) <= (size_t)(map.free_addresses_end - map.free_addresses)) {
    table.start = map.free_addresses;
    map.free_addresses += round_up(table.reserved_bytes, CHUNK_BYTES);
    table.unreserved = true;
    return table;
  }
  table.start = sys_reserve(table.reserved_bytes);
  if (table.start != NULL) name_mapping(table.start, table.reserved_bytes, name);
  return table;
}

/* Makes a mapping longer that ends here, as long as nobody else has the addresses behind it. */
static bool lengthen(char *end, size_t more_bytes) {
  size_t page_bytes = zone.page_bytes;
  return sys_remap(end - page_bytes, page_bytes, page_bytes + more_bytes, false) != NULL;
}

static bool commit_more(const struct table *table, size_t more_bytes) {
  char *end = table->start + table->committed_bytes;
  if (!table->unreserved) {
    map_set_dumped(end, more_bytes, true);
    return sys_commit(end, more_bytes);
  }
  if (table->committed_bytes != 0 && lengthen(end, more_bytes)) return true;
  if (!sys_map_at(end, more_bytes)) return false;
  name_mapping(end, more_bytes, table->name);
  return true;
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
  if (!commit_more(table, wanted - table->committed_bytes)) return false;
  table->committed_bytes = wanted;
  return true;
}

void *map_apart(size_t bytes) {
  char *start = sys_map(bytes + 2 * zone.page_bytes);
  if (start == NULL) return NULL;
  sys_decommit(start, zone.page_bytes);
  sys_decommit(start + zone.page_bytes + bytes, zone.page_bytes);
  return start + zone.page_bytes;
}

void map_unmap_apart(void *start, size_t bytes) {
  sys_unmap((char *)start - zone.page_bytes, bytes + 2 * zone.page_bytes);
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
  if (table->start != NULL && !table->unreserved) sys_unmap(table->start, table->reserved_bytes);
  table->start = NULL;
}

static bool reserve_tables(size_t pages) {
  map.kind = table_reserve(pages * sizeof zone.kind[0], "snug page kinds");
  map.owner = table_reserve(pages * sizeof zone.owner[0], "snug page owners");
  map.free_bits = table_reserve(pages / 8, "snug free pages");
  map.dirty_bits = table_reserve(pages / 8, "snug dirty pages");
  map.aged_bits = table_reserve(pages / 8, "snug aged pages");
  return map.kind.start != NULL && map.owner.start != NULL && map.free_bits.start != NULL &&
         map.dirty_bits.start != NULL && map.aged_bits.start != NULL;
}

/* What stays reserved beyond a zone of so many pages. */
static size_t spare_bytes(size_t pages) {
  size_t chunks = pages / CHUNK_PAGES / 8;
  if (chunks < SPARE_CHUNKS_MIN) chunks = SPARE_CHUNKS_MIN;
  return (chunks < SPARE_CHUNKS_MAX ? chunks : SPARE_CHUNKS_MAX) * CHUNK_BYTES;
}

/* The tables need less than three quarters of their addresses: where they begin differs from start to start, so that
 * nobody knows how far from a block they are. */
static size_t tables_shift(size_t zone_bytes) {
  return sys_start_number() % ((zone_bytes / 128 + GIB / 2) / CHUNK_BYTES) * CHUNK_BYTES;
}

/* Finds addresses for the heap, and before them for all tables, far enough from others' that what is mapped later does
 * not come near; then gives nearly all of it back (docs/decisions/0052). */
static bool find_addresses(size_t zone_bytes) {
  size_t margin = round_up(zone_bytes / 8 * 3, CHUNK_BYTES), tables = round_up(zone_bytes / 32 + 2 * GIB, CHUNK_BYTES);
  size_t all_bytes = margin + tables + CHUNK_BYTES + zone_bytes + margin;
  char *all = sys_reserve(all_bytes);
  if (all == NULL) return false;
  zone.base = (char *)round_up((uintptr_t)all + margin + tables, CHUNK_BYTES); /* so runs can be aligned by index */
  map.reserved_end = zone.base + spare_bytes(0);
  if (!sys_unmap(map.reserved_end, (size_t)(all + all_bytes - map.reserved_end))) map.reserved_end = all + all_bytes;
  if (sys_unmap(all, (size_t)(zone.base - all))) {
    map.free_addresses = zone.base - tables + tables_shift(zone_bytes);
    map.free_addresses_end = zone.base;
  }
  return true;
}

/* Under a limit: a base with free address space above it. The kernel hands out addresses downwards, so the space below
 * the lowest mapping is free; half a limit further down nothing will come in the way soon. */
static bool find_limited_addresses(size_t zone_bytes) {
  char *probe = sys_reserve(CHUNK_BYTES);
  if (probe == NULL) return false;
  sys_unmap(probe, CHUNK_BYTES);
  size_t below = (size_t)probe / 2 < 2 * zone_bytes ? (size_t)probe / 2 : 2 * zone_bytes;
  zone.base = (char *)round_down((size_t)probe - below, CHUNK_BYTES);
  return true;
}

/* Under a limit, which counts reserved space, the heap's own addresses are not reserved, only looked for. */
static bool reserve_zone(size_t zone_bytes, bool limited) {
  bool found = limited || find_addresses(zone_bytes);
  if (found && reserve_tables(zone_bytes / PAGE_BYTES) && (!limited || find_limited_addresses(zone_bytes))) {
    zone.reserved_pages = zone_bytes / PAGE_BYTES;
    map.heap_reserved = !limited;
    return true;
  }
  release(&map.kind);
  release(&map.owner);
  release(&map.free_bits);
  release(&map.dirty_bits);
  release(&map.aged_bits);
  if (found && !limited) sys_unmap(zone.base, (size_t)(map.reserved_end - zone.base));
  map.free_addresses = map.free_addresses_end = NULL;
  zone.base = NULL;
  return false;
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
    if (reserve_zone(zone_bytes, limited)) break;
  }
  if (!limited) {
    size_t bytes = (size_t)(map.reserved_end - zone.base);
    sys_no_huge_pages(zone.base, bytes); /* docs/decisions/0006 */
    name_mapping(zone.base, bytes, "snug heap");
  }
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

static bool give_heap_reservation_up(void) {
  char *end = page_address(zone.pages);
  if (!sys_unmap(end, (size_t)(map.reserved_end - end))) return false;
  __atomic_store_n(&map.heap_reserved, false, __ATOMIC_RELAXED);
  return true;
}

void map_release_reservations(void) {
  for (size_t i = 0; i < map.table_count; i++) table_release_rest(map.tables[i]);
  if (zone.base != NULL && map.heap_reserved) give_heap_reservation_up();
}

void map_dump_reservations(bool dumped) {
  for (size_t i = 0; i < map.table_count; i++) {
    struct table *table = map.tables[i];
    size_t rest = table->unreserved ? 0 : table->reserved_bytes - table->committed_bytes;
    map_set_dumped(table->start + table->committed_bytes, rest, dumped);
  }
  if (zone.base == NULL || !map.heap_reserved) return;
  char *end = page_address(zone.pages);
  map_set_dumped(end, (size_t)(map.reserved_end - end), dumped);
}

void map_apply_options(void) {
  lock_take(&map.lock, RANK_MAP);
  map_dump_reservations(false);
  lock_give(&map.lock, RANK_MAP);
  if (options.thp == THP_ALWAYS && zone.base != NULL && map.heap_reserved)
    sys_huge_pages(zone.base, (size_t)(map.reserved_end - zone.base));
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

/* Keeps some addresses reserved beyond the heap, at least a page: what is said of them is said of more (M3). */
static bool reserve_beyond(size_t pages) {
  char *end = page_address(pages);
  if (end < map.reserved_end) return true;
  size_t more_bytes = (size_t)(end - map.reserved_end) + spare_bytes(pages);
  if (!lengthen(map.reserved_end, more_bytes)) return false;
  map.reserved_end += more_bytes;
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
  if (map.heap_reserved && !reserve_beyond(pages) && !give_heap_reservation_up()) return false;
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

/* Of a heap that was much larger. */
static void unmap_beyond_spare(void) {
  char *kept_end = page_address(zone.pages) + spare_bytes(zone.pages);
  if (!map.heap_reserved || kept_end >= map.reserved_end) return;
  if (sys_unmap(kept_end, (size_t)(map.reserved_end - kept_end))) map.reserved_end = kept_end;
}

bool map_shrink(size_t pages) {
  ASSERT(pages % CHUNK_PAGES == 0 && pages <= zone.pages);
  lock_take(&map.lock, RANK_MAP);
  char *start = page_address(pages);
  size_t bytes = (zone.pages - pages) * PAGE_BYTES;
  bool done = release_heap(start, bytes);
  if (done) __atomic_store_n(&zone.pages, pages, __ATOMIC_RELEASE);
  /* A call that is refused may have been done in part (mprotect): then all is made writable again before it is used. */
  if (pages < map.writable_pages && (done || map.heap_reserved))
    __atomic_store_n(&map.writable_pages, pages, __ATOMIC_RELAXED);
  if (done) unmap_beyond_spare();
  lock_give(&map.lock, RANK_MAP);
  return done;
}

void map_lock_all(void) { lock_take_in_fork(&map.lock, RANK_MAP); }
void map_unlock_all(void) { lock_give_in_fork(&map.lock, RANK_MAP); }
void map_reset_locks(void) { lock_reset(&map.lock); }
