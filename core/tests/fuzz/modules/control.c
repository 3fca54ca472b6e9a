/* control.c: the page of counters with a hostile writer: requests and wishes, whole ones and half ones, and any word
 * of the page at random. Whatever is written there, blocks stay, settings stay in their range, and a request is
 * answered as its words say, once. */
#include "world.h"

#include "../../../src/cache.h"
#include "../../../src/control.h"
#include "../../../src/counters.h"
#include "../../../src/options.h"
#include "../../../src/pages.h"
#include "../../../src/rights.h"
#include "blocks.h"

enum { CONTROL_SLOTS = 256 };

enum control_operation {
  CONTROL_MALLOC,
  CONTROL_FREE,
  CONTROL_REQUEST,
  CONTROL_HALF_REQUEST,
  CONTROL_WISH,
  CONTROL_LEASE,
  CONTROL_LOOK,
  CONTROL_TIME,
  CONTROL_SCRIBBLE,
  CONTROL_SCRIBBLE_HEAD,
  CONTROL_FLOOD,
};

static const char *const control_operations[] = {
    "malloc", "free", "request",  "half_request",  "wish",  "lease",
    "look",   "time", "scribble", "scribble_head", "flood", NULL,
};

static struct control_block {
  char *start; /* NULL: none */
  size_t bytes;
  uint64_t seed;
} blocks[CONTROL_SLOTS];
static uint64_t seeds, random_state, count_of_requests;

static void check_block(const struct control_block *block) {
  size_t at = mark_mismatch(block->start, block->bytes, block->bytes, block->seed);
  if (at != SIZE_MAX) fuzz_fail("the block %p of %zu bytes has changed at %zu", (void *)block->start, block->bytes, at);
}

static void give(struct control_block *block) {
  if (block->start == NULL) return;
  check_block(block);
  own_allocator.free(block->start);
  block->start = NULL;
}

static void take(struct control_block *block, size_t bytes) {
  uint64_t refused = refused_calls;
  give(block);
  if (bytes > 16 * MIB) return;
  char *start = own_allocator.malloc(bytes);
  if (start == NULL && refused == refused_calls) fuzz_fail("no memory for %zu bytes", bytes);
  fuzz_counts->failed += start == NULL;
  if (start == NULL) return;
  *block = (struct control_block){start, bytes, ++seeds};
  mark(start, bytes, seeds);
}

/* Kind, number and value: mostly what there is, near its limits. */
static uint64_t words_from(unsigned a, unsigned b) {
  static const uint32_t values[] = {0, 1, 2, 100, 101, 4096, 4097, 1 << 19, 1 << 30, (1 << 30) + 1, UINT32_MAX};
  uint64_t kind = a % 8 == 7 ? a : a % 4, number = b % 16 == 15 ? b : b % 10;
  return kind | number << 8 | (uint64_t)values[b / 16 % COUNT_OF(values)] << 32;
}

static uint32_t own_pid(void) { return rights_pid(); }

/* Who asks, as Q3 wants it. */
static uint64_t next_from(void) { return ++count_of_requests << 32 | 4711; }

static void check_answer(uint64_t words, uint64_t answer) {
  uint32_t number = (uint32_t)(words >> 8 & 0xffffff), kind = words & 0xff;
  bool sets = kind == SNUG_REQUEST_SET || kind == SNUG_REQUEST_SWITCH;
  uint64_t said = answer & 0xff;
  if (!sets && said != (kind == SNUG_REQUEST_PURGE ? SNUG_ANSWER_DONE : SNUG_ANSWER_UNKNOWN_KIND))
    fuzz_fail("the answer to kind %u is %llu", kind, (unsigned long long)said);
  if (!sets) return;
  bool is_there = number < 32 && (snug_counters.abilities >> (32 + number) & 1) != 0;
  if (said == SNUG_ANSWER_DONE && !is_there) fuzz_fail("setting %u can't change, but did", number);
  if (said == SNUG_ANSWER_UNKNOWN_SETTING && number < 9) fuzz_fail("setting %u is unknown", number);
}

static void ask(unsigned a, unsigned b) {
  struct snug_counters *c = &snug_counters;
  uint64_t words = words_from(a, b), from = next_from();
  control_announce(); /* the page may have been scribbled on */
  c->pid = own_pid();
  c->request = words;
  c->request_from = from;
  c->request_check = snug_request_check(words, from, c->pid);
  control_look(this_thread.own);
  bool waits = (words & 0xff) == SNUG_REQUEST_PURGE && is_purging_stopped();
  if (waits) return;
  if (c->answer_to != c->request_check) fuzz_fail("a request was not answered");
  check_answer(words, c->answer);
  uint64_t answer = c->answer = 12345;
  control_look(this_thread.own);
  if (c->answer != answer) fuzz_fail("a request was answered twice");
}

/* Q1: nothing happens. */
static void ask_half(unsigned a, unsigned b) {
  struct snug_counters *c = &snug_counters;
  c->request = words_from(a, b);
  c->request_from = next_from();
  c->request_check = snug_request_check(c->request, c->request_from, own_pid()) ^ (UINT64_C(2) << b % 63);
  c->pid = own_pid();
  uint64_t answer = c->answer = 54321;
  control_look(this_thread.own);
  if (c->answer != answer) fuzz_fail("half a request was answered");
}

static void wish(struct snug_counters_wish *row, uint64_t words, uint64_t until_ns) {
  snug_counters.pid = own_pid();
  row->request = words;
  row->from = next_from();
  row->until_ns = until_ns;
  row->check = snug_wish_check(words, row->from, until_ns, snug_counters.pid);
  snug_counters.wished = row->from;
  control_look(this_thread.own);
  if (row->answer_to != row->check) fuzz_fail("a wish was not answered");
}

static void scribble(size_t from, size_t words) {
  uint64_t *page = (uint64_t *)&snug_counters;
  size_t count = sizeof snug_counters / sizeof *page;
  for (size_t i = 0; i < words; i++) page[(from + i) % count] = random_next(&random_state);
}

static void check_settings(void) {
  bool good = options.background <= 1 && options.stats_print <= 1 && options.purge_cpu_percent <= 100 &&
              options.profile <= 1u << 30 && options.guard_samples <= 4096 && options.thp <= 2 &&
              options.arenas_max <= 64 && options.guard == 0 && options.verbose <= 1;
  if (!good) fuzz_fail("a setting is out of its range");
  options.background = 0; /* no thread comes of it */
}

static void control_begin(void) {
  begin_core();
  random_state = 1;
}

static void control_step(unsigned operation, unsigned a, unsigned b) {
  struct control_block *block = &blocks[a % CONTROL_SLOTS];
  switch ((enum control_operation)operation) {
    case CONTROL_MALLOC: take(block, size_from(b)); break;
    case CONTROL_FREE: give(block); break;
    case CONTROL_REQUEST: ask(a, b); break;
    case CONTROL_HALF_REQUEST: ask_half(a, b); break;
    case CONTROL_WISH: wish(&snug_counters.wishes[a % SNUG_COUNTERS_WISHES], words_from(a, b), 0); break;
    case CONTROL_LEASE: wish(&snug_counters.lease, words_from(a, b), clock_ns + b * UINT64_C(1000000)); break;
    case CONTROL_LOOK: control_look(this_thread.own); break;
    case CONTROL_TIME: clock_ns += (uint64_t)b * 100000; break;
    case CONTROL_SCRIBBLE: scribble(b * 7, 1 + a % 64); break;
    case CONTROL_SCRIBBLE_HEAD: scribble(b % 120, 1 + a % 4); break;
    case CONTROL_FLOOD:
      if (a % 16 == 0) scribble(0, sizeof snug_counters / 8);
      break;
  }
  check_settings();
}

static void control_check(void) {
  for (size_t i = 0; i < CONTROL_SLOTS; i++)
    if (blocks[i].start != NULL) check_block(&blocks[i]);
  snug_check();
}

static void control_end(void) {
  for (size_t i = 0; i < CONTROL_SLOTS; i++) give(&blocks[i]);
  snug_check();
}

static void control_spoil(void) {
  take(&blocks[0], 100);
  blocks[0].start[50] ^= 1;
}

const struct fuzz_module control_module = {"control",     control_operations, control_begin, control_step,
                                           control_check, control_end,        control_spoil};
