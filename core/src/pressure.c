#include "pressure.h"

enum {
  LITTLE_SHIFT = 10,  /* a sweep that gave back less than a thousandth of the limit was not worth its steps */
  BLIND_SECONDS = 10, /* the last reading stands for so long without another one */
};

#define WAIT_MIN_NS UINT64_C(1000000000)
#define WAIT_MAX_NS (64 * WAIT_MIN_NS)

static size_t most_pages = SIZE_MAX; /* atomic; written with the purge lock */

static struct {
  bool near;
  uint32_t blind_seconds;  /* looks by the second since the last reading */
  size_t room_pages;       /* from what is held to the limit, at the last look; SIZE_MAX: there is none */
  size_t swept_room_pages; /* the same at the last sweep; or more, if that came since by other means */
  size_t limit_pages;
  uint64_t wait_ns;                                            /* from one sweep to the next */
  uint64_t swept_ns;                                           /* when the last one was; 0: never */
  size_t gone_pages;                                           /* what it gave back, */
  size_t left_pages;                                           /* and left */
  size_t peak_pages;                                           /* the most that held memory since, at ticks */
  bool is_won;                                                 /* it was when its wait was over */
  bool is_cut;                                                 /* one was cut since then */
  size_t cut_gone_pages;                                       /* what that gave back, 0 without one, */
  size_t cut_left_pages;                                       /* and left */
} pressure = {.room_pages = SIZE_MAX, .wait_ns = WAIT_MIN_NS}; /* purge lock */

bool pressure_is_near(void) { return pressure.near; }

size_t pressure_room_pages(void) { return pressure.room_pages; }

size_t pressure_most_pages(void) { return __atomic_load_n(&most_pages, __ATOMIC_RELAXED); }

void pressure_allow(size_t pages) { __atomic_store_n(&most_pages, pages, __ATOMIC_RELAXED); }

/* Whether the last sweep is lost, now that resident_pages hold memory. */
static bool last_sweep_is_lost(size_t resident_pages) {
  size_t again = resident_pages > pressure.left_pages ? resident_pages - pressure.left_pages : 0;
  return pressure.gone_pages <= pressure.limit_pages >> LITTLE_SHIFT || again > pressure.gone_pages / 2;
}

/* Room beyond what the last sweep made: what takes it is a new approach. What it made may be wanted again yet. */
static void note_room(bool came_near, size_t resident_pages) {
  size_t other_room = pressure.room_pages > pressure.gone_pages ? pressure.room_pages - pressure.gone_pages : 0;
  if (other_room <= pressure.swept_room_pages) return;
  if (came_near || !last_sweep_is_lost(resident_pages)) pressure.swept_room_pages = other_room;
}

static size_t room_of(const struct cgroup_memory *reading) {
  uint64_t held = reading->held_bytes, limit = reading->limit_bytes;
  return held < limit ? (limit - held) / PAGE_BYTES : 0;
}

void pressure_look(const struct cgroup_memory *reading, size_t resident_pages) {
  bool was_near = pressure.near;
  pressure.blind_seconds = 0;
  pressure.near = reading != NULL && cgroup_is_near_limit(reading);
  pressure.room_pages = reading != NULL ? room_of(reading) : SIZE_MAX;
  if (!pressure.near) {
    pressure_allow(SIZE_MAX);
    return;
  }
  pressure.limit_pages = reading->limit_bytes / PAGE_BYTES;
  note_room(!was_near, resident_pages);
  pressure_allow(resident_pages + pressure.room_pages / 2);
}

void pressure_look_failed(bool by_the_second) {
  if (by_the_second && ++pressure.blind_seconds >= BLIND_SECONDS) pressure_look(NULL, 0);
}

bool pressure_judge_sweep(uint64_t now_ns, size_t resident_pages) {
  bool is_over = now_ns - pressure.swept_ns >= pressure.wait_ns;
  if (resident_pages > pressure.peak_pages) pressure.peak_pages = resident_pages;
  if (!pressure.near) {
    /* It may be far because little is live for the moment, with what went taken again before. */
    if (is_over && !last_sweep_is_lost(pressure.peak_pages)) pressure.is_won = true;
    return false;
  }
  if (pressure.swept_ns == 0 || pressure.is_won) return true;
  if (pressure.room_pages < pressure.swept_room_pages / 2) return true;
  if (!is_over) return false;
  pressure.is_won = !last_sweep_is_lost(resident_pages);
  if (pressure.is_won || pressure.wait_ns == WAIT_MAX_NS) return true;
  pressure.wait_ns *= 2;
  return false;
}

/* Pages that a cut sweep gave back and that were not taken again by now, before the next one. */
static size_t still_gone_pages(size_t resident_pages) {
  size_t again = resident_pages > pressure.cut_left_pages ? resident_pages - pressure.cut_left_pages : 0;
  return pressure.cut_gone_pages > again ? pressure.cut_gone_pages - again : 0;
}

void pressure_swept(uint64_t now_ns, size_t gone_pages, size_t left_pages, bool is_all) {
  if (!is_all && !pressure.is_cut) {
    pressure.is_cut = true;
    pressure.cut_gone_pages = gone_pages;
    pressure.cut_left_pages = left_pages;
    return;
  }
  size_t earlier_pages = still_gone_pages(left_pages + gone_pages);
  if (pressure.is_won && pressure.wait_ns > WAIT_MIN_NS) pressure.wait_ns /= 2;
  pressure.is_won = pressure.is_cut = false;
  pressure.cut_gone_pages = 0;
  pressure.swept_ns = now_ns;
  pressure.gone_pages = earlier_pages + gone_pages;
  pressure.left_pages = pressure.peak_pages = left_pages;
  pressure.swept_room_pages = pressure.room_pages > earlier_pages ? pressure.room_pages - earlier_pages : 0;
}
