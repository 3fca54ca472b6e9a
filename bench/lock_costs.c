/* lock_costs.c: what the core's locks and a line that moves between two CPUs cost, in ns, as JSON. It includes the core, so
 * that the locks are its own.
 *
 *   pair_ns       a lock taken and given, by one thread
 *   line_ns       a line that another CPU has changed, one way: half of a round of two threads that wait for each other
 *   ticks_per_ns  of the CPU's counter, which counted_locks.c notes
 *   taken         for some ns of work between two turns at one lock, and what is done under it (0 or 4 lines are
 *                 changed): how many ns pass per turn of one thread alone, and of either of two
 *
 *   lock_costs TURNS
 */
#include "../core/src/snug.c"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { LINES = 4, APART_BYTES = 128 };

static struct lock lock __attribute__((aligned(128)));
static struct {
  uint64_t value;
} __attribute__((aligned(APART_BYTES))) lines[LINES];
static uint32_t turn __attribute__((aligned(128)));
static uint32_t ready __attribute__((aligned(128)));
static long turns;
static int lines_changed, work_ticks;

static double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void pin(intptr_t number) {
  cpu_set_t allowed, one;
  sched_getaffinity(0, sizeof allowed, &allowed);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, &allowed) && number-- == 0) CPU_SET(cpu, &one);
  }
  if (CPU_COUNT(&one) == 1) sched_setaffinity(0, sizeof one, &one);
}

static void meet(uint32_t count) {
  __atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < count) sched_yield();
}

static void *bounce(void *number) {
  uint32_t own = (uint32_t)(uintptr_t)number;
  pin((intptr_t)number);
  meet(2);
  for (long i = 0; i < turns; i++) {
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != own) sys_cpu_relax();
    __atomic_store_n(&turn, 1 - own, __ATOMIC_RELEASE);
  }
  return NULL;
}

static void take_turns(void) {
  for (long i = 0; i < turns; i++) {
    lock_take(&lock, RANK_CLASS);
    for (int line = 0; line < lines_changed; line++) {
      __atomic_store_n(&lines[line].value, lines[line].value + 1, __ATOMIC_RELAXED);
    }
    lock_give(&lock, RANK_CLASS);
    for (uint64_t since = sys_ticks(); work_ticks > 0 && sys_ticks() - since < (uint64_t)work_ticks;) {
    }
  }
}

static void *take_turns_in_thread(void *number) {
  pin((intptr_t)number);
  meet(2);
  take_turns();
  return NULL;
}

static double in_two_threads(void *(*function)(void *)) {
  pthread_t threads[2];
  ready = 0;
  turn = 0;
  double begin = now_ns();
  for (intptr_t i = 0; i < 2; i++) {
    if (pthread_create(&threads[i], NULL, function, (void *)i) != 0) exit(1);
  }
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  return (now_ns() - begin) / (double)turns;
}

static double alone(void) {
  double begin = now_ns();
  take_turns();
  return (now_ns() - begin) / (double)turns;
}

int main(int argc, char **argv) {
  turns = argc == 2 ? atol(argv[1]) : 0;
  if (turns < 1) {
    fprintf(stderr, "usage: lock_costs TURNS\n");
    return 2;
  }
  uint64_t ticks = sys_ticks();
  double begin = now_ns();
  struct timespec pause = {0, 100000000};
  nanosleep(&pause, NULL);
  double ticks_per_ns = (double)(sys_ticks() - ticks) / (now_ns() - begin);
  alone();
  printf("{\"pair_ns\": %.2f, \"line_ns\": %.2f, \"ticks_per_ns\": %.4f, \"taken\": [", alone(),
         in_two_threads(bounce) / 2, ticks_per_ns);
  static const int works_ns[] = {0, 100, 300, 1000, 3000};
  const char *separator = "";
  for (lines_changed = 0; lines_changed <= LINES; lines_changed += LINES) {
    for (size_t i = 0; i < sizeof works_ns / sizeof works_ns[0]; i++) {
      work_ticks = (int)(works_ns[i] * ticks_per_ns);
      double one = alone(), two = in_two_threads(take_turns_in_thread);
      printf("%s{\"work_ns\": %d, \"lines\": %d, \"alone_ns\": %.1f, \"of_two_ns\": %.1f}", separator, works_ns[i],
             lines_changed, one, two);
      separator = ", ";
    }
  }
  printf("]}\n");
  return 0;
}
