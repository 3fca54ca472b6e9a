/* samples.c: the table of sampled allocations, small enough to be full at times, beside a list of the samples and sums
 * for each stack. */
#include "world.h"

#include "../../../src/profile_table.h"

#include <sys/mman.h>

enum { ADDRESSES = 1024, SAMPLES = 600, STACKS = 64 };

enum samples_operation {
  SAMPLES_ADD,
  SAMPLES_REMOVE,
  SAMPLES_NAME,
  SAMPLES_STACK,
  SAMPLES_DROP,
  SAMPLES_INHERIT,
  SAMPLES_RESET,
  SAMPLES_COPY
};

static const char *const samples_operations[] = {
    "add", "remove", "name", "stack", "drop", "inherit", "reset", "copy", NULL,
};

static struct model_sample {
  bool is_live;
  uint64_t weight_bytes;
  uint32_t stack;
} samples[ADDRESSES];
static uint32_t stack_offsets[STACKS]; /* 0: not seen yet */
static uint64_t live_bytes[STACKS], live_count, taken, freed, dropped;
static uint32_t generation;

static const void *address_of(unsigned number) { return (const void *)(uintptr_t)((uint64_t)(number + 1) << 12); }

static struct profile_frames *frames_of(unsigned stack) {
  static struct profile_frames frames;
  frames.tags = stack % 3 == 0 ? SNUG_PROFILE_RUBY : 0;
  frames.native_count = 1 + stack % PROFILE_NATIVE_MAX;
  frames.language_count = stack % 7 == 0 ? stack % PROFILE_LANGUAGE_MAX : 0;
  for (size_t i = 0; i < frames.native_count; i++) frames.native[i] = stack * 1000 + i;
  for (size_t i = 0; i < frames.language_count; i++) frames.language[i] = stack * 2000 + i;
  return &frames;
}

/* The same stack is always at the same place. */
static void note_stack(unsigned stack, uint32_t offset) {
  if (offset == 0) fuzz_fail("no room for stack %u", stack);
  if (stack_offsets[stack] != 0 && stack_offsets[stack] != offset) fuzz_fail("stack %u is there twice", stack);
  stack_offsets[stack] = offset;
}

static void forget(unsigned number) {
  struct model_sample *sample = &samples[number];
  if (!sample->is_live) return;
  live_bytes[sample->stack] -= sample->weight_bytes;
  sample->is_live = false;
  live_count--;
  freed++;
}

static void add(unsigned number, unsigned b) {
  unsigned stack = b % STACKS;
  struct snug_profile_sample sample = {
      .address = (uintptr_t)address_of(number), .size_bytes = b, .weight_bytes = (uint64_t)b * 3 + 1, .blocks = 1024};
  forget(number);
  bool done = profile_table_add(&sample, frames_of(stack));
  note_stack(stack, sample.stack);
  if (done != (live_count < SAMPLES)) fuzz_fail("%llu samples are live: %d", (unsigned long long)live_count, done);
  dropped += !done;
  if (!done) return;
  samples[number] = (struct model_sample){true, sample.weight_bytes, stack};
  live_bytes[stack] += sample.weight_bytes;
  live_count++;
  taken++;
}

static void add_name(unsigned a, unsigned b) {
  static const char text[] = "a name of a function, and more of it, and a path to a file that is as long: ";
  char label[1024], path[1024];
  size_t label_bytes = b % 200, path_bytes = b / 200 * 3 % 600;
  for (size_t i = 0; i < sizeof label; i++) label[i] = path[i] = (char)(text[i % sizeof text] ^ (a % 8));
  uint32_t offset = profile_table_name(label, label_bytes, path, path_bytes);
  if (offset == 0) return; /* names are never taken away */
  if (profile_table_name(label, label_bytes, path, path_bytes) != offset) fuzz_fail("a name is there twice");
  const struct snug_profile_name *name = profile_table_name_at(offset);
  size_t label_kept = label_bytes < PROFILE_LABEL_MAX_BYTES ? label_bytes : PROFILE_LABEL_MAX_BYTES;
  size_t path_kept = path_bytes < PROFILE_PATH_MAX_BYTES ? path_bytes : PROFILE_PATH_MAX_BYTES;
  const char *kept = (const char *)(name + 1);
  if (name->label_bytes != label_kept || name->path_bytes != path_kept || memcmp(kept, label, label_kept) != 0 ||
      memcmp(kept + label_kept, path + path_bytes - path_kept, path_kept) != 0)
    fuzz_fail("a name of %zu and %zu bytes has changed", label_bytes, path_bytes);
}

static void copy_stacks(void) {
  size_t used_bytes, mapped_bytes;
  uint64_t refused = refused_calls;
  char *copy = profile_table_copy_stacks(&used_bytes, &mapped_bytes);
  if (copy == NULL && refused == refused_calls) fuzz_fail("no copy");
  if (copy == NULL) return;
  uint64_t sum = 0, expected = 0;
  for (size_t at = 8; at < used_bytes;) {
    const struct snug_profile_stack *stack = (const struct snug_profile_stack *)(copy + at);
    sum += stack->live_bytes;
    at += profile_stack_bytes(stack);
  }
  for (size_t i = 0; i < STACKS; i++) expected += live_bytes[i];
  if (sum != expected) fuzz_fail("stacks have %llu live bytes", (unsigned long long)sum);
  munmap(copy, mapped_bytes);
}

static void samples_begin(void) {
  begin_core();
  if (!profile_table_make(SAMPLES)) fuzz_fail("no table");
}

static void samples_step(unsigned operation, unsigned a, unsigned b) {
  unsigned number = (a + b / 64 * 256) % ADDRESSES;
  switch ((enum samples_operation)operation) {
    case SAMPLES_ADD: return add(number, b);
    case SAMPLES_REMOVE: forget(number); return profile_table_remove(address_of(number));
    case SAMPLES_NAME: return add_name(a, b);
    case SAMPLES_STACK: return note_stack(b % STACKS, profile_table_stack(frames_of(b % STACKS)));
    case SAMPLES_DROP: dropped++; return profile_table_dropped(b);
    case SAMPLES_INHERIT: generation++; return profile_table_inherit();
    case SAMPLES_RESET:
      if (a % 32 != 0) return;
      for (unsigned i = 0; i < ADDRESSES; i++) forget(i);
      return profile_table_reset();
    case SAMPLES_COPY:
      if (a % 32 == 0) copy_stacks();
      return;
  }
}

static void samples_check(void) {
  const struct snug_profile *head = profile_head;
  profile_table_check();
  bool same = profile_table_live() == live_count && head->taken == taken && head->freed == freed &&
              head->dropped == dropped && head->generation == generation && head->changes % 2 == 0;
  if (!same)
    fuzz_fail("%llu samples are live, not %llu", (unsigned long long)profile_table_live(),
              (unsigned long long)live_count);
  for (unsigned i = 0; i < STACKS; i++) {
    if (stack_offsets[i] != 0 && profile_table_stack_at(stack_offsets[i])->live_bytes != live_bytes[i])
      fuzz_fail("stack %u has other live bytes", i);
  }
}

static void samples_end(void) {
  for (unsigned i = 0; i < ADDRESSES; i++) {
    forget(i);
    profile_table_remove(address_of(i));
  }
  samples_check();
}

static void samples_spoil(void) { profile_head->taken++; }

const struct fuzz_module samples_module = {"samples",     samples_operations, samples_begin, samples_step,
                                           samples_check, samples_end,        samples_spoil};
