#include "model.h"

#include "../../include/snug.h"
#include "../support/test.h"

#include <malloc.h>
#include <pthread.h>

/* Younger than the C libraries we run on, or snug's alone. */
extern void free_sized(void *block, size_t size_bytes) __attribute__((weak));
extern void free_aligned_sized(void *block, size_t alignment, size_t size_bytes) __attribute__((weak));
extern int snug_stats(struct snug_stats *stats, size_t stats_size_bytes) __attribute__((weak));
extern size_t snug_purge(void) __attribute__((weak));
extern size_t snug_check(void) __attribute__((weak));

struct slot {
  unsigned char *block; /* NULL: empty */
  size_t size_bytes;    /* as requested, or as filled by 'u' */
  size_t requested_bytes;
  size_t alignment; /* 0: not from an aligning call */
  uint64_t seed;
};

/* What the C library may allocate meanwhile: a control block per thread, stdio buffers. */
enum { OTHERS_BYTES = 64 * 1024 };

static struct {
  struct slot slots[FUZZ_SLOTS];
  const struct instruction *list;
  size_t count, step, check_interval;
  size_t child_end; /* in a forked child: the step at which it ends; else count */
  uint64_t seeds;
  unsigned current, dispatcher; /* threads: the one that executes, the one that reads the list */
  uint64_t base_allocated_bytes;
} model;

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...) {
  char what[512], line[128] = "the end";
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  if (model.step < model.count) instruction_print(&model.list[model.step], line, sizeof line);
  test_print(2, "fuzz: step %zu (%s) in thread %u of process %d: %s\n", model.step, line, model.current, (int)getpid(),
             what);
  abort();
}

/* ---- contents ---- */

/* All bytes of a small block; the begin of each page of a big one, and its end. */
static size_t step_after(size_t offset, size_t size_bytes) {
  if (size_bytes <= 8192 || offset % 4096 < 16 || offset + 64 >= size_bytes) return 1;
  size_t to_page = 4096 - offset % 4096, to_tail = size_bytes - 64 - offset;
  return to_page < to_tail ? to_page : to_tail;
}

static void fill(struct slot *slot) {
  slot->seed = ++model.seeds;
  for (size_t i = 0; i < slot->size_bytes; i += step_after(i, slot->size_bytes))
    slot->block[i] = pattern_byte(slot->seed, i);
}

/* F2. The offsets are those of fill for slot->size_bytes, up to `common`. */
static void check_contents(const struct slot *slot, size_t common) {
  for (size_t i = 0; i < common; i += step_after(i, slot->size_bytes))
    if (slot->block[i] != pattern_byte(slot->seed, i))
      fail("slot %zu, block %p of %zu bytes, has 0x%02x at %zu instead of 0x%02x", (size_t)(slot - model.slots),
           (void *)slot->block, slot->size_bytes, slot->block[i], i, pattern_byte(slot->seed, i));
}

/* F1 */
static void check_new(const struct slot *slot) {
  size_t alignment = slot->alignment > 16 ? slot->alignment : 16;
  if (!snug_is_active() && slot->alignment <= 16) alignment = 8;
  if ((uintptr_t)slot->block % alignment != 0) fail("%p is not aligned to %zu", (void *)slot->block, alignment);
  size_t usable = malloc_usable_size(slot->block);
  if (usable < slot->requested_bytes) fail("%zu usable bytes for a request of %zu", usable, slot->requested_bytes);
  for (const struct slot *other = model.slots; other < model.slots + FUZZ_SLOTS; other++) {
    if (other == slot || other->block == NULL) continue;
    if (slot->block < other->block + malloc_usable_size(other->block) && other->block < slot->block + usable)
      fail("%p of %zu bytes overlaps %p of %zu bytes in slot %zu", (void *)slot->block, usable, (void *)other->block,
           other->size_bytes, (size_t)(other - model.slots));
  }
}

/* F5 */
static void check_counters(void) {
  if (snug_stats == NULL || freed_blocks_wait()) return;
  uint64_t requested = 0, usable = 0;
  for (const struct slot *slot = model.slots; slot < model.slots + FUZZ_SLOTS; slot++) {
    if (slot->block == NULL) continue;
    requested += slot->requested_bytes;
    usable += malloc_usable_size(slot->block);
  }
  struct snug_stats stats;
  if (snug_stats(&stats, sizeof stats) != 0) fail("snug_stats failed");
  uint64_t counted = stats.live_allocated_bytes - model.base_allocated_bytes;
  if (counted + OTHERS_BYTES < requested || counted > usable + OTHERS_BYTES + (uint64_t)4096 * FUZZ_SLOTS)
    fail("snug_stats counts %lld live bytes; the slots hold %llu requested, %llu usable", (long long)counted,
         (unsigned long long)requested, (unsigned long long)usable);
}

static void check_all(void) {
  for (const struct slot *slot = model.slots; slot < model.slots + FUZZ_SLOTS; slot++)
    if (slot->block != NULL) check_contents(slot, slot->size_bytes);
  if (snug_check != NULL) snug_check();
  check_counters();
}

/* ---- instructions ---- */

static void release(struct slot *slot, bool sized) {
  if (slot->block == NULL) return;
  check_contents(slot, slot->size_bytes);
  errno = 4321;
  if (!sized || free_sized == NULL)
    free(slot->block);
  else if (slot->alignment != 0)
    free_aligned_sized(slot->block, slot->alignment, slot->requested_bytes);
  else
    free_sized(slot->block, slot->requested_bytes);
  if (errno != 4321) fail("free set errno to %d", errno);
  slot->block = NULL;
}

static void take(struct slot *slot, void *block, size_t size_bytes, size_t alignment) {
  if (block == NULL) fail("no memory for %zu bytes, errno %d", size_bytes, errno);
  *slot = (struct slot){(unsigned char *)block, size_bytes, size_bytes, alignment, 0};
  check_new(slot);
  fill(slot);
}

static void take_zeroed(struct slot *slot, size_t count, size_t size_bytes) {
  unsigned char *block = (unsigned char *)calloc(count, size_bytes);
  if (block != NULL && nonzero_offset(block, count * size_bytes) != count * size_bytes)
    fail("calloc(%zu, %zu) = %p has 0x%02x at %zu", count, size_bytes, (void *)block,
         block[nonzero_offset(block, count * size_bytes)], nonzero_offset(block, count * size_bytes));
  take(slot, block, count * size_bytes, 0);
}

static void take_aligned(struct slot *slot, char operation, size_t alignment, size_t size_bytes) {
  void *block = NULL;
  if (operation == 'A')
    block = aligned_alloc(alignment, size_bytes);
  else if (operation == 'M')
    block = memalign(alignment, size_bytes);
  else if (posix_memalign(&block, alignment, size_bytes) != 0)
    block = NULL;
  take(slot, block, size_bytes, alignment);
}

static void resize(struct slot *slot, size_t count, size_t size_bytes, bool array) {
  size_t wanted = count * size_bytes;
  if (slot->block != NULL && wanted == 0) { /* the C libraries disagree; all agree that the old block is gone */
    check_contents(slot, slot->size_bytes);
    void *left = realloc(slot->block, 0);
    slot->block = NULL;
    free(left);
    return;
  }
  struct slot before = *slot;
  void *block = array ? reallocarray(before.block, count, size_bytes) : realloc(before.block, wanted);
  if (block != NULL && before.block != NULL) {
    before.block = (unsigned char *)block;
    check_contents(&before, before.size_bytes < wanted ? before.size_bytes : wanted);
  }
  slot->block = NULL;
  take(slot, block, wanted, 0);
}

static void use_all(struct slot *slot) {
  if (slot->block == NULL) return;
  check_contents(slot, slot->size_bytes);
  slot->size_bytes = malloc_usable_size(slot->block);
  fill(slot);
}

static void expect_failure(const struct slot *slot, size_t size_bytes) {
  errno = 0;
  void *block = hidden(malloc(hidden_size(size_bytes)));
  if (block != NULL || errno != ENOMEM) fail("malloc(%zu) = %p, errno %d", size_bytes, block, errno);
  if (slot->block == NULL) return;
  errno = 0;
  block = hidden(realloc(slot->block, hidden_size(size_bytes)));
  if (block != NULL || errno != ENOMEM) fail("realloc(.., %zu) = %p, errno %d", size_bytes, block, errno);
  check_contents(slot, slot->size_bytes);
}

static void release_all(void) {
  for (size_t i = 0; i < FUZZ_SLOTS; i++) release(&model.slots[i], i % 2 == 1);
}

static void begin_child(unsigned self, size_t instructions);

static bool threads_were_started;

static void fork_here(unsigned self, size_t instructions) {
  /* The emulator (qemu-user 7.2) aborts when a child of a process with threads starts threads, on glibc's malloc, too.
   */
  if (threads_were_started && getenv("TEST_EMULATED")) return;
  check_all();
  pid_t child = fork();
  if (child < 0) fail("fork: errno %d", errno);
  if (child == 0) {
    begin_child(self, instructions);
    return;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail("waitpid: errno %d", errno);
  if (status != 0) fail("the child ended with wait status 0x%x", status);
  check_all();
}

/* Executes an instruction in the thread that calls. */
static void execute(const struct instruction *instruction, unsigned self) {
  struct slot *slot = &model.slots[instruction->a % FUZZ_SLOTS];
  size_t b = (size_t)instruction->b, c = (size_t)instruction->c;
  switch (instruction->operation) {
    case 'm':
      release(slot, false);
      take(slot, malloc(b), b, 0);
      break;
    case 'c':
      release(slot, false);
      take_zeroed(slot, b, c);
      break;
    case 'a':
    case 'A':
    case 'M':
      release(slot, false);
      take_aligned(slot, instruction->operation, b, c);
      break;
    case 'r': resize(slot, 1, b, false); break;
    case 'R': resize(slot, b, c, true); break;
    case 'f': release(slot, false); break;
    case 's': release(slot, true); break;
    case 'u': use_all(slot); break;
    case 'x': expect_failure(slot, b); break;
    case 't': trim_heap(); break;
    case 'p':
      if (snug_purge != NULL) snug_purge();
      break;
    case 'w': sleep_ms((long)(instruction->a % 1000)); break;
    case 'k': fork_here(self, (size_t)instruction->a); break;
    case '!':
      if (slot->block != NULL && slot->size_bytes > 0) slot->block[0] ^= 1;
      break;
    default: break; /* T and X are the dispatcher's */
  }
}

/* ---- threads: one executes at a time, the others wait ---- */

enum worker_state { WORKER_ABSENT, WORKER_IDLE, WORKER_EXECUTES, WORKER_ENDS };

static struct worker {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  enum worker_state state;
  struct instruction instruction;
} workers[FUZZ_THREADS];

static void run_child_to_its_end(unsigned self);

static void *work(void *argument) {
  unsigned self = (unsigned)(uintptr_t)argument;
  struct worker *worker = &workers[self];
  pthread_mutex_lock(&worker->lock);
  while (worker->state != WORKER_ENDS) {
    if (worker->state == WORKER_EXECUTES) {
      pid_t process = getpid();
      execute(&worker->instruction, self);
      if (getpid() != process) run_child_to_its_end(self); /* it was a fork: here the new process begins */
      worker->state = WORKER_IDLE;
      pthread_cond_broadcast(&worker->changed);
    }
    if (worker->state == WORKER_IDLE) pthread_cond_wait(&worker->changed, &worker->lock);
  }
  pthread_mutex_unlock(&worker->lock);
  return NULL;
}

static void start_worker(unsigned number) {
  struct worker *worker = &workers[number];
  if (worker->state != WORKER_ABSENT) return;
  pthread_mutex_init(&worker->lock, NULL);
  pthread_cond_init(&worker->changed, NULL);
  worker->state = WORKER_IDLE;
  threads_were_started = true;
  int error = pthread_create(&worker->thread, NULL, work, (void *)(uintptr_t)number);
  if (error != 0) fail("pthread_create: error %d", error);
}

static void end_worker(unsigned number) {
  struct worker *worker = &workers[number];
  if (number == model.dispatcher || worker->state == WORKER_ABSENT) return;
  pthread_mutex_lock(&worker->lock);
  worker->state = WORKER_ENDS;
  pthread_cond_broadcast(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
  pthread_join(worker->thread, NULL);
  worker->state = WORKER_ABSENT;
}

static void execute_in_current(const struct instruction *instruction) {
  if (model.current == model.dispatcher) {
    execute(instruction, model.current);
    return;
  }
  struct worker *worker = &workers[model.current];
  start_worker(model.current);
  pthread_mutex_lock(&worker->lock);
  worker->instruction = *instruction;
  worker->state = WORKER_EXECUTES;
  pthread_cond_broadcast(&worker->changed);
  while (worker->state == WORKER_EXECUTES) pthread_cond_wait(&worker->changed, &worker->lock);
  pthread_mutex_unlock(&worker->lock);
}

static void run_steps(void) {
  for (; model.step < model.count && model.step < model.child_end; model.step++) {
    const struct instruction *instruction = &model.list[model.step];
    if (instruction->operation == 'T') {
      model.current = (unsigned)instruction->a % FUZZ_THREADS;
    } else if (instruction->operation == 'X') {
      unsigned number = (unsigned)instruction->a % FUZZ_THREADS;
      end_worker(number);
      if (number == model.current) model.current = model.dispatcher;
    } else {
      execute_in_current(instruction);
    }
    if (model.check_interval != 0 && model.step % model.check_interval == 0) check_all();
  }
}

static void finish(void) {
  check_all();
  release_all();
  for (unsigned i = 0; i < FUZZ_THREADS; i++) end_worker(i);
  check_all();
}

/* In a forked child only the thread that forked lives: it becomes the dispatcher. */
static void begin_child(unsigned self, size_t instructions) {
  model.dispatcher = self;
  for (unsigned i = 0; i < FUZZ_THREADS; i++) workers[i].state = WORKER_ABSENT;
  size_t end = model.step + 1 + instructions;
  if (end < model.child_end) model.child_end = end;
  alarm(60);
  check_all();
  if (self == 0) run_child_to_its_end(self);
}

static void run_child_to_its_end(unsigned self) {
  model.current = self;
  model.step++;
  run_steps();
  finish();
  _exit(0);
}

void model_run(const struct instruction *list, size_t count, size_t check_interval) {
  memset(&model, 0, sizeof model);
  model.list = list;
  model.count = model.child_end = count;
  model.check_interval = check_interval;
  free(hidden(malloc(1))); /* so that the allocator has begun */
  if (snug_stats != NULL) {
    struct snug_stats stats;
    snug_stats(&stats, sizeof stats);
    model.base_allocated_bytes = stats.live_allocated_bytes;
  }
  run_steps();
  finish();
}
