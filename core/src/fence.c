#include "fence.h"

#include <string.h>

#include "counters.h"
#include "fatal.h"
#include "fault.h"
#include "lock.h"
#include "map.h"
#include "report.h"
#include "sys.h"

enum { SLOT_MAX_BYTES = 32 << 10, FENCE_SLACK_BYTE = 0xa5, CLAIM_TRIES = 3 };

enum slot_state { SLOT_FREE, SLOT_CHANGING, SLOT_LIVE }; /* changing: one thread has it */

struct slot {
  uint32_t state; /* atomic; O2 */
  uint32_t taken_stack, given_stack;
  bool is_clean; /* its pages read as zero */
  const void *taken_by, *given_by;
  uint64_t given_turn; /* atomic; 0: never used */
  char *block;
  size_t size_bytes;
};

struct fence_range fence_range;

static struct {
  uint32_t state; /* atomic: of the making of all this */
  uint32_t count;
  uint32_t live;  /* atomic */
  uint64_t bytes; /* atomic */
  uint64_t turns; /* atomic: frees ever */
  size_t slot_bytes;
  struct slot *slots;
} fence;

/* ---- places ---- */

static size_t stride_bytes(void) { return fence.slot_bytes + zone.page_bytes; }

static char *slot_start(uint32_t number) {
  return (char *)(fence_range.start + zone.page_bytes + number * stride_bytes());
}

static char *slot_end(uint32_t number) { return slot_start(number) + fence.slot_bytes; }

/* The number of the slot that holds p, which fence_holds, or that ends at the fence with p; of the first fence 0. */
static uint32_t slot_number(const void *p) {
  size_t offset = (uintptr_t)p - fence_range.start;
  return offset < zone.page_bytes ? 0 : (uint32_t)((offset - zone.page_bytes) / stride_bytes());
}

static char *first_page(const struct slot *slot) { return (char *)round_down((uintptr_t)slot->block, zone.page_bytes); }

static bool change_state(struct slot *slot, uint32_t from, uint32_t to) {
  return __atomic_compare_exchange_n(&slot->state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* ---- making ---- */

enum { STATE_NONE_YET, STATE_MAKING, STATE_MADE, STATE_IMPOSSIBLE };

static bool make_slots(uint32_t count) {
  fence.slot_bytes = round_up(SLOT_MAX_BYTES, zone.page_bytes);
  fence.count = count;
  fence.slots = map_apart(round_up(count * sizeof(struct slot), zone.page_bytes));
  size_t bytes = count * stride_bytes() + zone.page_bytes;
  char *start = fence.slots != NULL ? sys_reserve(bytes) : NULL;
  if (start == NULL) return false;
  fence_range.bytes = bytes;
  counter_set(&snug_counters.guard_slots.reserved_bytes, bytes);
  counter_set(&snug_counters.guard_slots.address, (uintptr_t)start);
  __atomic_store_n(&fence_range.start, (uintptr_t)start, __ATOMIC_RELEASE);
  return true;
}

static bool is_made(void) {
  uint32_t none = STATE_NONE_YET;
  if (__atomic_load_n(&fence.state, __ATOMIC_ACQUIRE) == STATE_MADE) return true;
  if (!__atomic_compare_exchange_n(&fence.state, &none, STATE_MAKING, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
    return none == STATE_MADE;
  uint32_t setting = __atomic_load_n(&options.guard_samples, __ATOMIC_RELAXED);
  bool made = make_slots(setting > 1 ? setting : FENCE_SLOTS);
  __atomic_store_n(&fence.state, made ? STATE_MADE : STATE_IMPOSSIBLE, __ATOMIC_RELEASE);
  return made;
}

/* ---- words about a block ---- */

static void say_stack(const struct slot *slot, const char *what, const void *by, uint32_t stack) {
  char line[160];
  struct text text = text_in(line, sizeof line - 1);
  text_string(&text, "the block of ");
  text_number(&text, slot->size_bytes);
  text_string(&text, " bytes at ");
  text_address(&text, slot->block);
  text_string(&text, what);
  text_string(&text, by == lock_self() ? " by this thread:" : " by another thread:");
  report_line(&text);
  report_stack(stack);
}

static void say_history(const struct slot *slot) {
  say_stack(slot, " was allocated", slot->taken_by, slot->taken_stack);
  if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != SLOT_LIVE)
    say_stack(slot, " was freed", slot->given_by, slot->given_stack);
}

static void say_here(const char *words, const void *context) {
  char line[80];
  struct text text = text_in(line, sizeof line - 1);
  text_string(&text, words);
  report_line(&text);
  report_here(context);
}

static const struct slot *explained; /* I1 */

static void explain(void) {
  if (!report_is_own()) return;
  say_history(explained);
  say_here("and this is the call that shows it:", NULL);
  report_end();
}

/* The next of the ways to die tells of this block. Whoever is in a report itself says less. */
static void tell_of(const struct slot *slot) {
  if (!report_begin()) return;
  explained = slot;
  tell_more_by(explain);
}

/* ---- faults ---- */

/* Which slot's block is nearer to an address in the fence between two. */
static uint32_t nearer_slot(const char *address, uint32_t number) {
  uint32_t next = number + 1;
  if (address < slot_end(number) || next >= fence.count) return number;
  const struct slot *after = &fence.slots[next], *before = &fence.slots[number];
  if (after->block == NULL) return number;
  if (before->block == NULL) return next;
  return after->block - address < address - (before->block + before->size_bytes) ? next : number;
}

static void look_at_fault(const void *address, const void *context) {
  if (!fence_holds(address)) return;
  uint32_t number = slot_number(address);
  const struct slot *slot = &fence.slots[number < fence.count ? nearer_slot(address, number) : fence.count - 1];
  const char *block = slot->block, *at = address, *access = sys_kind_of_access(context);
  if (block == NULL) return; /* never used: whatever it is, no block has to do with it */
  bool is_live = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == SLOT_LIVE;
  bool inside = at >= block && at < block + slot->size_bytes;
  if (is_live && inside) return; /* the slot was taken anew in this instant, or the program changed its protection */
  if (!report_begin()) return;
  if (at < block) {
    tell_underrun(access, at, block, slot->size_bytes);
  } else if (inside) {
    tell_use_after_free(access, at, block, slot->size_bytes);
  } else {
    tell_overrun(access, at, block, slot->size_bytes);
  }
  say_history(slot);
  say_here("and this is the access:", context);
  report_end();
}

/* ---- taking ---- */

/* The one that was freed first, or never used. NULL: none. */
static struct slot *oldest_free(void) {
  struct slot *oldest = NULL;
  uint64_t oldest_turn = UINT64_MAX;
  for (uint32_t i = 0; i < fence.count && oldest_turn != 0; i++) {
    struct slot *slot = &fence.slots[i];
    uint64_t turn = __atomic_load_n(&slot->given_turn, __ATOMIC_RELAXED);
    if (turn >= oldest_turn || __atomic_load_n(&slot->state, __ATOMIC_RELAXED) != SLOT_FREE) continue;
    oldest = slot;
    oldest_turn = turn;
  }
  return oldest;
}

static struct slot *claim_slot(void) {
  for (int i = 0; i < CLAIM_TRIES && __atomic_load_n(&fence.live, __ATOMIC_RELAXED) < fence.count; i++) {
    struct slot *slot = oldest_free();
    if (slot == NULL) return NULL;
    if (change_state(slot, SLOT_FREE, SLOT_CHANGING)) return slot;
  }
  return NULL;
}

/* A block that was freed before another began here is known no more. */
static bool place_block(struct slot *slot, size_t alignment, size_t size_bytes) {
  char *end = slot_end((uint32_t)(slot - fence.slots));
  char *block =
      (char *)round_down((uintptr_t)end - (size_bytes != 0 ? size_bytes : 1), alignment > 16 ? alignment : 16);
  char *page = (char *)round_down((uintptr_t)block, zone.page_bytes);
  if (!sys_commit(page, (size_t)(end - page))) return false;
  slot->block = block;
  slot->size_bytes = size_bytes;
  slot->taken_by = lock_self();
  slot->taken_stack = slot->given_stack = 0;
  memset(block + size_bytes, FENCE_SLACK_BYTE, (size_t)(end - block) - size_bytes);
  return true;
}

void *fence_take(size_t alignment, size_t size_bytes, bool *clean) {
  if (SNUG_PREFIXED || size_bytes > SLOT_MAX_BYTES || alignment > PAGE_BYTES || !is_made()) return NULL;
  if (!fault_watch(look_at_fault)) return NULL; /* nobody would say what happened */
  struct slot *slot = claim_slot();
  if (slot == NULL) return NULL;
  if (!place_block(slot, alignment, size_bytes)) {
    change_state(slot, SLOT_CHANGING, SLOT_FREE);
    return NULL;
  }
  *clean = slot->is_clean || __atomic_load_n(&slot->given_turn, __ATOMIC_RELAXED) == 0;
  __atomic_fetch_add(&fence.live, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&fence.bytes, (size_t)(slot_end((uint32_t)(slot - fence.slots)) - first_page(slot)),
                     __ATOMIC_RELAXED);
  change_state(slot, SLOT_CHANGING, SLOT_LIVE);
  return slot->block;
}

void fence_note(const void *block, uint32_t stack) { fence.slots[slot_number(block)].taken_stack = stack; }

/* ---- giving ---- */

/* The live block that begins at p; ends the process where there is none, or somebody wrote between it and the fence. */
static struct slot *checked_slot(const void *p) {
  uint32_t number = slot_number(p);
  if (number >= fence.count) fatal_foreign_pointer(p);
  struct slot *slot = &fence.slots[number];
  const char *block = slot->block, *at = p, *end = slot_end(number);
  if (block == NULL || at < block || at >= end) fatal_foreign_pointer(p);
  if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != SLOT_LIVE) {
    tell_of(slot);
    fatal_double_free(p);
  }
  if (at != block) {
    tell_of(slot);
    fatal_interior_pointer(p, block, slot->size_bytes);
  }
  for (const char *slack = block + slot->size_bytes; slack < end; slack++) {
    if (*slack == (char)FENCE_SLACK_BYTE) continue;
    tell_of(slot);
    fatal_overflow(block, slot->size_bytes);
  }
  return slot;
}

/* O1 */
static void close_slot(struct slot *slot) {
  char *page = first_page(slot);
  size_t bytes = (size_t)(slot_end((uint32_t)(slot - fence.slots)) - page);
  sys_decommit(page, bytes);
  bool others_are_clean = slot->is_clean || __atomic_load_n(&slot->given_turn, __ATOMIC_RELAXED) == 0;
  slot->is_clean = sys_purge(page, bytes) && others_are_clean;
  __atomic_fetch_sub(&fence.bytes, bytes, __ATOMIC_RELAXED);
  __atomic_fetch_sub(&fence.live, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&slot->given_turn, __atomic_add_fetch(&fence.turns, 1, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  change_state(slot, SLOT_CHANGING, SLOT_FREE);
}

void fence_give(void *p, uint32_t stack) {
  struct slot *slot = checked_slot(p);
  if (!change_state(slot, SLOT_LIVE, SLOT_CHANGING)) {
    tell_of(slot);
    fatal_double_free(p); /* by another thread just now */
  }
  slot->given_by = lock_self();
  slot->given_stack = stack;
  close_slot(slot);
}

size_t fence_size(const void *p) { return checked_slot(p)->size_bytes; }

uint64_t fence_bytes(void) { return __atomic_load_n(&fence.bytes, __ATOMIC_RELAXED); }

uint64_t fence_live(void) { return __atomic_load_n(&fence.live, __ATOMIC_RELAXED); }

void fence_after_fork(void) {
  report_after_fork();
  if (__atomic_load_n(&fence.state, __ATOMIC_RELAXED) == STATE_MAKING) /* by a thread that is not here */
    __atomic_store_n(&fence.state, STATE_IMPOSSIBLE, __ATOMIC_RELAXED);
  uint32_t live = 0;
  uint64_t bytes = 0;
  for (uint32_t i = 0; __atomic_load_n(&fence.state, __ATOMIC_RELAXED) == STATE_MADE && i < fence.count; i++) {
    const struct slot *slot = &fence.slots[i];
    if (__atomic_load_n(&slot->state, __ATOMIC_RELAXED) == SLOT_FREE) continue;
    live++;
    if (slot->block != NULL) bytes += (size_t)(slot_end(i) - first_page(slot));
  }
  __atomic_store_n(&fence.live, live, __ATOMIC_RELAXED);
  __atomic_store_n(&fence.bytes, bytes, __ATOMIC_RELAXED);
}
