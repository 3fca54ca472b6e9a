#include "aside.h"

#include "bits.h"
#include "cache.h"
#include "fatal.h"
#include "map.h"
#include "sys.h"

enum {
  ORDERS = 40,
  ORDER_MIN = 5,
  PURGE_MIN_ORDER = 16, /* the memory of longer free pieces goes back */
  PIECE_LIVE = 0x6576696c,
  PIECE_FREE = 0x65657266,
};

#define RANGE_BYTES (UINT64_C(16) << 30)
#define RANGE_MIN_BYTES (UINT64_C(1) << 20)
#define ROOM_MIN_BYTES ((size_t)16 << 20) /* of a process that limits its address space */

struct aside_header {
  struct aside_header *piece; /* where the piece begins; there, while it is free, the next free one */
  uint32_t order;
  uint32_t state;
};
_Static_assert(sizeof(struct aside_header) == 16, "blocks are aligned behind it");

struct aside_range aside_range;

static struct {
  struct table table;
  size_t used; /* bytes of the range */
  uint32_t busy;
  struct aside_header *free[ORDERS];
} aside;

static __thread uint32_t depth FIXED_TLS; /* of slow paths that are not whole; 0: none */
static __thread void *kept FIXED_TLS;     /* each begins with the address of the next */

/* ---- begin and end ---- */

void aside_after_fork(void) {
  if (aside.busy != 0) { /* a handler interrupted this module, too, or another thread is here */
    for (size_t i = 0; i < ORDERS; i++) aside.free[i] = NULL;
    aside.busy = 0;
  }
  if (!cache_thread_is_inside() || aside_is_begun_slow()) return;
  for (uint64_t bytes = RANGE_BYTES; aside_range.start == NULL && bytes >= RANGE_MIN_BYTES; bytes /= 2) {
    aside.table = table_reserve(bytes, "snug aside");
    if (aside.table.start == NULL) continue;
    /* Where there is little address space, the rest of the process needs more of it. */
    size_t own_bytes = bytes < RANGE_BYTES ? bytes / 4 : bytes;
    if (own_bytes < bytes && sys_unmap(aside.table.start + own_bytes, bytes - own_bytes)) {
      aside.table.reserved_bytes = own_bytes;
    }
    aside_range.bytes = aside.table.reserved_bytes;
    aside_range.start = aside.table.start;
  }
  depth = this_thread.inside;
}

/* Other blocks may come to lie where it ended: it grows no more, and keeps room for a while. */
void aside_release_reservations(void) {
  if (aside_range.start == NULL || aside.table.unreserved) return;
  size_t room = 2 * aside.used > ROOM_MIN_BYTES ? 2 * aside.used : ROOM_MIN_BYTES;
  table_commit(&aside.table, room < aside_range.bytes ? room : aside_range.bytes);
  aside_range.bytes = aside.table.committed_bytes;
  table_release_rest(&aside.table);
}

bool aside_is_begun_slow(void) {
  if (depth == 0) return false;
  if (this_thread.inside >= depth) return true;
  depth = 0;
  return false;
}

/* ---- pieces ---- */

static void pieces_lock(void) {
  while (__atomic_exchange_n(&aside.busy, 1, __ATOMIC_ACQUIRE) != 0) sys_cpu_relax();
}

static void pieces_unlock(void) { __atomic_store_n(&aside.busy, 0, __ATOMIC_RELEASE); }

static struct aside_header *take_piece(unsigned order) {
  struct aside_header *piece = aside.free[order];
  if (piece != NULL) {
    aside.free[order] = piece->piece;
    return piece;
  }
  size_t bytes = (size_t)1 << order;
  size_t start = __atomic_fetch_add(&aside.used, bytes, __ATOMIC_RELAXED);
  if (bytes <= aside_range.bytes && start <= aside_range.bytes - bytes && table_commit(&aside.table, start + bytes)) {
    return (struct aside_header *)(aside.table.start + start);
  }
  __atomic_fetch_sub(&aside.used, bytes, __ATOMIC_RELAXED);
  return NULL;
}

void *aside_take(size_t alignment, size_t size_bytes) {
  if (alignment < 16) alignment = 16;
  size_t whole_bytes = size_bytes + sizeof(struct aside_header) + (alignment > 16 ? alignment : 0);
  if (size_bytes > PTRDIFF_MAX / 2 || alignment > PTRDIFF_MAX / 4) return NULL;
  unsigned order = ORDER_MIN;
  while (order < ORDERS && ((size_t)1 << order) < whole_bytes) order++;
  if (order == ORDERS) return NULL;
  pieces_lock();
  struct aside_header *piece = take_piece(order);
  pieces_unlock();
  if (piece == NULL) return NULL;
  char *block = (char *)round_up((uintptr_t)(piece + 1), alignment);
  struct aside_header *header = (struct aside_header *)block - 1;
  *header = (struct aside_header){piece, order, PIECE_LIVE};
  return block;
}

/* The header of a block in the range; with a PIECE_FREE state when it was freed. */
static struct aside_header *aside_header_of(const void *p) {
  struct aside_header *header = (struct aside_header *)p - 1;
  bool may_be = ((uintptr_t)p & 15) == 0 && (const char *)p < aside.table.start + aside.table.committed_bytes &&
                (const char *)header >= aside.table.start;
  if (!may_be || (header->state != PIECE_LIVE && header->state != PIECE_FREE)) fatal_foreign_pointer(p);
  return header;
}

void aside_give(void *p) {
  struct aside_header *header = aside_header_of(p), *piece = header->piece;
  if (header->state == PIECE_FREE) fatal_double_free(p);
  unsigned order = header->order;
  header->state = PIECE_FREE;
  if (order >= PURGE_MIN_ORDER) {
    char *end_of_piece = (char *)piece + ((size_t)1 << order);
    char *first = (char *)round_up((uintptr_t)p, zone.page_bytes);
    char *last = (char *)round_down((uintptr_t)end_of_piece, zone.page_bytes);
    if (first < last) sys_purge(first, (size_t)(last - first));
  }
  pieces_lock();
  piece->piece = aside.free[order];
  aside.free[order] = piece;
  pieces_unlock();
}

size_t aside_size(const void *p) {
  struct aside_header *header = aside_header_of(p);
  if (header->state == PIECE_FREE) fatal_double_free(p);
  return (size_t)((char *)header->piece + ((size_t)1 << header->order) - (const char *)p);
}

/* ---- blocks of the heap ---- */

void aside_keep(void *block) {
  *(void **)block = kept;
  kept = block;
}

void *aside_next_kept(void) {
  void *block = kept;
  if (block != NULL) kept = *(void **)block;
  return block;
}
