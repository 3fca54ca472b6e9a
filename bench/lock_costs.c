/* lock_costs.c: what the core's locks and a line that moves between two CPUs cost, in ns, as JSON. It includes the core, so
 * that the locks are its own.
 *
 *   pair_ns       a lock taken and given, by one thread
 *   line_ns       a line that another CPU has changed, one way: half of a round of two threads that wait for each other
 *   ticks_per_ns  of the CPU's counter, which counted_locks.c notes
 *   taken         for some ns of work between two turns at one lock, and what is done under it (0 or 4 lines are
 *                 changed): how many ns pass per turn of one thread alone, and of either of two
 *
 * Each is the least of several bursts of turns that fit into a time slice, since whatever else runs only adds. For two
 * threads at one lock it is the median, as in the least one thread may have come after the other.
 *
 *   lock_costs BURSTS
 */
#include "../core/src/snug.c"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { LINES = 4, SPACING_BYTES = 128, TURNS = 200, PATIENCE = 5000, BURSTS_MAX = 10000 };

static struct lock lock __attribute__((aligned(128)));
static struct {
  uint64_t value;
} __attribute__((aligned(SPACING_BYTES))) lines[LINES];
static uint32_t turn __attribute__((aligned(128)));
static uint32_t ready __attribute__((aligned(128)));
static double burst_ns[2][BURSTS_MAX]; /* per turn, by thread */
static int bursts;
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

/* A thread that waits for longer than a line takes gives its CPU away: the other one does not run. */
static void wait_for(uint32_t *word, uint32_t value) {
  for (int i = 0; __atomic_load_n(word, __ATOMIC_ACQUIRE) < value; i++) {
    if (i < PATIENCE) {
      sys_cpu_relax();
    } else {
      sched_yield();
    }
  }
}

static void meet(uint32_t count) {
  __atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
  wait_for(&ready, count);
}

static void bounce(uint32_t own) {
  for (int i = 0; i < TURNS; i++) {
    wait_for(&turn, 2 * (uint32_t)i + own);
    __atomic_store_n(&turn, 2 * (uint32_t)i + own + 1, __ATOMIC_RELEASE);
  }
}

static void take_turns(uint32_t own) {
  (void)own;
  for (int i = 0; i < TURNS; i++) {
    lock_take(&lock, RANK_CLASS);
    for (int line = 0; line < lines_changed; line++) {
      __atomic_store_n(&lines[line].value, lines[line].value + 1, __ATOMIC_RELAXED);
    }
    lock_give(&lock, RANK_CLASS);
    for (uint64_t since = sys_ticks(); work_ticks > 0 && sys_ticks() - since < (uint64_t)work_ticks;) {
    }
  }
}

static void (*burst_of)(uint32_t own);

static void *do_bursts(void *number) {
  uint32_t own = (uint32_t)(uintptr_t)number;
  pin((intptr_t)number);
  for (int i = 0; i < bursts; i++) {
    if (own == 0) __atomic_store_n(&turn, 0, __ATOMIC_RELAXED);
    meet(4 * (uint32_t)i + 2);
    double begin = now_ns();
    burst_of(own);
    burst_ns[own][i] = (now_ns() - begin) / TURNS;
    meet(4 * (uint32_t)i + 4);
  }
  return NULL;
}

static int compare(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

/* ns per turn of thread 0: the burst that is longer than `percent` of all. */
static double in_two_threads(void (*burst)(uint32_t own), int percent) {
  pthread_t threads[2];
  burst_of = burst;
  ready = turn = 0;
  for (intptr_t i = 0; i < 2; i++) {
    if (pthread_create(&threads[i], NULL, do_bursts, (void *)i) != 0) exit(1);
  }
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  qsort(burst_ns[0], (size_t)bursts, sizeof(double), compare);
  return burst_ns[0][(size_t)bursts * (size_t)percent / 100];
}

static double alone(void) {
  double least = 1e9;
  for (int i = 0; i < bursts; i++) {
    double begin = now_ns();
    take_turns(0);
    double ns = (now_ns() - begin) / TURNS;
    if (ns < least) least = ns;
  }
  return least;
}

int main(int argc, char **argv) {
  bursts = argc == 2 ? atoi(argv[1]) : 0;
  if (bursts < 1 || bursts > BURSTS_MAX) {
    fprintf(stderr, "usage: lock_costs BURSTS\n");
    return 2;
  }
  uint64_t ticks = sys_ticks();
  double begin = now_ns();
  struct timespec pause = {0, 100000000};
  nanosleep(&pause, NULL);
  double ticks_per_ns = (double)(sys_ticks() - ticks) / (now_ns() - begin);
  printf("{\"pair_ns\": %.2f, \"line_ns\": %.2f, \"ticks_per_ns\": %.4f, \"taken\": [", alone(),
         in_two_threads(bounce, 0) / 2, ticks_per_ns);
  static const int works_ns[] = {0, 100, 300, 1000, 3000};
  const char *separator = "";
  for (lines_changed = 0; lines_changed <= LINES; lines_changed += LINES) {
    for (size_t i = 0; i < sizeof works_ns / sizeof works_ns[0]; i++) {
      work_ticks = (int)(works_ns[i] * ticks_per_ns);
      double one = alone(), two = in_two_threads(take_turns, 50);
      printf("%s{\"work_ns\": %d, \"lines\": %d, \"alone_ns\": %.1f, \"of_two_ns\": %.1f}", separator, works_ns[i],
             lines_changed, one, two);
      separator = ", ";
    }
  }
  printf("]}\n");
  return 0;
}
