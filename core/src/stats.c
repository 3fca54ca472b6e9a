#include "stats.h"

#include <errno.h>
#include <string.h>

#include "cache.h"
#include "counters.h"
#include "fork.h"
#include "gauges.h"
#include "large.h"
#include "options.h"
#include "pages.h"
#include "profile_table.h"
#include "rights.h"
#include "slab.h"
#include "ready.h"
#include "sys.h"
#include "text.h"

EXPORT struct snug_counters snug_counters __attribute__((aligned(SNUG_COUNTERS_ALIGN)));
extern struct snug_counters counters_of_this_copy __attribute__((alias("snug_counters"), visibility("hidden")));
_Static_assert(sizeof(SNUG_COUNTERS_MAGIC) == sizeof snug_counters.magic + 1, "the magic fills its field");

/* Sums over the rows of classes. */
struct class_sums {
  uint64_t slab_bytes;
  uint64_t outstanding_bytes;
  uint64_t requested_bytes;
};

/* E3: the outstanding blocks, at the mean size that was asked for. */
static uint64_t requested_bytes(const struct snug_counters_class *row) {
  uint64_t samples = counter_get(&row->sampled_requests);
  if (samples == 0) return 0;
  double mean = (double)counter_get(&row->sampled_requested_bytes) / (double)samples;
  return (uint64_t)((double)counter_get(&row->outstanding_blocks) * mean);
}

static struct class_sums sum_classes(void) {
  struct class_sums sums = {0, 0, 0};
  for (uint32_t arena = 0; arena < arena_count(); arena++) {
    for (unsigned i = 1; i < CLASS_COUNT; i++) {
      const struct snug_counters_class *row = &snug_counters.classes[arena][i];
      sums.slab_bytes += counter_get(&row->slab_bytes);
      sums.outstanding_bytes += counter_get(&row->outstanding_blocks) * class_shapes[i].size_bytes;
      sums.requested_bytes += requested_bytes(row);
    }
  }
  return sums;
}

void stats_collect(struct snug_stats *stats) {
  bool amid = cache_thread_is_inside();
  cache_slow_path_begins();
  if (!amid) gauges_refresh(true); /* K5 */
  cache_slow_path_ends();
  const struct snug_counters *c = &snug_counters;
  struct class_sums sums = sum_classes();
  uint64_t cached = counter_get(&c->cached_bytes);
  uint64_t outstanding = sums.outstanding_bytes > cached ? sums.outstanding_bytes - cached : 0;
  double asked_share = sums.outstanding_bytes != 0 ? (double)sums.requested_bytes / (double)sums.outstanding_bytes : 0;
  memset(stats, 0, sizeof *stats);
  stats->live_allocated_bytes = outstanding + counter_get(&c->run_bytes) + counter_get(&c->large_bytes);
  stats->live_requested_bytes = (uint64_t)((double)outstanding * asked_share) + counter_get(&c->run_requested_bytes) +
                                counter_get(&c->large_requested_bytes);
  stats->cached_bytes = cached;
  uint64_t used_or_purged = sums.outstanding_bytes + counter_get(&c->slab_purged_bytes);
  stats->slab_free_bytes = sums.slab_bytes > used_or_purged ? sums.slab_bytes - used_or_purged : 0; /* others go on */
  stats->dirty_bytes = counter_get(&c->dirty_bytes);
  stats->metadata_bytes = counter_get(&c->metadata_bytes);
  uint64_t in_heap = counter_get(&c->heap_top_bytes) - counter_get(&c->clean_bytes);
  uint64_t large_bytes = counter_get(&c->large_bytes) + counter_get(&c->large_retained_bytes);
  stats->resident_bytes = in_heap - counter_get(&c->slab_purged_bytes) + large_bytes + stats->metadata_bytes;
  stats->mapped_bytes = counter_get(&c->heap_top_bytes) + large_bytes + stats->metadata_bytes;
  stats->purged_bytes = counter_get(&c->purged_bytes);
  stats->caches = counter_get(&c->caches);
  stats->arenas = arena_count();
}

size_t stats_large_bytes(size_t *blocks) {
  *blocks = counter_get(&snug_counters.large_blocks);
  return counter_get(&snug_counters.large_bytes);
}

/* ---- JSON ---- */

/* Pieces of a JSON object on their way out. */
struct json {
  void (*write)(void *context, const char *text, size_t length);
  void *context;
  bool first; /* no comma before the next member */
};

static void json_text(struct json *json, const char *text) { json->write(json->context, text, strlen(text)); }

static void json_name(struct json *json, const char *name) {
  json_text(json, json->first ? "\"" : ",\"");
  json_text(json, name);
  json_text(json, "\":");
  json->first = false;
}

static void json_number(struct json *json, const char *name, uint64_t number) {
  char digits[24];
  struct text text = text_in(digits, sizeof digits);
  text_number(&text, number);
  json_name(json, name);
  json_text(json, digits);
}

/* The strings are ours: nothing in them needs escaping. */
static void json_string(struct json *json, const char *name, const char *string) {
  json_name(json, name);
  json_text(json, "\"");
  json_text(json, string);
  json_text(json, "\"");
}

static void json_class(struct json *json, const struct snug_counters_class *row) {
  json->first = true;
  json_text(json, "{");
  json_number(json, "size_bytes", row->size_bytes);
  json_number(json, "slabs", row->slabs);
  json_number(json, "slab_bytes", counter_get(&row->slab_bytes));
  json_number(json, "outstanding_blocks", counter_get(&row->outstanding_blocks));
  json_number(json, "taken_blocks", counter_get(&row->taken_blocks));
  json_number(json, "requested_bytes", requested_bytes(row));
  json_text(json, "}");
}

static void json_arenas(struct json *json) {
  json_name(json, "arenas");
  json_text(json, "[");
  for (uint32_t arena = 0; arena < arena_count(); arena++) {
    bool first = true;
    json_text(json, arena == 0 ? "{\"classes\":[" : ",{\"classes\":[");
    for (unsigned i = 1; i < CLASS_COUNT; i++) {
      const struct snug_counters_class *row = &snug_counters.classes[arena][i];
      if (counter_get(&row->taken_blocks) == 0) continue;
      if (!first) json_text(json, ",");
      json_class(json, row);
      first = false;
    }
    json_text(json, "]}");
  }
  json_text(json, "]");
  json->first = false;
}

static void json_totals(struct json *json, const struct snug_stats *stats) {
  json_number(json, "live_requested_bytes", stats->live_requested_bytes);
  json_number(json, "live_allocated_bytes", stats->live_allocated_bytes);
  json_number(json, "cached_bytes", stats->cached_bytes);
  json_number(json, "slab_free_bytes", stats->slab_free_bytes);
  json_number(json, "dirty_bytes", stats->dirty_bytes);
  json_number(json, "metadata_bytes", stats->metadata_bytes);
  json_number(json, "resident_bytes", stats->resident_bytes);
  json_number(json, "mapped_bytes", stats->mapped_bytes);
  json_number(json, "purged_bytes", stats->purged_bytes);
  json_number(json, "thread_caches", stats->caches);
}

static void json_counters(struct json *json) {
  const struct snug_counters *c = &snug_counters;
  json_number(json, "heap_top_bytes", counter_get(&c->heap_top_bytes));
  json_number(json, "clean_bytes", counter_get(&c->clean_bytes));
  json_number(json, "slab_purged_bytes", counter_get(&c->slab_purged_bytes));
  json_number(json, "run_blocks", counter_get(&c->run_blocks));
  json_number(json, "run_bytes", counter_get(&c->run_bytes));
  json_number(json, "run_requested_bytes", counter_get(&c->run_requested_bytes));
  json_number(json, "large_blocks", counter_get(&c->large_blocks));
  json_number(json, "large_bytes", counter_get(&c->large_bytes));
  json_number(json, "large_requested_bytes", counter_get(&c->large_requested_bytes));
  json_number(json, "large_retained_bytes", counter_get(&c->large_retained_bytes));
  json_number(json, "dirty_cap_bytes", counter_get(&c->dirty_cap_bytes));
  json_number(json, "purges", counter_get(&c->purges));
  json_number(json, "ticks", counter_get(&c->ticks));
  json_number(json, "idle_purges", counter_get(&c->idle_purges));
  json_number(json, "limit_purges", counter_get(&c->limit_purges));
  json_number(json, "janitor_starts", counter_get(&c->janitor_starts));
  json_number(json, "steals", counter_get(&c->steals));
  json_number(json, "forks", counter_get(&c->forks));
}

EXPORT int snug_stats_json(void (*write)(void *context, const char *text, size_t length), void *context) {
  if (write == NULL) return errno = EINVAL, -1;
  start_if_needed();
  struct snug_stats stats;
  stats_collect(&stats);
  struct json json = {write, context, true};
  char settings[OPTIONS_TEXT_BYTES];
  json_text(&json, "{");
  json_string(&json, "version", SNUG_VERSION);
  json_number(&json, "pid", rights_pid());
  json_string(&json, "settings", options_text(settings));
  json_totals(&json, &stats);
  json_counters(&json);
  json_arenas(&json);
  json_text(&json, "}\n");
  return 0;
}

struct fd_buffer {
  int fd;
  size_t length;
  char bytes[4096];
};

static void write_to_buffer(void *context, const char *text, size_t length) {
  struct fd_buffer *buffer = context;
  for (size_t i = 0; i < length; i++) {
    buffer->bytes[buffer->length++] = text[i];
    if (buffer->length < sizeof buffer->bytes) continue;
    sys_write(buffer->fd, buffer->bytes, buffer->length);
    buffer->length = 0;
  }
}

void stats_write_json(int fd) {
  struct fd_buffer buffer = {.fd = fd, .length = 0};
  snug_stats_json(write_to_buffer, &buffer);
  sys_write(fd, buffer.bytes, buffer.length);
}

/* ---- snug.h ---- */

/* Found in the file by tools that ask which version a library is. */
#define VERSION_PREFIX "snug version "
static const char version_text[] __attribute__((used)) = VERSION_PREFIX SNUG_VERSION;

EXPORT const char *snug_version(void) { return version_text + sizeof VERSION_PREFIX - 1; }

EXPORT int snug_stats(struct snug_stats *stats, size_t stats_size_bytes) {
  if (stats == NULL) return errno = EINVAL, -1;
  start_if_needed();
  struct snug_stats all;
  stats_collect(&all);
  memset(stats, 0, stats_size_bytes);
  memcpy(stats, &all, stats_size_bytes < sizeof all ? stats_size_bytes : sizeof all);
  return 0;
}

EXPORT size_t snug_check(void) {
  start_if_needed();
  if (cache_thread_is_inside()) return 0; /* K5 */
  cache_slow_path_begins();
  cache_check();
  fork_lock_all(); /* we are their owner, so the checks pass their own locks (K3) */
  pages_check();
  large_check();
  profile_table_check();
  size_t slabs = slab_check();
  fork_unlock_all();
  cache_slow_path_ends();
  return slabs;
}
