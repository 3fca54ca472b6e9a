#include "purge.h"

#include <string.h>

#include "arena.h"
#include "counters.h"
#include "gauges.h"
#include "huge.h"
#include "lock.h"
#include "options.h"
#include "pressure.h"
#include "rights.h"
#include "slab.h"
#include "slab_purge.h"
#include "steal.h"
#include "survey.h"
#include "sys.h"

#define MILLISECOND_NS UINT64_C(1000000)
#define BREAK_COST_NS MILLISECOND_NS     /* to break the huge pages of a chunk, measured 0.9 ms (docs/decisions/0006) */
#define REPEATS_NS (50 * MILLISECOND_NS) /* so long purge_all repeats what forks cut: each pass shuts all caches */
#define AWAY_NS (10 * MILLISECOND_NS)    /* memory away for longer was worth its faults, at 100 % */
#define VAIN_NS (1000 * MILLISECOND_NS)  /* so long no purge follows one that served no request (purge_for_request) */

enum {
  CAP_SMALL_PAGES = 16, /* 64 KiB, while the heap is small */
  CAP_PAGES = 32,       /* 128 KiB */
  CAP_HEAP_PERCENT = 1,
  YOUNG_HEAP_PERCENT = 3,  /* so much more may be dirty from one tick to the next, at least */
  YOUNG_MIN_PAGES = 2048,  /* 8 MiB, more than a request or a short loop takes and frees; */
  EARLY_TICKS = 3,         /* 300 ms: a program that ends sooner, as scripts do, keeps nothing that waits */
  YOUNG_ROOM_SHIFT = 3,    /* or an eighth of the room up to the container's limit */
  SMALL_HEAP_PAGES = 2048, /* 8 MiB */
  PAGE_COST_NS = 1500,     /* to purge a page and fault it in again, measured 1.3-2.3 us in a virtual machine */
  BATCH_MIN_PAGES = 16,    /* fewer are not worth the system call unless that is all there is */
  TOKENS_MAX_MS = 4,
  DEBT_MAX_MS = 20, /* what one large purge may cost later ones */
  JANITOR_MIN_BYTES = 1 << 20,
  JANITOR_CAREFUL_MIN_BYTES = 2 << 20, /* in a process with one thread: some programs insist on being that */
  JANITOR_HEAP_SHIFT = 5,
  IDLE_LOOKS_MIN = 3, /* 300 ms */
  IDLE_LOOKS_MAX = 24,
  STOPPED_TURNS = 1000,
  VAIN_SHIFT = 2,  /* but when this part of the request was freed, */
  VAIN_PAGES = 16, /* and so many pages */
  LOOK_PAGES = 64, /* 256 KiB, or */
  LOOK_HEAP_SHIFT = 7,
  HUGE_KEEP_SHIFT = 5, /* this part of the heap may be free in chunks of huge pages */
};

size_t purge_due_pages = CAP_SMALL_PAGES;
size_t purge_look_pages = LOOK_PAGES;

static struct {
  struct lock lock;                   /* rank PURGE: one purger at a time; others go on without */
  int64_t tokens_ns;                  /* under the lock */
  uint64_t tokens_at_ns;              /* under the lock */
  size_t excess_pages;                /* atomic: dirty pages from which on some are above the cap by too much */
  uint64_t given_blocks[CLASS_COUNT]; /* atomic: of given_blocks(), when all slabs were looked at last */
  bool in_vain;                       /* atomic: the last idle purge gave next to nothing back */
  uint32_t idle_looks;                /* atomic: looks without activity until the next idle purge */
  uint64_t idle_at_ns;                /* under the lock: the last one, */
  size_t idle_gone_pages;             /* the same: what it gave back, */
  size_t idle_left_pages;             /* the same: and what it left resident; */
  uint64_t taken_at_ns;               /* the same: when most of that was seen to be in use or dirty again, or 0 */
  uint32_t early_ticks;               /* the same: those that went by, EARLY_TICKS at most */
  bool knows_huge_pages;              /* the same: it was read whether the kernel makes them */
  size_t looked_at_pages;             /* the same: the zone when it was last looked whether they are wanted */
  uint64_t vain_at_ns;                /* atomic: the last purge that served no request, ... */
  uint64_t vain_held_bytes;           /* the same: and what the heap held then, though not needed */
} purge = {.excess_pages = CAP_SMALL_PAGES, .idle_looks = IDLE_LOOKS_MIN};

static void earn_tokens(void) {
  uint64_t now = sys_coarse_time_ns();
  if (purge.tokens_at_ns != 0 && now > purge.tokens_at_ns) {
    purge.tokens_ns += (int64_t)((now - purge.tokens_at_ns) * options.purge_cpu_percent / 100);
    if (purge.tokens_ns > TOKENS_MAX_MS * (int64_t)MILLISECOND_NS) purge.tokens_ns = TOKENS_MAX_MS * MILLISECOND_NS;
    if (purge.tokens_ns < -DEBT_MAX_MS * (int64_t)MILLISECOND_NS)
      purge.tokens_ns = -DEBT_MAX_MS * (int64_t)MILLISECOND_NS;
  }
  purge.tokens_at_ns = now;
}

static void count_purged(size_t purged_pages) {
  if (purged_pages == 0) return;
  counter_bump(&snug_counters.purges, 1);
  counter_add(&snug_counters.purged_bytes, (uint64_t)purged_pages * PAGE_BYTES);
}

static size_t cap_pages(void) {
  size_t used = pages_used();
  return used < SMALL_HEAP_PAGES ? CAP_SMALL_PAGES : CAP_PAGES + used * CAP_HEAP_PERCENT / 100;
}

static size_t dirty_pages(void) { return pages_dirty() + large_retained_pages(); }

/* When slow paths purge at once again. Near the container's limit they have to ask before, whether the process grew. */
static void set_due(size_t pages) {
  bool asks_for_growth = pressure_is_near() && pages > CAP_SMALL_PAGES;
  __atomic_store_n(&purge.excess_pages, pages, __ATOMIC_RELAXED);
  __atomic_store_n(&purge_due_pages, asks_for_growth ? CAP_SMALL_PAGES : pages, __ATOMIC_RELAXED);
  counter_set(&snug_counters.dirty_cap_bytes, cap_pages() * PAGE_BYTES);
}

static bool at_any_price(void) { return options.purge_cpu_percent == 100; }

/* Pages freed a moment ago that wait for a tick, however small the heap: a part of the room up to the container's
 * limit, which others use, too; none near that, in a program that has just begun and may soon end, or where no janitor
 * can take them from an idle program. */
static size_t young_min_pages(void) {
  bool can_have_janitor = __atomic_load_n(&options.background, __ATOMIC_RELAXED) != 0 && rights_may_start_thread();
  if (purge.early_ticks < EARLY_TICKS || pressure_is_near() || !can_have_janitor) return 0;
  size_t share = pressure_room_pages() >> YOUNG_ROOM_SHIFT;
  return share < YOUNG_MIN_PAGES ? share : YOUNG_MIN_PAGES;
}

/* Dirty pages from which on slow paths purge at once, also what was freed a moment ago. */
static size_t urgent_pages(void) {
  if (at_any_price()) return cap_pages();
  size_t young = pages_used() * YOUNG_HEAP_PERCENT / 100, least = young_min_pages();
  return cap_pages() + (young < least ? least : young);
}

/* Frees into slabs of a class, in all arenas, ever. */
static uint64_t given_blocks(unsigned class_index) {
  uint64_t given = 0;
  for (uint32_t arena = 0; arena < arena_count(); arena++) {
    const struct snug_counters_class *row = &snug_counters.classes[arena][class_index];
    given += counter_get(&row->taken_blocks) - counter_get(&row->outstanding_blocks);
  }
  return given;
}

static uint64_t free_slot_bytes(unsigned class_index) {
  uint64_t bytes = 0;
  for (uint32_t arena = 0; arena < arena_count(); arena++) {
    const struct snug_counters_class *row = &snug_counters.classes[arena][class_index];
    uint64_t used_bytes = counter_get(&row->outstanding_blocks) * class_shapes[class_index].size_bytes;
    bytes += counter_get(&row->slab_bytes) - used_bytes;
  }
  return (int64_t)bytes > 0 ? bytes : 0; /* read without the lock */
}

/* Pages that blocks in bins may keep, where those can be emptied. */
static uint64_t bin_bytes(void) { return steal_is_allowed() ? (uint64_t)cache_slots() * PAGE_BYTES : 0; }

/* At most so much can be given back inside slabs: of free slots, of pages around what was freed since all of them were
 * looked at, in slabs that were touched since; and of pages that are free but for what bins hold. */
static uint64_t slab_purgeable_bytes(void) {
  uint64_t touched_bytes = (uint64_t)slab_touched_pages() * PAGE_BYTES, bytes = 0, all_free_bytes = 0;
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    uint64_t block_pages = class_shapes[i].size_bytes / PAGE_BYTES + 2, free_bytes = free_slot_bytes(i);
    int64_t given = (int64_t)(given_blocks(i) - counter_get(&purge.given_blocks[i]));
    uint64_t around_bytes = given > 0 ? (uint64_t)given * block_pages * PAGE_BYTES : 0;
    bytes += around_bytes < free_bytes ? around_bytes : free_bytes;
    all_free_bytes += free_bytes;
  }
  if (bytes > touched_bytes) bytes = touched_bytes;
  uint64_t purged_bytes = counter_get(&snug_counters.slab_purged_bytes);
  uint64_t unpurged_bytes = all_free_bytes > purged_bytes ? all_free_bytes - purged_bytes : 0;
  return bytes + (bin_bytes() < unpurged_bytes ? bin_bytes() : unpurged_bytes);
}

/* The part of these pages that the tokens pay for. */
static size_t affordable_pages(size_t pages) {
  size_t paid = purge.tokens_ns > 0 ? (size_t)(purge.tokens_ns / PAGE_COST_NS) : 0;
  if (at_any_price() || paid >= pages) return pages;
  return paid < BATCH_MIN_PAGES ? 0 : paid;
}

/* How many chunks the tokens pay to break, the last one in part: a tick earns a little less than one costs. */
static size_t affordable_breaks(void) {
  if (at_any_price() || pressure_is_near()) return SIZE_MAX;
  return purge.tokens_ns > 0 ? (size_t)((purge.tokens_ns - 1) / (int64_t)BREAK_COST_NS) + 1 : 0;
}

/* Pages that hold memory of the heap, live or not. */
static size_t resident_pages(void) {
  size_t held = pages_used() + pages_dirty() + large_retained_pages();
  held += (size_t)counter_get(&snug_counters.large_bytes) / PAGE_BYTES;
  size_t purged = (size_t)counter_get(&snug_counters.slab_purged_bytes) / PAGE_BYTES;
  return held > purged ? held - purged : 0;
}

/* Whether more than a small part of the heap could go; if not, pages beside huge ones may stay. A janitor does not stay
 * for less (janitor_bytes): it would do so for good. */
static bool breaks_pay(void) {
  if (huge_chunks() == 0 || at_any_price() || pressure_is_near()) return true;
  return dirty_pages() + (size_t)(slab_purgeable_bytes() / PAGE_BYTES) > resident_pages() >> HUGE_KEEP_SHIFT;
}

static void allow_breaks(void) { huge_allow_breaks(breaks_pay() ? affordable_breaks() : 0); }

static void pay_for_breaks(void) { purge.tokens_ns -= (int64_t)(huge_take_breaks() * BREAK_COST_NS); }

/* Gives about so many dirty pages back, retained mappings first, and takes their price from the tokens. Returns those
 * that went. */
static size_t give_back(size_t pages, bool only_aged) {
  size_t retained = large_retained_pages(), unmapped = 0, purged = 0;
  if (retained != 0) unmapped = large_purge(retained > pages ? retained - pages : 0, only_aged);
  if (unmapped < pages) {
    size_t rest = pages - unmapped, free_dirty = pages_dirty();
    allow_breaks();
    purged = pages_purge(free_dirty > rest ? free_dirty - rest : 0, only_aged);
  }
  count_purged(purged);
  purge.tokens_ns -= (int64_t)(unmapped + purged) * PAGE_COST_NS;
  pay_for_breaks();
  return unmapped + purged;
}

/* If more than `most` pages are dirty, gives back all above three quarters of that, or aged ones only, within the
 * budget. The purge lock is held. */
static void purge_within_budget(size_t most, bool only_aged) {
  earn_tokens();
  size_t dirty = dirty_pages(), urgent = urgent_pages();
  if (dirty > most) give_back(affordable_pages(dirty - most / 4 * 3), only_aged);
  dirty = dirty_pages();
  /* Refused or unaffordable: not at every free. */
  set_due(dirty <= urgent ? urgent : dirty + dirty / 8 + BATCH_MIN_PAGES);
}

/* Near the container's limit: gives back as much as the process grew by, and some, so that not every call has to. The
 * purge lock is held. */
static void give_back_growth(void) {
  size_t resident = resident_pages(), most = pressure_most_pages(), dirty = dirty_pages();
  if (resident <= most || dirty <= CAP_SMALL_PAGES) return;
  earn_tokens();
  if (give_back(resident - most + dirty / 4, false) == 0) pressure_allow(resident); /* refused: not at every call */
  counter_bump(&snug_counters.limit_purges, 1);
}

void purge_excess(void) {
  size_t most = pressure_most_pages();
  bool asks_for_growth = most != SIZE_MAX && dirty_pages() <= __atomic_load_n(&purge.excess_pages, __ATOMIC_RELAXED);
  if (asks_for_growth && resident_pages() <= most) return;
  if (!lock_try(&purge.lock, RANK_PURGE)) return;
  give_back_growth();
  purge_within_budget(urgent_pages(), false);
  lock_give(&purge.lock, RANK_PURGE);
}

/* The least that a janitor must find to be worth its thread. It is more if the last one found next to nothing, although
 * so much was freed: it lay beside live blocks. */
static uint64_t janitor_bytes(void) {
  bool in_vain = purge_was_in_vain();
  uint64_t minimum = in_vain || counter_get(&snug_counters.caches) < 2 ? JANITOR_CAREFUL_MIN_BYTES : JANITOR_MIN_BYTES;
  uint64_t heap_share = (uint64_t)resident_pages() * PAGE_BYTES >> JANITOR_HEAP_SHIFT;
  if (in_vain) heap_share *= 2;
  return minimum > heap_share ? minimum : heap_share;
}

static uint64_t purgeable_page_bytes(void) {
  return (uint64_t)(pages_purgeable() + large_retained_pages()) * PAGE_BYTES;
}

bool purge_janitor_is_worth_for_pages(void) { return purgeable_page_bytes() > janitor_bytes(); }

/* Bytes that can go for certain, if nobody uses them. */
static uint64_t purgeable_bytes(void) {
  uint64_t ended_bytes = (uint64_t)cache_ended_count() * CACHE_TOUCHED_BYTES;
  return purgeable_page_bytes() + ended_bytes + (steal_is_allowed() ? counter_get(&snug_counters.cached_bytes) : 0);
}

bool purge_janitor_may_be_worth(void) {
  return purgeable_bytes() + (uint64_t)slab_touched_pages() * PAGE_BYTES + bin_bytes() > janitor_bytes();
}

bool purge_janitor_is_worth(void) {
  return purge_janitor_may_be_worth() && purgeable_bytes() + slab_purgeable_bytes() > janitor_bytes();
}

void purge_looked(void) {
  size_t more = pages_used() >> LOOK_HEAP_SHIFT;
  size_t freed = dirty_pages() + slab_touched_pages() + (size_t)cache_ended_count() * CACHE_TOUCHED_PAGES;
  __atomic_store_n(&purge_look_pages, freed + (more > LOOK_PAGES ? more : LOOK_PAGES), __ATOMIC_RELAXED);
}

uint64_t purge_activity(void) {
  return survey_activity() * 31 + pages_takes() * 7 + large_frees() * 5 +
         counter_get(&snug_counters.run_requested_bytes) * 3 + counter_get(&snug_counters.large_requested_bytes);
}

void purge_look_at_limit(bool asks_for_limit) {
  struct cgroup_memory reading;
  bool is_read = cgroup_memory(&reading, asks_for_limit);
  if (is_read || !cgroup_has_memory_limit()) {
    pressure_look(is_read ? &reading : NULL, resident_pages());
  } else {
    pressure_look_failed(asks_for_limit);
  }
}

void purge_find_huge_pages(void) {
  if (!huge_may_be_wanted() || purge.knows_huge_pages) return;
  char setting[64];
  bool is_read = sys_read_file("/sys/kernel/mm/transparent_hugepage/enabled", setting, sizeof setting) != 0;
  if (is_read && strstr(setting, "[never]") != NULL) huge_give_up();
  purge.knows_huge_pages = true;
}

void purge_look_at_huge_pages(void) {
  if (!huge_may_be_wanted()) return;
  bool may_want = purge.knows_huge_pages && !pressure_is_near() && rights_have(RIGHT_OTHERS);
  bool has_grown = purge.looked_at_pages != zone_pages(); /* if not, the next growth is as the last */
  purge.looked_at_pages = zone_pages();
  if (!may_want || has_grown) huge_want_more(may_want && pages_are_touched());
}

void purge_forget_limit(void) { pressure_look(NULL, 0); }

void purge_slabs(size_t min_class_bytes, size_t max_records) {
  earn_tokens();
  if (purge.tokens_ns <= 0) return;
  allow_breaks();
  size_t purged = slab_purge(min_class_bytes, true, max_records, (size_t)(purge.tokens_ns / PAGE_COST_NS));
  count_purged(purged);
  purge.tokens_ns -= (int64_t)purged * PAGE_COST_NS;
  pay_for_breaks();
}

bool purge_may_wait(void) { return !at_any_price() && !pressure_is_near(); }

/* The purge lock is held. */
static void note_what_is_taken_again(void) {
  if (purge.taken_at_ns != 0 || purge.idle_gone_pages * PAGE_BYTES < JANITOR_MIN_BYTES / 2) return;
  if (resident_pages() > purge.idle_left_pages + purge.idle_gone_pages / 2) {
    purge.taken_at_ns = sys_coarse_time_ns();
  }
}

void purge_above_cap(bool is_spared) {
  note_what_is_taken_again();
  if (purge.early_ticks < EARLY_TICKS) purge.early_ticks++;
  purge_within_budget(is_spared ? SIZE_MAX : cap_pages(), !at_any_price());
}

/* Caches of threads that ended. Returns about how many pages went. The purge lock is held. */
static size_t give_back_ended_caches(void) {
  struct cache *batch[CACHE_ENDED_BATCH];
  uint32_t count, gone = 0;
  while (!is_purging_stopped() && (count = cache_take_ended(batch)) != 0) {
    for (uint32_t i = 0; i < count; i++) {
      survey_forget(batch[i]);
      gone += sys_purge(batch[i], CACHE_BYTES); /* refused, where memory is locked: not tried again */
    }
    cache_put_back(batch, count);
  }
  return (size_t)gone * CACHE_TOUCHED_PAGES;
}

/* purge_all_locked, breaking huge pages or not. */
static bool give_back_all(const struct cache *own, bool breaks, size_t *bytes) {
  huge_allow_breaks(breaks ? SIZE_MAX : 0);
  uint32_t stops = __atomic_load_n(&purging_stops, __ATOMIC_RELAXED);
  steal_caches(0, own);
  uint64_t given[CLASS_COUNT];
  for (unsigned i = 1; i < CLASS_COUNT; i++) given[i] = given_blocks(i);
  size_t unmapped = large_purge(0, false); /* before slabs, which take longest: a fork may cut what comes after */
  large_retry_unmaps();
  size_t purged = slab_purge(0, false, slab_record_count(), SIZE_MAX);
  purged += pages_purge(0, false) + give_back_ended_caches();
  count_purged(purged);
  purged += unmapped;
  if (!is_purging_stopped()) pages_shrink();
  set_due(urgent_pages());
  purge_looked();
  gauges_refresh(true);
  *bytes = purged * PAGE_BYTES;
  pay_for_breaks();
  if (stops % 2 != 0 || __atomic_load_n(&purging_stops, __ATOMIC_RELAXED) != stops) return false;
  if (!breaks) return true; /* what stays in chunks of huge pages counts on */
  for (unsigned i = 1; i < CLASS_COUNT; i++) counter_set(&purge.given_blocks[i], given[i]);
  return true;
}

bool purge_all_locked(const struct cache *own, size_t *bytes) { return give_back_all(own, true, bytes); }

bool purge_if_limit_is_near(const struct cache *own) {
  uint64_t now = sys_coarse_time_ns();
  if (!pressure_judge_sweep(now, resident_pages())) return false;
  size_t gone_bytes;
  bool is_all = purge_all_locked(own, &gone_bytes);
  pressure_swept(now, gone_bytes / PAGE_BYTES, resident_pages(), is_all);
  counter_bump(&snug_counters.limit_purges, 1);
  return true;
}

/* Whether nothing cut the last turn. */
static bool purge_in_turns(const struct cache *own, size_t *bytes) {
  uint64_t repeats_ns = 0;
  bool is_repeat = false;
  *bytes = 0;
  for (int turn = 0; turn < STOPPED_TURNS && repeats_ns < REPEATS_NS; turn++) {
    if (is_purging_stopped() && !lock_held_by_fork()) { /* another thread forks */
      sys_sleep(MILLISECOND_NS);
      continue;
    }
    size_t more_bytes;
    lock_take(&purge.lock, RANK_PURGE);
    uint64_t began_ns = sys_coarse_time_ns();
    bool is_all = purge_all_locked(own, &more_bytes);
    if (is_repeat) repeats_ns += sys_coarse_time_ns() - began_ns;
    lock_give(&purge.lock, RANK_PURGE);
    *bytes += more_bytes;
    if (likely(is_all) || lock_held_by_fork()) return is_all;
    is_repeat = true;
  }
  return false;
}

size_t purge_all(const struct cache *own) {
  size_t bytes;
  purge_in_turns(own, &bytes);
  return bytes;
}

/* ---- requests that no memory is left for ---- */

/* Bytes that the heap holds beside blocks and bins: given back as a whole, or not at all where blocks lie between. */
static uint64_t unneeded_bytes(void) {
  size_t zone_end = zone_pages(), used = pages_used();
  uint64_t bytes = (uint64_t)((zone_end > used ? zone_end - used : 0) + large_retained_pages()) * PAGE_BYTES;
  for (unsigned i = 1; i < CLASS_COUNT; i++) bytes += free_slot_bytes(i);
  return bytes;
}

static bool is_surely_vain(size_t request_bytes) {
  if (sys_coarse_time_ns() - counter_get(&purge.vain_at_ns) >= VAIN_NS) return false;
  uint64_t least = request_bytes >> VAIN_SHIFT;
  if (least < VAIN_PAGES * PAGE_BYTES) least = VAIN_PAGES * PAGE_BYTES;
  uint64_t held = unneeded_bytes(), before = counter_get(&purge.vain_held_bytes);
  if (held < before)
    counter_set(&purge.vain_held_bytes, held); /* some was taken: what is freed next counts from here */
  return held < before + least;
}

bool purge_for_request(const struct cache *own, size_t request_bytes, uint64_t *left_bytes) {
  if (is_surely_vain(request_bytes)) return false;
  size_t bytes;
  bool is_all = purge_in_turns(own, &bytes);
  pages_shrink(); /* in a handler of fork nothing was purged */
  *left_bytes = is_all ? unneeded_bytes() : UINT64_MAX;
  return true;
}

void purge_served_nothing(uint64_t left_bytes) {
  if (left_bytes == UINT64_MAX) return; /* another one may serve */
  counter_set(&purge.vain_held_bytes, left_bytes);
  counter_set(&purge.vain_at_ns, sys_coarse_time_ns());
}

void purge_before_fork(void) {
  if (!lock_try(&purge.lock, RANK_PURGE)) return;
  pages_purge_before_fork();
  lock_give(&purge.lock, RANK_PURGE);
}

/* One caller at a time: the janitor's lock, but in a child, or a copy, where nobody else is left. */
void purge_stop(bool stop) {
  uint32_t stops = __atomic_load_n(&purging_stops, __ATOMIC_RELAXED);
  if ((stops % 2 != 0) != stop) __atomic_store_n(&purging_stops, stops + 1, __ATOMIC_RELAXED);
}

/* ---- idle moments ---- */

uint32_t purge_idle_looks(void) { return __atomic_load_n(&purge.idle_looks, __ATOMIC_RELAXED); }

/* Whether the program took most of what the last idle purge gave back again before it was away for long enough to be
 * worth its faults (docs/decisions/0020). The purge lock is held. */
static bool last_one_was_too_early(void) {
  if (purge.taken_at_ns == 0) return false;
  return (purge.taken_at_ns - purge.idle_at_ns) * options.purge_cpu_percent / 100 < AWAY_NS;
}

void purge_idle(void) {
  lock_take(&purge.lock, RANK_PURGE);
  uint64_t now = sys_coarse_time_ns();
  note_what_is_taken_again();
  uint32_t looks = last_one_was_too_early() ? purge.idle_looks * 2 : purge.idle_looks / 2;
  if (looks < IDLE_LOOKS_MIN) looks = IDLE_LOOKS_MIN;
  if (looks > IDLE_LOOKS_MAX) looks = IDLE_LOOKS_MAX;
  __atomic_store_n(&purge.idle_looks, looks, __ATOMIC_RELAXED);
  size_t bytes;
  bool in_vain = give_back_all(NULL, breaks_pay(), &bytes) && bytes < JANITOR_MIN_BYTES / 2;
  __atomic_store_n(&purge.in_vain, in_vain, __ATOMIC_RELAXED);
  purge.idle_at_ns = now;
  purge.idle_gone_pages = bytes / PAGE_BYTES;
  purge.idle_left_pages = resident_pages();
  purge.taken_at_ns = 0;
  counter_bump(&snug_counters.idle_purges, 1);
  lock_give(&purge.lock, RANK_PURGE);
}

bool purge_was_in_vain(void) { return __atomic_load_n(&purge.in_vain, __ATOMIC_RELAXED); }

bool purge_try_lock(void) { return lock_try(&purge.lock, RANK_PURGE); }
void purge_unlock(void) { lock_give(&purge.lock, RANK_PURGE); }

void purge_lock_all(void) { lock_take_in_fork(&purge.lock, RANK_PURGE); }
void purge_unlock_all(void) { lock_give_in_fork(&purge.lock, RANK_PURGE); }
void purge_reset_locks(void) { lock_reset(&purge.lock); }
