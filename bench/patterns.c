/* patterns.c: how threads use malloc together, in three ways. Prints wall and CPU time in ns per operation, one malloc and
 * one free of 16 to 1,008 bytes:
 *
 *   own       each thread puts new blocks in place of random ones of its own
 *   handed    the same, and every 10,000 operations the threads hand their blocks on, as connections are by larson
 *   batches   a thread allocates 120 blocks, and another one frees them, as by xmalloc-test
 *
 *   patterns own|handed|batches THREADS OPERATIONS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { THREADS_MAX = 256, BLOCKS = 2000, HANDED_EVERY = 10000, BATCH = 120, BATCHES_MAX = 64 };

struct slots {
  char *blocks[BLOCKS];
};

static struct slots all_slots[THREADS_MAX];
static struct slots *_Atomic handed[THREADS_MAX]; /* what thread n may take next; NULL: it was taken */
static long operations;                           /* of each thread */
static int threads;
static pthread_barrier_t begin;

static struct {
  pthread_mutex_t lock;
  char *blocks[BATCHES_MAX][BATCH]; /* under the lock */
  int count;
} batches = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t next_random(uint64_t *state) { /* xorshift64, Marsaglia */
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}

static char *new_block(uint64_t random) {
  char *block = malloc(16 + (random >> 40) % 993);
  if (block == NULL) exit(1);
  block[0] = 1;
  return block;
}

static void replace(struct slots *slots, uint64_t *state, long count) {
  while (count-- > 0) {
    uint64_t random = next_random(state);
    char **slot = &slots->blocks[random % BLOCKS];
    free(*slot);
    *slot = new_block(random);
  }
}

/* Gives the slots to the next thread, and takes those of the one before once they are there. */
static struct slots *hand_on(struct slots *slots, int number) {
  struct slots *own = NULL;
  struct slots *_Atomic *next = &handed[(number + 1) % threads];
  for (struct slots *expected = NULL; !atomic_compare_exchange_weak(next, &expected, slots); expected = NULL)
    sched_yield();
  while ((own = atomic_exchange(&handed[number], NULL)) == NULL) sched_yield();
  return own;
}

static void *work_on_own(void *argument) {
  int number = (int)(intptr_t)argument;
  uint64_t state = 88172645463325252u + (uint64_t)number * 7919;
  pthread_barrier_wait(&begin);
  replace(&all_slots[number], &state, operations);
  return NULL;
}

static void *work_and_hand_on(void *argument) {
  int number = (int)(intptr_t)argument;
  uint64_t state = 88172645463325252u + (uint64_t)number * 7919;
  struct slots *slots = &all_slots[number];
  pthread_barrier_wait(&begin);
  for (long done = 0; done < operations; done += HANDED_EVERY) {
    replace(slots, &state, HANDED_EVERY);
    slots = hand_on(slots, number);
  }
  return NULL;
}

static void exchange_batch(char **batch) {
  pthread_mutex_lock(&batches.lock);
  if (batches.count == BATCHES_MAX) { /* takes the oldest, and puts its own in its place */
    char *other[BATCH];
    static int place; /* under the lock */
    place = (place + 1) % BATCHES_MAX;
    memcpy(other, batches.blocks[place], sizeof other);
    memcpy(batches.blocks[place], batch, sizeof other);
    memcpy(batch, other, sizeof other);
  } else {
    memcpy(batches.blocks[batches.count++], batch, BATCH * sizeof *batch);
    memset(batch, 0, BATCH * sizeof *batch);
  }
  pthread_mutex_unlock(&batches.lock);
}

static void *work_by_batches(void *argument) {
  uint64_t state = 88172645463325252u + (uint64_t)(intptr_t)argument * 7919;
  char *batch[BATCH];
  pthread_barrier_wait(&begin);
  for (long done = 0; done < operations; done += BATCH) {
    for (int i = 0; i < BATCH; i++) batch[i] = new_block(next_random(&state));
    exchange_batch(batch);
    for (int i = 0; i < BATCH; i++) free(batch[i]);
  }
  return NULL;
}

static double now_ns(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int argc, char **argv) {
  void *(*work)(void *) = NULL;
  if (argc == 4 && strcmp(argv[1], "own") == 0) work = work_on_own;
  if (argc == 4 && strcmp(argv[1], "handed") == 0) work = work_and_hand_on;
  if (argc == 4 && strcmp(argv[1], "batches") == 0) work = work_by_batches;
  threads = argc == 4 ? atoi(argv[2]) : 0;
  if (work == NULL || threads < 1 || threads > THREADS_MAX || (operations = atol(argv[3])) < 1) {
    fprintf(stderr, "usage: patterns own|handed|batches THREADS OPERATIONS\n");
    return 2;
  }
  pthread_t started[THREADS_MAX];
  pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
  for (int i = 0; i < threads; i++)
    if (pthread_create(&started[i], NULL, work, (void *)(intptr_t)i) != 0) return 1;
  double wall_ns = now_ns(CLOCK_MONOTONIC), cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID); /* after it, work may be done */
  pthread_barrier_wait(&begin);
  for (int i = 0; i < threads; i++) pthread_join(started[i], NULL);
  double done = (double)operations * threads;
  printf("%.2f %.2f\n", (now_ns(CLOCK_MONOTONIC) - wall_ns) / done, (now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns) / done);
  return 0;
}
