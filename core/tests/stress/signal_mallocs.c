/* Signal handlers allocate and free wherever they interrupt their thread, under locks, too, and return; or they end the
 * process, whose exit handlers free all. POSIX forbids both, and with glibc's malloc such programs may die, but with
 * one thread none of them hangs.
 *
 * A handler that interrupts the fast path and uses the same bin may get a block twice, as from glibc. So what returns
 * shares no class with what it interrupts, but pages and mappings; whoever ends the process shares all. */
#include "stress.h"

#include <sys/time.h>

enum { TIMEOUT_S = 60, PERIOD_US = 300, OWN_BLOCKS = 500, GUEST_BLOCKS = 32, ALL_BLOCKS = 2000 };

struct set {
  struct parcel own[OWN_BLOCKS], guest[GUEST_BLOCKS];
  uint64_t guest_random;
};
static struct set sets[THREADS_MAX];
static __thread struct set *my_set;
static atomic_ullong handled;

static void check(const struct parcel *parcel) {
  size_t bytes = parcel->size_bytes < 64 ? parcel->size_bytes : 64;
  STRESS_CHECK(pattern_mismatch(parcel->block, bytes, parcel->seed) == bytes && parcel->block[parcel->size_bytes - 1],
               "block %p of %zu bytes was written to", (void *)parcel->block, parcel->size_bytes);
}

static void let_go(struct parcel *parcel) {
  if (parcel->block == NULL) return;
  check(parcel);
  free(parcel->block);
  parcel->block = NULL;
}

static void renew(struct parcel *parcel, size_t size_bytes, uint64_t seed) {
  let_go(parcel);
  unsigned char *block = malloc(size_bytes);
  STRESS_CHECK(block != NULL, "no memory for %zu bytes", size_bytes);
  block[size_bytes - 1] = 1;
  fill_pattern(block, size_bytes < 64 ? size_bytes : 64, seed);
  if (block[size_bytes - 1] == 0) block[size_bytes - 1] = 1, seed = 0;
  *parcel = (struct parcel){block, size_bytes, seed};
}

/* Up to 128 bytes each multiple of 16 is a class; those from 32 KiB on have no bins. */
static size_t size_for(uint64_t *random, bool is_guest) {
  switch (random_below(random, 64)) {
    case 0: return MIB + random_below(random, MIB);
    case 1 ... 8: return 33 * KIB + random_below(random, 200 * KIB);
    case 9 ... 20: return is_guest ? 5000 : 3000;
    default: return 65 + 32 * random_below(random, 2) + 16 * is_guest;
  }
}

static void be_guest(int signal_number) {
  (void)signal_number;
  int saved = errno;
  struct set *set = my_set;
  for (int i = 0; i < 3; i++) {
    uint64_t seed = random_next(&set->guest_random);
    renew(&set->guest[seed % GUEST_BLOCKS], size_for(&set->guest_random, true), seed);
  }
  atomic_fetch_add(&handled, 1);
  errno = saved;
}

static void set_timer(long first_us, long period_us) {
  struct itimerval timer = {{0, period_us}, {0, first_us}};
  STRESS_CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0, "setitimer: errno %d", errno);
}

static void mask_signal(int how) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  STRESS_CHECK(pthread_sigmask(how, &set, NULL) == 0, "pthread_sigmask: errno %d", errno);
}

static void *work(void *argument) {
  struct set *set = &sets[(uintptr_t)argument];
  uint64_t random = stream_seed((uintptr_t)argument);
  my_set = set;
  mask_signal(SIG_UNBLOCK); /* main, which only waits, would get all of them */
  while (stress_goes_on()) {
    for (int i = 0; i < 200; i++) {
      uint64_t seed = random_next(&random);
      renew(&set->own[seed % OWN_BLOCKS], size_for(&random, false), seed);
    }
  }
  mask_signal(SIG_BLOCK);
  for (size_t i = 0; i < OWN_BLOCKS; i++) let_go(&set->own[i]);
  for (size_t i = 0; i < GUEST_BLOCKS; i++) let_go(&set->guest[i]);
  return NULL;
}

/* Beside a thread that empties the others' caches. */
static void *work_or_trim(void *argument) {
  if (argument != NULL) return work(argument);
  while (stress_goes_on()) malloc_trim(0);
  return NULL;
}

static void run_for(double seconds, void *(*body)(void *), unsigned threads) {
  stress_end_s = now_s() + seconds;
  set_timer(PERIOD_US, PERIOD_US);
  run_threads(body, threads);
  set_timer(0, 0);
}

/* ---- who ends the process ---- */

static void *volatile all[ALL_BLOCKS];

static void free_all(void) {
  for (size_t i = 0; i < ALL_BLOCKS; i++) free(all[i]);
}

__attribute__((noreturn)) static void end_process(int signal_number) {
  (void)signal_number;
  exit(0);
}

static void live_until_signal(uint64_t number) {
  uint64_t random = stream_seed(number);
  signal(SIGALRM, end_process);
  atexit(free_all);
  set_timer(1000 + (long)random_below(&random, 4000), 0);
  for (;;) {
    size_t i = random_below(&random, ALL_BLOCKS);
    void *old = all[i];
    all[i] = NULL; /* or it would be freed twice */
    if (random_below(&random, 8) == 0) {
      all[i] = realloc(old, block_size(&random));
    } else {
      free(old);
      all[i] = malloc(block_size(&random));
    }
  }
}

static unsigned long long end_processes_for(double seconds) {
  unsigned long long count = 0;
  for (double end_s = now_s() + seconds; now_s() < end_s; count++) {
    int status = 0;
    pid_t child = fork();
    STRESS_CHECK(child >= 0, "fork: errno %d", errno);
    if (child == 0) live_until_signal(count);
    double give_up_s = now_s() + TIMEOUT_S;
    while (waitpid(child, &status, WNOHANG) == 0) {
      STRESS_CHECK(now_s() < give_up_s, "child %llu hung for %d s", count, TIMEOUT_S);
      sleep_ms(1);
    }
    STRESS_CHECK(status == 0, "child %llu ended with wait status 0x%x", count, (unsigned)status);
  }
  return count;
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  if (!snug_is_active()) return stress_passed("signal_mallocs"); /* no other malloc promises it */
  unsigned long long ended = end_processes_for(options.seconds / 2);
  struct sigaction action = {.sa_handler = be_guest, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  mask_signal(SIG_BLOCK);
  run_for(options.seconds / 6, work, 1);
  run_for(options.seconds / 6, work, options.threads);
  run_for(options.seconds / 6, work_or_trim, options.threads);
  test_print(2, "signal_mallocs: %llu handlers returned, %llu ended their process\n", handled, ended);
  return stress_passed("signal_mallocs");
}
