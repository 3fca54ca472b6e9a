#include "profile_table.h"

#include <string.h>

#include "fatal.h"
#include "lock.h"
#include "map.h"
#include "sys.h"

enum {
  UNIT_BYTES = 8,
  SAMPLES_MAX = 64 * 1024,
  SAMPLE_BUCKETS = 64 * 1024,
  STACK_BUCKETS = 16 * 1024,
  NAME_BUCKETS = 8 * 1024,
  STACKS_MAX_BYTES = 8 << 20,
  NAMES_MAX_BYTES = 2 << 20,
};

_Static_assert(sizeof(struct snug_profile_sample) == 56, "as the header says");
_Static_assert(sizeof(struct snug_profile_stack) % UNIT_BYTES == 0, "frames follow");

struct snug_profile *profile_head;

static struct {
  struct lock lock; /* rank PROFILE: all below, but names may be looked up without it (V2) */
  struct snug_profile_sample *samples;
  uint32_t *sample_buckets, *stack_buckets, *name_buckets; /* row + 1, offsets; 0: empty; the last are atomic */
  uint32_t unused;                                         /* row + 1 of the first unused sample */
  uint64_t live;                                           /* atomic */
  bool is_abandoned;
  char *stacks, *names;
} table;

/* ---- the mapping ---- */

static char *take_part(char **from, size_t bytes) {
  char *part = *from;
  *from += round_up(bytes, 64);
  return part;
}

bool profile_table_make(uint32_t samples_max) {
  if (samples_max == 0) samples_max = SAMPLES_MAX;
  size_t samples_bytes = (size_t)samples_max * sizeof(struct snug_profile_sample);
  size_t buckets_bytes = (SAMPLE_BUCKETS + STACK_BUCKETS + NAME_BUCKETS) * sizeof(uint32_t);
  size_t total = sizeof(struct snug_profile) + samples_bytes + buckets_bytes + STACKS_MAX_BYTES + NAMES_MAX_BYTES + 512;
  total = round_up(total, zone.page_bytes);
  char *from = map_apart(total);
  if (from == NULL) return false;
  sys_no_huge_pages(from, total);
  struct snug_profile *head = (struct snug_profile *)take_part(&from, sizeof *head);
  table.samples = (struct snug_profile_sample *)take_part(&from, samples_bytes);
  table.sample_buckets = (uint32_t *)take_part(&from, SAMPLE_BUCKETS * sizeof(uint32_t));
  table.stack_buckets = (uint32_t *)take_part(&from, STACK_BUCKETS * sizeof(uint32_t));
  table.name_buckets = (uint32_t *)take_part(&from, NAME_BUCKETS * sizeof(uint32_t));
  table.stacks = take_part(&from, STACKS_MAX_BYTES);
  table.names = take_part(&from, NAMES_MAX_BYTES);
  memcpy(head->magic, SNUG_PROFILE_MAGIC, sizeof head->magic);
  head->version = SNUG_PROFILE_VERSION;
  head->size_bytes = sizeof *head;
  head->sample_size_bytes = sizeof(struct snug_profile_sample);
  head->stack_size_bytes = sizeof(struct snug_profile_stack);
  head->name_size_bytes = sizeof(struct snug_profile_name);
  head->started_ns = sys_coarse_time_ns();
  head->samples_address = (uintptr_t)table.samples;
  head->sample_capacity = samples_max;
  head->stacks_address = (uintptr_t)table.stacks;
  head->stacks_capacity_bytes = STACKS_MAX_BYTES;
  head->stacks_bytes = UNIT_BYTES; /* P3: offset 0 means none */
  head->names_address = (uintptr_t)table.names;
  head->names_capacity_bytes = NAMES_MAX_BYTES;
  head->names_bytes = UNIT_BYTES;
  __atomic_store_n(&profile_head, head, __ATOMIC_RELEASE);
  return true;
}

/* P2 */
static void begin_table_change(void) {
  lock_take(&table.lock, RANK_PROFILE);
  __atomic_store_n(&profile_head->changes, profile_head->changes | 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void end_table_change(void) {
  __atomic_store_n(&profile_head->changes, profile_head->changes + 1, __ATOMIC_RELEASE);
  lock_give(&table.lock, RANK_PROFILE);
}

/* ---- names and stacks ---- */

/* Eight bytes at a time: it is what names cost most. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count) {
  const uint8_t *at = bytes;
  uint64_t word, last = count;
  for (; count >= sizeof word; at += sizeof word, count -= sizeof word) {
    memcpy(&word, at, sizeof word);
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 32;
  }
  for (size_t i = 0; i < count; i++) last = last << 8 | at[i];
  hash = (hash ^ last) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 32;
}

static uint32_t fold(uint64_t hash) { return (uint32_t)(hash ^ hash >> 32); }

/* Room for `bytes` more in one of the parts that only grow: its offset in units; 0: none. */
static uint32_t append_room(uint64_t *used_bytes, size_t capacity_bytes, size_t bytes) {
  bytes = round_up(bytes, UNIT_BYTES);
  if (*used_bytes + bytes > capacity_bytes) return 0;
  uint32_t offset = (uint32_t)(*used_bytes / UNIT_BYTES);
  *used_bytes += bytes;
  return offset;
}

static struct snug_profile_name *name_at(uint32_t offset) {
  return (struct snug_profile_name *)(table.names + (size_t)offset * UNIT_BYTES);
}

/* Whether a name is this one; its parts may lie in the program's memory. */
static bool is_name(const struct snug_profile_name *name, uint32_t hash, const char *label, size_t label_bytes,
                    const char *path, size_t path_bytes) {
  const char *text = (const char *)(name + 1);
  return name->hash == hash && name->label_bytes == label_bytes && name->path_bytes == path_bytes &&
         memcmp(text, label, label_bytes) == 0 && memcmp(text + label_bytes, path, path_bytes) == 0;
}

static uint32_t find_name(uint32_t hash, const char *label, size_t label_bytes, const char *path, size_t path_bytes) {
  uint32_t offset = __atomic_load_n(&table.name_buckets[hash % NAME_BUCKETS], __ATOMIC_ACQUIRE);
  for (; offset != 0; offset = name_at(offset)->next) {
    if (is_name(name_at(offset), hash, label, label_bytes, path, path_bytes)) return offset;
  }
  return 0;
}

uint32_t profile_table_name(const char *label, size_t label_bytes, const char *path, size_t path_bytes) {
  char copy[PROFILE_LABEL_MAX_BYTES + PROFILE_PATH_MAX_BYTES]; /* nothing of the program is read under the lock (K2) */
  if (label_bytes > PROFILE_LABEL_MAX_BYTES) label_bytes = PROFILE_LABEL_MAX_BYTES;
  if (path_bytes > PROFILE_PATH_MAX_BYTES) {
    path += path_bytes - PROFILE_PATH_MAX_BYTES;
    path_bytes = PROFILE_PATH_MAX_BYTES;
  }
  memcpy(copy, label, label_bytes);
  memcpy(copy + label_bytes, path, path_bytes);
  uint32_t hash = fold(hash_bytes(label_bytes, copy, label_bytes + path_bytes));
  uint32_t offset = find_name(hash, copy, label_bytes, copy + label_bytes, path_bytes);
  if (offset != 0) return offset;
  begin_table_change();
  offset = find_name(hash, copy, label_bytes, copy + label_bytes, path_bytes);
  if (offset == 0) {
    size_t bytes = sizeof(struct snug_profile_name) + label_bytes + path_bytes;
    offset = append_room(&profile_head->names_bytes, NAMES_MAX_BYTES, bytes);
    uint32_t *bucket = &table.name_buckets[hash % NAME_BUCKETS];
    if (offset != 0) {
      struct snug_profile_name *name = name_at(offset);
      *name = (struct snug_profile_name){hash, *bucket, (uint16_t)label_bytes, (uint16_t)path_bytes, 0};
      memcpy(name + 1, copy, label_bytes + path_bytes);
      __atomic_store_n(bucket, offset, __ATOMIC_RELEASE); /* V2 */
    } else {
      profile_head->names_missed++;
    }
  }
  end_table_change();
  return offset;
}

const struct snug_profile_name *profile_table_name_at(uint32_t offset) { return name_at(offset); }

uint64_t profile_table_frame(const struct profile_frames *frames, const char *label, size_t label_bytes,
                             const char *path, size_t path_bytes, uint32_t line) {
  if (frames->tell != NULL) return frames->tell(label, label_bytes, path, path_bytes, line), 0;
  return profile_table_name(label, label_bytes, path, path_bytes) | (uint64_t)line << 32;
}

static struct snug_profile_stack *stack_at(uint32_t offset) {
  return (struct snug_profile_stack *)(table.stacks + (size_t)offset * UNIT_BYTES);
}

static bool is_stack(const struct snug_profile_stack *stack, uint32_t hash, const struct profile_frames *frames) {
  const uint64_t *words = (const uint64_t *)(stack + 1);
  return stack->hash == hash && stack->tags == frames->tags && stack->native_frames == frames->native_count &&
         stack->language_frames == frames->language_count &&
         memcmp(words, frames->native, frames->native_count * sizeof *words) == 0 &&
         memcmp(words + frames->native_count, frames->language, frames->language_count * sizeof *words) == 0;
}

/* Offset of the stack, which is added if it is new; 0: no room. The lock is held. */
static uint32_t intern_stack(const struct profile_frames *frames) {
  size_t native_bytes = frames->native_count * sizeof frames->native[0];
  size_t language_bytes = frames->language_count * sizeof frames->language[0];
  uint64_t mixed = hash_bytes(frames->tags + UINT64_C(0xcbf29ce484222325), frames->native, native_bytes);
  uint32_t hash = fold(hash_bytes(mixed, frames->language, language_bytes));
  uint32_t *bucket = &table.stack_buckets[hash % STACK_BUCKETS];
  for (uint32_t offset = *bucket; offset != 0; offset = stack_at(offset)->next) {
    if (is_stack(stack_at(offset), hash, frames)) return offset;
  }
  size_t bytes = sizeof(struct snug_profile_stack) + native_bytes + language_bytes;
  /* The last stack to be added has no frames, and so a place is kept for it. */
  size_t keep = frames->native_count + frames->language_count != 0 ? sizeof(struct snug_profile_stack) : 0;
  uint32_t offset = append_room(&profile_head->stacks_bytes, STACKS_MAX_BYTES - keep, bytes);
  if (offset == 0) return 0;
  struct snug_profile_stack *stack = stack_at(offset);
  *stack = (struct snug_profile_stack){.hash = hash, .next = *bucket, .tags = frames->tags};
  stack->native_frames = (uint16_t)frames->native_count;
  stack->language_frames = (uint16_t)frames->language_count;
  char *words = (char *)(stack + 1);
  memcpy(words, frames->native, native_bytes);
  memcpy(words + native_bytes, frames->language, language_bytes);
  *bucket = offset;
  return offset;
}

const struct snug_profile_stack *profile_table_stack_at(uint32_t offset) { return stack_at(offset); }

uint32_t profile_table_stack(const struct profile_frames *frames) {
  begin_table_change();
  uint32_t offset = intern_stack(frames);
  if (offset == 0) profile_head->stacks_missed++;
  end_table_change();
  return offset;
}

/* ---- samples ---- */

static uint32_t *bucket_for(uint64_t address) {
  return &table.sample_buckets[(address >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 48];
}
_Static_assert(SAMPLE_BUCKETS == 1 << 16, "as many as the hash has values");

/* The link that leads to the sample of the address, or to the end of its list. */
static uint32_t *link_to(uint64_t address) {
  uint32_t *link = bucket_for(address);
  while (*link != 0 && table.samples[*link - 1].address != address) link = &table.samples[*link - 1].next;
  return link;
}

static void remove_sample(uint32_t *link) {
  uint32_t number = *link;
  struct snug_profile_sample *sample = &table.samples[number - 1];
  struct snug_profile_stack *stack = stack_at(sample->stack);
  stack->live_bytes -= sample->weight_bytes;
  stack->live_blocks -= sample->blocks;
  *link = sample->next;
  *sample = (struct snug_profile_sample){.next = table.unused};
  table.unused = number;
  profile_head->freed++;
  __atomic_store_n(&table.live, table.live - 1, __ATOMIC_RELAXED);
}

/* Row + 1 of an unused sample; 0: none. */
static uint32_t unused_sample(void) {
  uint32_t number = table.unused;
  if (number != 0) {
    table.unused = table.samples[number - 1].next;
  } else if (profile_head->sample_count < profile_head->sample_capacity) {
    number = (uint32_t)++profile_head->sample_count;
  }
  return number;
}

static void drop(uint64_t weight_bytes) {
  profile_head->dropped++;
  profile_head->dropped_bytes += weight_bytes;
}

bool profile_table_add(struct snug_profile_sample *sample, const struct profile_frames *frames) {
  static const struct profile_frames unknown = {.tags = SNUG_PROFILE_NO_ROOM};
  begin_table_change();
  uint32_t *old = link_to(sample->address);
  if (*old != 0) remove_sample(old); /* its free was missed: in a process that shares memory, say */
  uint32_t stack = intern_stack(frames);
  if (stack == 0) {
    profile_head->stacks_missed++;
    stack = intern_stack(&unknown);
  }
  sample->stack = stack;
  uint32_t number = stack != 0 ? unused_sample() : 0;
  if (number != 0) {
    struct snug_profile_sample *row = &table.samples[number - 1];
    uint32_t *bucket = bucket_for(sample->address);
    *row = *sample;
    row->generation = profile_head->generation;
    row->next = *bucket;
    *bucket = number;
    struct snug_profile_stack *where = stack_at(stack);
    where->allocated_bytes += sample->weight_bytes;
    where->allocated_blocks += sample->blocks;
    where->live_bytes += sample->weight_bytes;
    where->live_blocks += sample->blocks;
    profile_head->taken++;
    __atomic_store_n(&table.live, table.live + 1, __ATOMIC_RELAXED);
  } else {
    drop(sample->weight_bytes);
  }
  end_table_change();
  return number != 0;
}

void profile_table_remove(const void *address) {
  begin_table_change();
  uint32_t *link = link_to((uintptr_t)address);
  if (*link != 0) remove_sample(link);
  end_table_change();
}

uint64_t profile_table_live(void) { return __atomic_load_n(&table.live, __ATOMIC_RELAXED); }

uint64_t profile_table_bytes(void) {
  const struct snug_profile *head = profile_head;
  uint64_t buckets_bytes = (SAMPLE_BUCKETS + STACK_BUCKETS + NAME_BUCKETS) * sizeof(uint32_t);
  return buckets_bytes + head->sample_count * sizeof(struct snug_profile_sample) + head->stacks_bytes +
         head->names_bytes;
}

void profile_table_inherit(void) { profile_head->generation++; }

char *profile_table_copy_stacks(size_t *used_bytes, size_t *mapped_bytes) {
  char *copy = table.is_abandoned ? NULL : sys_map(STACKS_MAX_BYTES);
  if (copy == NULL) return NULL;
  sys_no_huge_pages(copy, STACKS_MAX_BYTES);
  lock_take(&table.lock, RANK_PROFILE);
  memcpy(copy, table.stacks, profile_head->stacks_bytes);
  *used_bytes = profile_head->stacks_bytes;
  lock_give(&table.lock, RANK_PROFILE);
  *mapped_bytes = STACKS_MAX_BYTES;
  return copy;
}

void profile_table_reset(void) {
  if (table.is_abandoned) return;
  begin_table_change();
  for (size_t i = 0; i < SAMPLE_BUCKETS; i++) {
    while (table.sample_buckets[i] != 0) remove_sample(&table.sample_buckets[i]);
  }
  for (uint64_t at = UNIT_BYTES; at < profile_head->stacks_bytes;) {
    struct snug_profile_stack *stack = (struct snug_profile_stack *)(table.stacks + at);
    stack->allocated_bytes = stack->allocated_blocks = 0;
    at += profile_stack_bytes(stack);
  }
  end_table_change();
}

void profile_table_abandon(void) {
  __atomic_store_n(&table.live, 0, __ATOMIC_RELAXED);
  table.is_abandoned = true;
}

void profile_table_dropped(uint64_t weight_bytes) {
  begin_table_change();
  drop(weight_bytes);
  end_table_change();
}

/* ---- checks, fork ---- */

void profile_table_check(void) {
  if (profile_head == NULL || table.is_abandoned) return;
  uint64_t live = 0, unused = 0, sampled_bytes = 0, stacks_bytes = 0;
  lock_take(&table.lock, RANK_PROFILE);
  for (size_t i = 0; i < SAMPLE_BUCKETS; i++) {
    for (uint32_t number = table.sample_buckets[i]; number != 0; number = table.samples[number - 1].next) {
      const struct snug_profile_sample *sample = &table.samples[number - 1];
      if (bucket_for(sample->address) != &table.sample_buckets[i]) fatal_corrupted("sample in a list (V1)", sample);
      sampled_bytes += sample->weight_bytes;
      live++;
    }
  }
  for (uint32_t number = table.unused; number != 0; number = table.samples[number - 1].next) unused++;
  if (live != table.live || live + unused != profile_head->sample_count)
    fatal_corrupted("lists of samples (V1)", profile_head);
  for (uint64_t at = UNIT_BYTES; at < profile_head->stacks_bytes;) {
    const struct snug_profile_stack *stack = (const struct snug_profile_stack *)(table.stacks + at);
    stacks_bytes += stack->live_bytes;
    at += profile_stack_bytes(stack);
  }
  if (sampled_bytes != stacks_bytes) fatal_corrupted("live bytes of stacks", profile_head);
  lock_give(&table.lock, RANK_PROFILE);
}

void profile_table_lock_all(void) { lock_take_in_fork(&table.lock, RANK_PROFILE); }
void profile_table_unlock_all(void) { lock_give_in_fork(&table.lock, RANK_PROFILE); }
void profile_table_reset_locks(void) { lock_reset(&table.lock); }
