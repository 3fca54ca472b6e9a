#include "guard.h"

#include <string.h>

#include "cache.h"
#include "fatal.h"
#include "fault.h"
#include "large.h"
#include "lock.h"
#include "maintain.h"
#include "slab.h"
#include "sys.h"

enum {
  SLACK_BYTE = 0xa5,
  FREED_BYTE = 0xf5,
  MARK_LIVE = 0x5a, /* lowest byte of a mark, and first in memory: no NUL, for strings one too long */
  MARK_FREED = 0x0f,
  MARK_BYTES = 8,
  SLACK_MAX_BYTES = UINT16_MAX,
  WAITING_SMALL = 4096, /* slots of up to 1 KiB, 4 MiB at most */
  WAITING_MEDIUM = 256, /* above: 8 MiB at most */
  WAITING_BIG = 64,
  WAITING_BIG_MAX_BYTES = 64 << 20,
  BEHIND_BYTES = 256,  /* checked behind a mapping's block when there could be no fence */
  RECENT = 4,          /* slots taken last, and half as many freed last, which each call looks at */
  FAR_BYTES = 4 << 20, /* before the heap: still a mistake with one of its blocks */
  WATCH_CALLS = 64,    /* blocks from one look at whether faults come to us first to the next */
};

uint32_t guard_arena;

/* Freed blocks that wait before they are used again. Rings of atomic pointers: nothing to lock, nothing to fix in a
 * forked child. */
static struct {
  void *small[WAITING_SMALL], *medium[WAITING_MEDIUM], *big[WAITING_BIG];
  uint64_t small_count, medium_count, big_count;
} waiting;

bool guard_start(void) {
  unsigned arena = arena_reserve();
  if (arena == 0) return false;
  cache_close();
  __atomic_store_n(&guard_arena, arena, __ATOMIC_RELAXED);
  return true;
}

/* Puts p in and returns what comes out for it, or NULL. */
static void *exchange(void **ring, size_t length, uint64_t *count, void *p) {
  uint64_t turn = __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
  return __atomic_exchange_n(&ring[turn % length], p, __ATOMIC_ACQ_REL);
}

static bool is_waiting(const void *p) {
  for (size_t i = 0; i < WAITING_SMALL; i++) {
    if (__atomic_load_n(&waiting.small[i], __ATOMIC_RELAXED) == p) return true;
    if (__atomic_load_n(&waiting.medium[i % WAITING_MEDIUM], __ATOMIC_RELAXED) == p) return true;
  }
  return false;
}

/* The first of `count` bytes that is not `value`; NULL: all are. */
static const char *first_other(const char *start, size_t count, int value) {
  if (count == 0 || (*start == (char)value && memcmp(start, start + 1, count - 1) == 0)) return NULL;
  while (*start == (char)value) start++;
  return start;
}

/* ---- marks ---- */

static uint64_t *mark_of(const char *block, size_t slot_bytes) {
  return (uint64_t *)(uintptr_t)(block + slot_bytes - MARK_BYTES);
}

static uint64_t mix(const void *block) { /* Fibonacci hashing, Knuth vol. 3 */
  return ((uintptr_t)block >> 4) * UINT64_C(0x9e3779b97f4a7c15) & ~UINT64_C(0xff);
}

static uint64_t mark_word(const void *block, unsigned kind, size_t slack_bytes) {
  return mix(block) ^ ((uint64_t)slack_bytes << 8 | kind);
}

/* Whether a word is the block's mark of that kind; stores the slack that it says. */
static bool is_mark(const void *block, uint64_t word, unsigned kind, size_t *slack_bytes) {
  uint64_t rest = word ^ mix(block);
  *slack_bytes = rest >> 8;
  return (rest & 0xff) == kind && *slack_bytes <= SLACK_MAX_BYTES;
}

/* ---- slots ---- */

static bool is_slot(const void *p) {
  size_t page = page_index(p);
  if (page >= zone_pages()) return false;
  unsigned kind = page_kind(page);
  return is_class(kind) && kind_arena(kind) == __atomic_load_n(&guard_arena, __ATOMIC_RELAXED);
}

/* Threads between taking a slot and its mark; atomic. Stays above zero in a child that was forked meanwhile. */
static uint32_t taking;

/* Whether the slot's mark is zero though it must have one. */
static bool lost_mark(const char *block, size_t slot_bytes) {
  if (!slab_is_taken(block) || __atomic_load_n(&taking, __ATOMIC_SEQ_CST) != 0) return false;
  return __atomic_load_n(mark_of(block, slot_bytes), __ATOMIC_SEQ_CST) == 0 && slab_is_taken(block);
}

/* W1 of the slot before, unless the slab begins here: a write before the start of a block, or far beyond the end of the
 * one before, shows there. Marks change by one store, so a neighbour in use does no harm. */
static void check_before(const char *block, size_t slot_bytes) {
  const char *before = block - slot_bytes;
  if (block == slab_first_block(block)) return;
  uint64_t word = __atomic_load_n(mark_of(before, slot_bytes), __ATOMIC_RELAXED);
  size_t slack;
  bool whole = is_mark(before, word, MARK_LIVE, &slack) || is_mark(before, word, MARK_FREED, &slack) ||
               (word == 0 && !lost_mark(before, slot_bytes));
  if (unlikely(!whole)) fatal_underflow(block);
}

/* The mark and the slack of a live slot; ends the process unless all is as it was. */
static size_t checked_slot_size(const char *block, size_t slot_bytes, uint64_t *word) {
  *word = __atomic_load_n(mark_of(block, slot_bytes), __ATOMIC_RELAXED);
  size_t slack;
  if (unlikely(is_mark(block, *word, MARK_FREED, &slack))) fatal_double_free(block);
  if (unlikely(!is_mark(block, *word, MARK_LIVE, &slack) || slack > slot_bytes - MARK_BYTES)) {
    if (is_waiting(block)) fatal_double_free(block);
    fatal_overflow(block, 0); /* how long it was is overwritten, too */
  }
  size_t size_bytes = slot_bytes - MARK_BYTES - slack;
  if (unlikely(first_other(block + size_bytes, slack, SLACK_BYTE) != NULL)) fatal_overflow(block, size_bytes);
  return size_bytes;
}

/* Nobody has written to a freed slot since. Where its memory was given back meanwhile it reads as zero (W2). */
static void check_untouched(const char *block, size_t slot_bytes) {
  const char *end = (const char *)mark_of(block, slot_bytes);
  for (const char *part = block; part < end;) {
    const char *next = (const char *)round_down((uintptr_t)part + PAGE_BYTES, PAGE_BYTES);
    if (next > end) next = end;
    const char *bad = first_other(part, (size_t)(next - part), *part == 0 ? 0 : (char)FREED_BYTE);
    if (unlikely(bad != NULL)) fatal_write_after_free(bad, block);
    part = next;
  }
  uint64_t word = __atomic_load_n(mark_of(block, slot_bytes), __ATOMIC_RELAXED);
  size_t slack;
  if (unlikely(word != 0 && !is_mark(block, word, MARK_FREED, &slack))) fatal_write_after_free(end, block);
}

static void *take_slot(unsigned class_index, size_t size_bytes) {
  void *block = NULL;
  bool contended;
  unsigned arena = __atomic_load_n(&guard_arena, __ATOMIC_RELAXED);
  __atomic_fetch_add(&taking, 1, __ATOMIC_SEQ_CST);
  if (slab_take(arena, class_index, &block, 1, size_bytes, &contended) != 0) {
    size_t slot_bytes = class_shapes[class_index].size_bytes, slack = slot_bytes - MARK_BYTES - size_bytes;
    check_untouched(block, slot_bytes);
    memset((char *)block + size_bytes, SLACK_BYTE, slack);
    __atomic_store_n(mark_of(block, slot_bytes), mark_word(block, MARK_LIVE, slack), __ATOMIC_RELEASE);
  }
  __atomic_fetch_sub(&taking, 1, __ATOMIC_SEQ_CST);
  return block;
}

/* To the slab, after its time of waiting. */
static void put_back(void *block) {
  if (block == NULL) return;
  check_untouched(block, slab_block_size(block));
  slab_give(&block, 1);
}

static void give_slot(char *block) {
  size_t slot_bytes = slab_block_size(block);
  uint64_t word;
  checked_slot_size(block, slot_bytes, &word);
  check_before(block, slot_bytes);
  if (!__atomic_compare_exchange_n(mark_of(block, slot_bytes), &word, mark_word(block, MARK_FREED, 0), false,
                                   __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    fatal_double_free(block); /* by another thread just now */
  }
  __atomic_thread_fence(__ATOMIC_RELEASE);
  memset(block, FREED_BYTE, slot_bytes - MARK_BYTES);
  bool small = slot_bytes <= CLASS_SMALL_MAX_BYTES;
  void *oldest = small ? exchange(waiting.small, WAITING_SMALL, &waiting.small_count, block)
                       : exchange(waiting.medium, WAITING_MEDIUM, &waiting.medium_count, block);
  put_back(oldest);
}

/* ---- what was taken or freed last ---- */

static void *recent[RECENT]; /* atomic: slots, whatever became of them */
static uint64_t recent_count;

/* Ends the process if the slot is live and somebody wrote beyond its end. Nobody takes it while its class is locked,
 * and its mark changes before it is filled by a free. */
static void check_recent_slot(const char *slot) {
  struct lock *held = slab_lock_taken(slot);
  if (held == NULL) return;
  const char *wrong = NULL;
  size_t slot_bytes = is_slot(slot) ? class_shapes[kind_class(page_kind(page_index(slot)))].size_bytes : 0, slack = 0;
  if (slot_bytes != 0) {
    uint64_t *mark = mark_of(slot, slot_bytes), word = __atomic_load_n(mark, __ATOMIC_ACQUIRE);
    if (is_mark(slot, word, MARK_LIVE, &slack)) {
      wrong = first_other((const char *)mark - slack, slack, SLACK_BYTE);
      __atomic_thread_fence(__ATOMIC_ACQUIRE);
      if (__atomic_load_n(mark, __ATOMIC_RELAXED) != word) wrong = NULL; /* freed just now */
    } else if (!is_mark(slot, word, MARK_FREED, &slack)) {
      bool overwritten = (word != 0 || lost_mark(slot, slot_bytes)) && !is_waiting(slot);
      wrong = overwritten ? (const char *)mark : NULL;
      slack = slot_bytes - MARK_BYTES; /* nobody knows */
    }
  }
  lock_give(held, RANK_CLASS);
  if (unlikely(wrong != NULL)) fatal_overflow(slot, slot_bytes - MARK_BYTES - slack);
}

/* The slots that were freed last; each is nobody else's meanwhile. */
static void check_last_freed(void **ring, size_t length, const uint64_t *count) {
  uint64_t turn = __atomic_load_n(count, __ATOMIC_RELAXED);
  for (uint64_t i = 1; i <= RECENT / 2; i++) {
    void **place = &ring[(turn - i) % length], *slot = __atomic_exchange_n(place, NULL, __ATOMIC_ACQ_REL);
    if (slot == NULL) continue;
    check_untouched(slot, slab_block_size(slot));
    void *none = NULL;
    if (!__atomic_compare_exchange_n(place, &none, slot, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) put_back(slot);
  }
}

static void note_recent(void *slot) {
  uint64_t turn = __atomic_fetch_add(&recent_count, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&recent[turn % RECENT], slot, __ATOMIC_RELAXED);
}

static void check_recent(void) {
  for (size_t i = 0; i < RECENT; i++) {
    const char *slot = __atomic_load_n(&recent[i], __ATOMIC_RELAXED);
    if (slot != NULL) check_recent_slot(slot);
  }
  check_last_freed(waiting.small, WAITING_SMALL, &waiting.small_count);
  check_last_freed(waiting.medium, WAITING_MEDIUM, &waiting.medium_count);
}

/* ---- mappings ---- */

/* At the start of a mapping. The block is `distance` further on, up to the rest of a page. */
struct header {
  uint64_t mark; /* of the block; atomic: live, freed */
  char *block;
  size_t size_bytes;
  size_t distance;
  size_t data_bytes; /* whole pages, the block at their end */
  bool fenced;
};

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static struct header *header_at(void *start, const void *block) {
  struct header *header = start;
  size_t slack;
  if (block != NULL && header->block != block) return NULL;
  bool live = is_mark(header->block, header->mark, MARK_LIVE, &slack);
  return live || is_mark(header->block, header->mark, MARK_FREED, &slack) ? header : NULL;
}

/* The header of the block that starts at p, or NULL. An alignment of more than a page puts it further away. */
static struct header *header_of(const void *p, bool amid) {
  uintptr_t page = round_down((uintptr_t)p, zone.page_bytes);
  for (uintptr_t distance = zone.page_bytes; distance != 0 && distance < page; distance *= 2) {
    void *start = (void *)(page - distance);
    size_t mapped_bytes = amid ? large_size_amid(start) : large_size(start);
    struct header *header = mapped_bytes != 0 ? header_at(start, p) : NULL;
    if (header != NULL) return header;
  }
  return NULL;
}

/* How much before the start of a block is checked. */
static size_t front_bytes(const char *start, const char *block) {
  size_t bytes = (size_t)(block - start) - sizeof(struct header);
  return bytes < zone.page_bytes ? bytes : zone.page_bytes;
}

static void *take_mapping(size_t alignment, size_t size_bytes, bool *clean) {
  size_t page_bytes = zone.page_bytes, distance = larger(alignment, page_bytes), length_bytes = larger(size_bytes, 1);
  size_t data_bytes = round_up(length_bytes, page_bytes), total = distance + data_bytes + page_bytes;
  char *start = large_take(total, alignment, clean);
  if (start == NULL) return NULL;
  char *end = start + distance + data_bytes, *block = start + distance;
  if (alignment <= page_bytes) block = (char *)round_down((uintptr_t)end - length_bytes, larger(alignment, 16));
  struct header *header = (struct header *)start;
  memset(block - front_bytes(start, block), SLACK_BYTE, front_bytes(start, block));
  memset(block + size_bytes, SLACK_BYTE, (size_t)(end - block) - size_bytes);
  sys_purge(end, page_bytes);
  bool fenced = sys_decommit(end, page_bytes);
  if (!fenced) memset(end, SLACK_BYTE, BEHIND_BYTES);
  *header = (struct header){mark_word(block, MARK_LIVE, 0), block, size_bytes, distance, data_bytes, fenced};
  sys_make_read_only(start, distance);
  return block;
}

/* The length of a live block; ends the process unless all around it is as it was. */
static size_t checked_mapping_size(const struct header *header, uint64_t *mark) {
  const char *block = header->block, *end = (const char *)header + header->distance + header->data_bytes;
  size_t slack, front = front_bytes((const char *)header, block);
  *mark = __atomic_load_n(&header->mark, __ATOMIC_RELAXED);
  if (unlikely(is_mark(block, *mark, MARK_FREED, &slack))) fatal_double_free(block);
  if (unlikely(first_other(block - front, front, SLACK_BYTE) != NULL)) fatal_underflow(block);
  size_t behind = (size_t)(end - block) - header->size_bytes + (header->fenced ? 0 : BEHIND_BYTES);
  if (unlikely(first_other(block + header->size_bytes, behind, SLACK_BYTE) != NULL))
    fatal_overflow(block, header->size_bytes);
  return header->size_bytes;
}

static void release_mapping(struct header *header) {
  char *data = (char *)header + header->distance;
  /* The kernel may refuse what splits a mapping, and then what joins it, too: it is lost, and holds one page. */
  if (!sys_commit(data, header->data_bytes + zone.page_bytes)) return;
  header->mark = 0;
  large_give(header);
}

static void give_mapping(struct header *header) {
  uint64_t mark;
  checked_mapping_size(header, &mark);
  if (!sys_commit(header, header->distance)) return; /* lost, as in release_mapping */
  if (!__atomic_compare_exchange_n(&header->mark, &mark, mark_word(header->block, MARK_FREED, 0), false,
                                   __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    fatal_double_free(header->block); /* by another thread just now */
  }
  if (header->data_bytes <= WAITING_BIG_MAX_BYTES) {
    char *data = (char *)header + header->distance;
    sys_purge(data, header->data_bytes);
    sys_decommit(data, header->data_bytes);
    header = exchange(waiting.big, WAITING_BIG, &waiting.big_count, header);
  }
  if (header != NULL) release_mapping(header);
}

/* ---- both ---- */

/* The class of a block and its mark, of which each slot lies at a multiple of the alignment; CLASS_COUNT: none. */
static unsigned class_with_mark(size_t alignment, size_t size_bytes) {
  if (size_bytes > CLASS_MAX_BYTES - MARK_BYTES || alignment > PAGE_BYTES) return CLASS_COUNT;
  unsigned class_index = class_of(size_bytes + MARK_BYTES);
  if (alignment <= 16) return class_index;
  while (class_index < CLASS_COUNT && class_shapes[class_index].size_bytes % alignment != 0) class_index++;
  return class_index;
}

static void *take_guarded(size_t alignment, size_t size_bytes, bool *clean) {
  unsigned class_index = class_with_mark(alignment, size_bytes);
  void *block = class_index < CLASS_COUNT ? take_slot(class_index, size_bytes) : NULL;
  if (block == NULL) return take_mapping(alignment, size_bytes, clean);
  note_recent(block);
  return block;
}

/* ---- faults ---- */

/* A live slot that begins in the page, the last or the first; NULL: none does. */
static const char *live_slot_in(size_t page, bool last, size_t *size_bytes) {
  const char *at = page_address(page);
  if (!is_slot(at)) return NULL;
  const struct class_shape *shape = &class_shapes[kind_class(page_kind(page))];
  const char *first = slab_first_block(at);
  size_t from = ((size_t)(at - first) + shape->size_bytes - 1) / shape->size_bytes;
  size_t end = ((size_t)(at - first) + PAGE_BYTES + shape->size_bytes - 1) / shape->size_bytes;
  if (end > shape->slots) end = shape->slots;
  for (size_t i = from; i < end; i++) {
    const char *slot = first + (last ? from + end - 1 - i : i) * shape->size_bytes;
    size_t slack;
    if (!is_mark(slot, *mark_of(slot, shape->size_bytes), MARK_LIVE, &slack)) continue;
    *size_bytes = shape->size_bytes - MARK_BYTES - slack;
    return slot;
  }
  return NULL;
}

/* The last live slot below an address beyond all pages in use, or the first one above one before them; else NULL. */
static const char *slot_near(const char *at, size_t *size_bytes) {
  size_t top = pages_top(), reserved_bytes = zone.reserved_pages * PAGE_BYTES;
  bool before = at < zone.base && (size_t)(zone.base - at) <= FAR_BYTES;
  if (!before && ((size_t)(at - zone.base) < top * PAGE_BYTES || (size_t)(at - zone.base) >= reserved_bytes))
    return NULL;
  const char *slot = NULL;
  for (size_t i = 0; i < top && slot == NULL; i++) slot = live_slot_in(before ? i : top - 1 - i, !before, size_bytes);
  return slot;
}

/* Reports what the program touched, if it is a page before or behind a block, or what a freed one left. */
static void look_at_guarded(const void *address, const void *context) {
  if (cache_thread_is_inside()) return; /* our locks may be this thread's */
  const char *at = address, *access = sys_kind_of_access(context), *block;
  size_t size_bytes, slack;
  cache_slow_path_begins();
  const char *start = large_block_around(at);
  struct header *header = start != NULL ? header_at((void *)(uintptr_t)start, NULL) : NULL;
  bool freed = header != NULL && is_mark(header->block, header->mark, MARK_FREED, &slack);
  block = header != NULL ? header->block : start == NULL ? slot_near(at, &size_bytes) : NULL;
  if (header != NULL) size_bytes = header->size_bytes;
  if (block == NULL) {
    /* no business of ours */
  } else if (at < block) {
    tell_underrun(access, at, block, size_bytes);
  } else if (at >= block + size_bytes) {
    tell_overrun(access, at, block, size_bytes);
  } else if (freed) {
    tell_use_after_free(access, at, block, size_bytes);
  }
  cache_slow_path_ends();
}

/* The program may have set a handler since. */
static void watch_faults(void) {
  static uint32_t calls; /* atomic */
  if (!SNUG_PREFIXED && __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % WATCH_CALLS == 0)
    fault_watch(look_at_guarded);
}

/* ---- all ---- */

void guard_end_waits(void) {
  for (size_t i = 0; i < WAITING_SMALL; i++)
    put_back(exchange(waiting.small, WAITING_SMALL, &waiting.small_count, NULL));
  for (size_t i = 0; i < WAITING_MEDIUM; i++)
    put_back(exchange(waiting.medium, WAITING_MEDIUM, &waiting.medium_count, NULL));
  for (size_t i = 0; i < WAITING_BIG; i++) {
    struct header *header = exchange(waiting.big, WAITING_BIG, &waiting.big_count, NULL);
    if (header != NULL) release_mapping(header);
  }
}

void *guard_take(size_t alignment, size_t size_bytes, bool *clean) {
  *clean = false;
  if (size_bytes > PTRDIFF_MAX / 2 || alignment > PTRDIFF_MAX / 2) return NULL;
  cache_slow_path_begins();
  watch_faults();
  check_recent();
  void *block = take_guarded(alignment, size_bytes, clean);
  if (unlikely(block == NULL)) {
    guard_end_waits();
    uint64_t left_bytes;
    bool purged = purge_for_request(this_thread.own, size_bytes, &left_bytes);
    *clean = false; /* a slot does not say */
    block = take_guarded(alignment, size_bytes, clean);
    if (block == NULL && purged) purge_served_nothing(left_bytes);
  }
  maintain(1);
  cache_slow_path_ends();
  return block;
}

bool guard_give(void *p) {
  struct header *header = NULL;
  cache_slow_path_begins();
  check_recent();
  bool slot = is_slot(p);
  if (slot) {
    give_slot(p);
  } else {
    header = page_index(p) >= zone_pages() ? header_of(p, false) : NULL;
    if (header != NULL) give_mapping(header);
  }
  if (slot || header != NULL) maintain(1);
  cache_slow_path_ends();
  return slot || header != NULL;
}

bool guard_size(const void *p, size_t *size_bytes) {
  uint64_t mark;
  if (is_slot(p)) {
    *size_bytes = checked_slot_size(p, slab_block_size(p), &mark);
    return true;
  }
  bool amid = cache_thread_is_inside();
  cache_slow_path_begins();
  struct header *header = page_index(p) >= zone_pages() ? header_of(p, amid) : NULL;
  if (header != NULL) *size_bytes = checked_mapping_size(header, &mark);
  cache_slow_path_ends();
  return header != NULL;
}

void *guard_block_around(const void *p, size_t *size_bytes) {
  void *start = large_block_around(p);
  struct header *header = start != NULL ? header_at(start, NULL) : NULL;
  if (header == NULL || (const char *)p < header->block || p == header->block) return NULL;
  *size_bytes = header->size_bytes;
  return header->block;
}
