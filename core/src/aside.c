#include "aside.h"

#include "bits.h"
#include "fatal.h"
#include "map.h"
#include "sys.h"

enum {
  ORDERS = 40,
  ORDER_MIN = 5,
  PURGE_MIN_ORDER = 16, /* the memory of longer free pieces goes back */
  PIECE_LIVE = 0x6576696c,
  PIECE_FREE = 0x65657266,
  LOST_RACE_SPINS = 1000,
  COMMIT_BYTES = 64 * 1024, /* whole pages on every system: at start nobody knows how long they are here */
  APART_BYTES = 64 * 1024,  /* the same: from what lies before the range, a large block perhaps */
};

#define RANGE_BYTES (UINT64_C(1) << 30) /* reserved, which counts as address space */
#define RANGE_MIN_BYTES (UINT64_C(1) << 20)
#define ROOM_MIN_BYTES ((size_t)16 << 20) /* of a process that limits its address space */

struct aside_header {
  struct aside_header *piece; /* where the piece begins; there, while it is free, the next free one */
  uint32_t order;
  uint32_t state;
};
_Static_assert(sizeof(struct aside_header) == 16, "blocks are aligned behind it");
_Static_assert(RANGE_BYTES >> ORDER_MIN < UINT32_MAX, "places and turns share a word");

struct aside_range aside_range;

static struct {
  char *start;            /* atomic: of who made the range, a moment before the others see it */
  size_t used, committed; /* atomic: bytes of the range */
  uint64_t free[ORDERS];  /* atomic: turn << 32 | place of the first free piece */
} aside;

/* ---- begin and end ---- */

/* Reserves a range. Where there is little address space, the rest of the process needs more of it, and where it is
 * limited, or locked, the range counts. */
static char *reserve(uint64_t *bytes) {
  uint64_t most = map_heap_is_reserved() ? RANGE_BYTES : ROOM_MIN_BYTES;
  for (uint64_t wanted = most; wanted >= RANGE_MIN_BYTES; wanted /= 2) {
    char *start = sys_reserve(wanted);
    if (start == NULL) continue;
    bool keeps_all = wanted == most || !sys_unmap(start + wanted / 4, wanted - wanted / 4);
    *bytes = (keeps_all ? wanted : wanted / 4) - APART_BYTES;
    map_try_set_dumped(start, *bytes + APART_BYTES, false);
    return start + APART_BYTES;
  }
  return NULL;
}

/* Others may make it at the same time: a handler within this one, too. */
static bool make_range(void) {
  uint64_t bytes = 0;
  char *none = NULL, *start = reserve(&bytes);
  if (start == NULL) return false;
  if (__atomic_compare_exchange_n(&aside.start, &none, start, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&aside_range.bytes, bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&aside_range.start, start, __ATOMIC_RELEASE);
    return true;
  }
  sys_unmap(start - APART_BYTES, bytes + APART_BYTES);
  for (int i = 0; i < LOST_RACE_SPINS && __atomic_load_n(&aside_range.start, __ATOMIC_ACQUIRE) == NULL; i++)
    sys_cpu_relax();
  return __atomic_load_n(&aside_range.start, __ATOMIC_ACQUIRE) != NULL;
}

static size_t range_bytes(void) { return __atomic_load_n(&aside_range.bytes, __ATOMIC_RELAXED); }

/* Makes the range usable up to so many bytes; whoever does the same meanwhile does no harm. */
static bool commit(size_t bytes) {
  size_t committed = __atomic_load_n(&aside.committed, __ATOMIC_RELAXED);
  if (bytes <= committed) return true;
  size_t wanted = round_up(bytes + committed / 4, COMMIT_BYTES), end = range_bytes();
  if (wanted > end) wanted = end;
  if (bytes > end) return false;
  map_try_set_dumped(aside.start + committed, wanted - committed, true);
  if (!sys_commit(aside.start + committed, wanted - committed)) return false;
  while (committed < wanted &&
         !__atomic_compare_exchange_n(&aside.committed, &committed, wanted, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
  return true;
}

/* Other blocks may come to lie where it ended: it grows no more, and keeps room for a while. */
void aside_release_reservations(void) {
  if (aside_range.start == NULL) return;
  size_t used = __atomic_load_n(&aside.used, __ATOMIC_RELAXED), before = range_bytes();
  size_t room = round_up(2 * used > ROOM_MIN_BYTES ? 2 * used : ROOM_MIN_BYTES, zone.page_bytes);
  if (room >= before) return;
  __atomic_store_n(&aside_range.bytes, room, __ATOMIC_RELAXED);
  sys_unmap(aside_range.start + room, before - room);
}

/* ---- pieces ---- */

static struct aside_header *piece_at(uint32_t place) {
  return place != 0 ? (struct aside_header *)(aside.start + ((size_t)(place - 1) << ORDER_MIN)) : NULL;
}

static uint32_t place_of(const struct aside_header *piece) {
  return piece != NULL ? (uint32_t)((size_t)((const char *)piece - aside.start) >> ORDER_MIN) + 1 : 0;
}

/* Replaces the first free piece unless another one did. */
static bool change_first(unsigned order, uint64_t *seen, const struct aside_header *piece) {
  uint64_t next = (((*seen >> 32) + 1) << 32) | place_of(piece);
  return __atomic_compare_exchange_n(&aside.free[order], seen, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Whether a piece of that order can begin there: a header may have been written over, from the block before it. */
static bool may_begin(const struct aside_header *piece, unsigned order) {
  size_t offset = (size_t)((const char *)piece - aside.start),
         committed = __atomic_load_n(&aside.committed, __ATOMIC_ACQUIRE);
  if (order < ORDER_MIN || order >= ORDERS || offset >= committed || offset % (1 << ORDER_MIN) != 0) return false;
  return committed - offset >= (size_t)1 << order;
}

static _Noreturn COLD void fatal_header(const void *header) {
  fatal_corrupted("header of a block that a signal handler allocated", header);
}

/* What it reads of a piece that another one took meanwhile is not used: the turn has changed. */
static struct aside_header *take_free(unsigned order) {
  uint64_t first = __atomic_load_n(&aside.free[order], __ATOMIC_ACQUIRE);
  for (;;) {
    struct aside_header *piece = piece_at((uint32_t)first), *next;
    if (piece == NULL) return NULL;
    next = __atomic_load_n(&piece->piece, __ATOMIC_RELAXED);
    if (!change_first(order, &first, next)) continue;
    if (next != NULL && !may_begin(next, order)) fatal_header(piece);
    return piece;
  }
}

static void put_free(struct aside_header *piece, unsigned order) {
  uint64_t first = __atomic_load_n(&aside.free[order], __ATOMIC_ACQUIRE);
  do __atomic_store_n(&piece->piece, piece_at((uint32_t)first), __ATOMIC_RELAXED);
  while (!change_first(order, &first, piece));
}

static struct aside_header *take_new(unsigned order) {
  size_t bytes = (size_t)1 << order, end = range_bytes();
  size_t start = __atomic_fetch_add(&aside.used, bytes, __ATOMIC_RELAXED);
  if (bytes <= end && start <= end - bytes && commit(start + bytes))
    return (struct aside_header *)(aside.start + start);
  size_t used = start + bytes; /* given back, unless others have come to lie behind it */
  __atomic_compare_exchange_n(&aside.used, &used, start, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return NULL;
}

void *aside_take(size_t alignment, size_t size_bytes) {
  if (alignment < 16) alignment = 16;
  size_t whole_bytes = size_bytes + sizeof(struct aside_header) + (alignment > 16 ? alignment : 0);
  if (size_bytes > PTRDIFF_MAX / 2 || alignment > PTRDIFF_MAX / 4) return NULL;
  unsigned order = ORDER_MIN;
  while (order < ORDERS && ((size_t)1 << order) < whole_bytes) order++;
  if (order == ORDERS || (__atomic_load_n(&aside_range.start, __ATOMIC_ACQUIRE) == NULL && !make_range())) return NULL;
  struct aside_header *piece = take_free(order);
  if (piece == NULL) piece = take_new(order);
  if (piece == NULL) return NULL;
  char *block = (char *)round_up((uintptr_t)(piece + 1), alignment);
  struct aside_header *header = (struct aside_header *)block - 1;
  *header = (struct aside_header){piece, order, PIECE_LIVE};
  return block;
}

/* The header of a live block in the range; ends the process where there is none. */
static struct aside_header *aside_header_of(const void *p) {
  struct aside_header *header = (struct aside_header *)p - 1;
  const char *end = aside.start + __atomic_load_n(&aside.committed, __ATOMIC_ACQUIRE);
  bool may_be = ((uintptr_t)p & 15) == 0 && (const char *)p < end && (const char *)header >= aside.start;
  if (!may_be || (header->state != PIECE_LIVE && header->state != PIECE_FREE)) fatal_foreign_pointer(p);
  if (header->state == PIECE_FREE) fatal_double_free(p);
  const char *piece = (const char *)header->piece;
  bool is_whole = may_begin(header->piece, header->order) && (const char *)header >= piece &&
                  (size_t)((const char *)p - piece) < (size_t)1 << header->order;
  if (!is_whole) fatal_header(header);
  return header;
}

void aside_give(void *p) {
  struct aside_header *header = aside_header_of(p), *piece = header->piece;
  unsigned order = header->order;
  header->state = PIECE_FREE;
  if (order >= PURGE_MIN_ORDER) {
    char *end_of_piece = (char *)piece + ((size_t)1 << order);
    char *first = (char *)round_up((uintptr_t)p, zone.page_bytes);
    char *last = (char *)round_down((uintptr_t)end_of_piece, zone.page_bytes);
    if (first < last) sys_purge(first, (size_t)(last - first));
  }
  put_free(piece, order);
}

size_t aside_size(const void *p) {
  struct aside_header *header = aside_header_of(p);
  return (size_t)((char *)header->piece + ((size_t)1 << header->order) - (const char *)p);
}

/* ---- blocks of the heap ---- */

/* Stands for a block that can't be written to: itself one of the range. */
struct stand_in {
  void *next, *block;
};

static void keep(void **item) {
  struct thread *thread = &this_thread;
  void *first = __atomic_load_n(&thread->kept, __ATOMIC_RELAXED);
  if (unlikely(first == item)) fatal_double_free(item);
  do *item = first;
  while (!__atomic_compare_exchange_n(&thread->kept, &first, item, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

void aside_keep(void *block, bool may_write) {
  if (may_write) return keep(block);
  struct stand_in *item = aside_take(1, sizeof *item);
  if (item == NULL) return; /* no memory: the block is lost */
  item->block = block;
  keep(&item->next);
}

void *aside_all_kept(void) { return __atomic_exchange_n(&this_thread.kept, NULL, __ATOMIC_RELAXED); }

void *aside_next_kept(void **list) {
  void **item = *list;
  if (item == NULL) return NULL;
  *list = *item;
  if (!aside_holds(item)) return item;
  void *block = ((struct stand_in *)item)->block;
  aside_give(item);
  return block;
}
