/* janitor_test.c: the helper thread starts when there is something to give back, ends by itself, and never crosses a
 * fork. */
#include "../../src/sys.c"

/* A system that lets no thread start, on demand. */
static bool refuse_thread;
static int thread_starts;
static uint32_t start_or_refuse(void (*entry)(void), void *stack, size_t stack_bytes, void *thread_block,
                                uint32_t *alive) {
  thread_starts++;
  return refuse_thread ? 0 : sys_start_thread(entry, stack, stack_bytes, thread_block, alive);
}
#define sys_start_thread start_or_refuse

/* Rights end while a thread looks at the clock, on demand: another one enters a sandbox for all. */
static bool ends_rights;
static uint64_t end_rights_meanwhile(void);
#define sys_coarse_time_ns end_rights_meanwhile

/* The end of the thread takes a while, on demand. */
static bool ends_slowly, end_began; /* atomic */
static void end_slowly(void) {
  __atomic_store_n(&end_began, true, __ATOMIC_RELEASE);
  if (__atomic_load_n(&ends_slowly, __ATOMIC_ACQUIRE)) sys_sleep(UINT64_C(300000000));
  sys_exit_thread();
}
#define sys_exit_thread end_slowly

/* Whatever container the tests run in, this process has a memory limit only on demand. */
static bool is_limited;
static const char *memory_current = "";
static size_t read_file_of_container(const char *path, char *text, size_t capacity_bytes) {
  if (strncmp(path, "/sys/fs/cgroup", strlen("/sys/fs/cgroup")) != 0) return sys_read_file(path, text, capacity_bytes);
  const char *name = strrchr(path, '/') + 1;
  const char *content = !is_limited                           ? ""
                        : strcmp(name, "memory.max") == 0     ? "1000000000\n"
                        : strcmp(name, "memory.current") == 0 ? memory_current
                        : strcmp(name, "memory.stat") == 0    ? "inactive_file 0\nactive_file 0\n"
                                                              : "";
  snprintf(text, capacity_bytes, "%s", content);
  return strlen(text);
}
#define sys_read_file read_file_of_container
#include "above_sys.h"
#include "unit.h"

#include <errno.h>
#include <mqueue.h>
#include <pthread.h>
#include <sys/stat.h>

enum { BLOCKS = 200, GONE_MS = 10000 };

#undef sys_coarse_time_ns
static uint64_t end_rights_meanwhile(void) {
  if (ends_rights) {
    ends_rights = false;
    rights_end();
    thread_starts = 0;
  }
  return sys_coarse_time_ns();
}

/* Threads of this process as the kernel lists them; by the links of the directory, which takes no memory. */
static int thread_count(void) {
  struct stat tasks;
  if (is_emulated()) return 1; /* the emulator has threads of its own */
  REQUIRE(stat("/proc/self/task", &tasks) == 0);
  return (int)tasks.st_nlink - 2;
}

static bool is_gone(void) { return !janitor_is_running(); }

/* The kernel says that it has ended before it takes it off the list. */
static void wait_until_it_is_gone(void) {
  for (int i = 0; i < GONE_MS && !(is_gone() && thread_count() == 1); i++) sleep_ms(1);
  CHECK_THAT(is_gone(), "it still runs after %d ms", GONE_MS);
}

/* Free pages that only a janitor will give back: the budget is nothing. */
static void leave_much_dirty(void) {
  static void *blocks[BLOCKS];
  options.purge_cpu_percent = 0;
  for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(malloc(100 * KIB), 1, 100 * KIB);
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
  CHECK(pages_dirty() * PAGE_BYTES >= 4 * MIB);
}

static void start_again(void) {
  options.background = 0;
  wait_until_it_is_gone();
  snug_purge();
  options.background = 1;
  refuse_thread = false;
  janitor.refused = 0;
}

TEST(it_comes_gives_back_and_goes) {
  start_again();
  uint64_t idle_purges = snug_counters.idle_purges, starts = snug_counters.janitor_starts;
  leave_much_dirty(); /* its slow paths start it */
  free(malloc(100 * KIB));
  for (int i = 0; i < 2 * MAINTAIN_PERIOD && !janitor_is_running(); i++) free(malloc(100 * KIB));
  CHECK(snug_counters.janitor_starts == starts + 1);
  wait_until_it_is_gone();
  CHECK_THAT(pages_dirty() == 0, "%zu dirty pages after it went", pages_dirty());
  CHECK(snug_counters.idle_purges == idle_purges + 1);
  CHECK_THAT(thread_count() == 1, "%d threads", thread_count());
}

/* It has looked for the last time, and the program idles afterwards. */
TEST(what_is_freed_while_it_ends_starts_another_one) {
  start_again();
  leave_much_dirty();
  __atomic_store_n(&end_began, false, __ATOMIC_RELAXED);
  __atomic_store_n(&ends_slowly, true, __ATOMIC_RELEASE);
  janitor_start();
  for (int i = 0; i < GONE_MS && !__atomic_load_n(&end_began, __ATOMIC_ACQUIRE); i++) sleep_ms(1);
  CHECK(pages_dirty() == 0);
  uint64_t starts = snug_counters.janitor_starts;
  options.background = 0; /* no slow path starts it here */
  leave_much_dirty();
  options.background = 1;
  maintain_start_janitor();
  __atomic_store_n(&ends_slowly, false, __ATOMIC_RELEASE);
  CHECK(snug_counters.janitor_starts == starts + 1);
  wait_until_it_is_gone();
  CHECK(pages_dirty() == 0);
}

TEST(it_comes_again_and_again) {
  start_again();
  uint64_t starts = snug_counters.janitor_starts;
  for (int turn = 0; turn < 2; turn++) {
    leave_much_dirty();
    janitor_start();
    CHECK(janitor_is_running());
    uint64_t now = snug_counters.janitor_starts;
    janitor_start(); /* one at a time */
    CHECK(snug_counters.janitor_starts == now);
    wait_until_it_is_gone();
  }
  CHECK(snug_counters.janitor_starts >= starts + 2 && pages_dirty() == 0);
}

/* Where it closed copies of them, the kernel took that for a close by the program: files on a network are written back
 * and waited for, and of a queue nothing is told any more. */
TEST(it_closes_no_copies_of_the_programs_descriptors) {
  if (is_emulated()) SKIP("the emulator has no mq_notify");
  char name[64];
  snprintf(name, sizeof name, "/janitor_test.%d", (int)getpid());
  mqd_t queue = mq_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600, NULL);
  if (queue == (mqd_t)-1) SKIP("no message queues");
  mq_unlink(name);
  struct sigevent nothing = {.sigev_notify = SIGEV_NONE};
  REQUIRE(mq_notify(queue, &nothing) == 0);
  start_again();
  leave_much_dirty();
  janitor_start();
  CHECK(janitor_is_running());
  wait_until_it_is_gone();
  CHECK(mq_notify(queue, &nothing) != 0 && errno == EBUSY); /* it is registered still */
  mq_close(queue);
}

/* The program is in no slow path: it may only touch what it has. */
TEST(in_a_container_with_a_limit_it_looks_by_itself) {
  if (is_emulated()) SKIP("the emulator's descriptors are the program's");
  start_again();
  is_limited = true;
  ticks.limits_at_ns = ticks.container_at_ns = 0;
  leave_much_dirty();
  memory_current = "100000000\n";
  tick_now(this_thread.own, true);
  CHECK(tick_janitor_needs_files() && !pressure_is_near());
  memory_current = "990000000\n";
  janitor_start();
  for (int i = 0; i < GONE_MS && !pressure_is_near(); i++) sleep_ms(1);
  CHECK(pressure_is_near());
  wait_until_it_is_gone();
  is_limited = false;
  ticks.limits_at_ns = ticks.container_at_ns = 0;
  tick_now(this_thread.own, true);
  CHECK(!tick_janitor_needs_files() && !pressure_is_near());
}

/* As long as idle purges that came too early have made it wait (docs/decisions/0020). */
TEST(it_waits_for_as_many_looks_as_it_shall) {
  enum { LOOKS = 15 };
  start_again();
  leave_much_dirty();
  purge.idle_looks = LOOKS;
  uint64_t purges = snug_counters.idle_purges;
  double began_s = now_s();
  janitor_start();
  CHECK(janitor_is_running());
  while (snug_counters.idle_purges == purges && now_s() < began_s + GONE_MS * 1e-3) sleep_ms(1);
  double waited_s = now_s() - began_s;
  CHECK(snug_counters.idle_purges == purges + 1);
  CHECK_THAT(waited_s > 0.9 * LOOKS * LOOK_NS * 1e-9, "it waited %.2f s", waited_s);
  wait_until_it_is_gone();
  purge.idle_looks = IDLE_LOOKS_MIN;
}

/* In an idle process nothing of ours runs, whatever is counted and can't go: here, as bytes in caches. */
static void leave_full_caches(void) {
  start_again();
  uint64_t purges = snug_counters.idle_purges;
  counter_add(&snug_counters.cached_bytes, 64 * MIB);
  leave_much_dirty();
  janitor_start();
  CHECK(janitor_is_running());
  for (int i = 0; i < GONE_MS && !is_gone(); i++) sleep_ms(1);
  CHECK_THAT(is_gone(), "it still runs after %d ms", GONE_MS);
  CHECK(pages_dirty() == 0);
  CHECK_THAT(snug_counters.idle_purges <= purges + 3, "%d purges", (int)(snug_counters.idle_purges - purges));
  counter_add(&snug_counters.cached_bytes, -(uint64_t)64 * MIB);
}

TEST(it_goes_where_what_is_counted_does_not_go) { leave_full_caches(); }

TEST(it_goes_where_no_cache_may_be_emptied) {
  uint32_t had = rights.had;
  rights.had &= ~(uint32_t)RIGHT_OTHERS; /* as in a sandbox that the program inherited */
  leave_full_caches();
  rights.had = had;
}

TEST(it_does_not_come_for_what_caches_keep_where_none_may_be_emptied) {
  enum { SLOTS = 64 * MIB / PAGE_BYTES };
  start_again();
  uint32_t had = rights.had;
  all_bins.slots += SLOTS;
  CHECK(purge_janitor_may_be_worth());
  rights.had &= ~(uint32_t)RIGHT_OTHERS;
  CHECK(!purge_janitor_may_be_worth());
  rights.had = had;
  all_bins.slots -= SLOTS;
}

TEST(switched_off_it_never_comes) {
  start_again();
  options.background = 0;
  uint64_t starts = snug_counters.janitor_starts;
  leave_much_dirty();
  janitor_start();
  CHECK(!janitor_is_running() && snug_counters.janitor_starts == starts);
}

TEST(a_refused_thread_is_not_asked_for_again) {
  start_again();
  refuse_thread = true;
  thread_starts = 0;
  leave_much_dirty();
  for (int i = 0; i < 10 * MAINTAIN_PERIOD; i++) free(malloc(100 * KIB));
  CHECK_THAT(thread_starts == 1, "asked %d times", thread_starts);
  CHECK(!janitor_is_running() && pages_dirty() != 0);
  CHECK(snug_purge() != 0 && pages_dirty() == 0); /* by hand it goes on */
}

static void be_a_child(void) {
  CHECK(is_gone() && thread_count() == 1);
  leave_much_dirty();
  janitor_start(); /* the child has one of its own */
  CHECK(janitor_is_running());
  wait_until_it_is_gone();
  CHECK(pages_dirty() == 0 && thread_count() == 1);
  snug_check();
}

TEST(it_does_not_cross_a_fork) {
  start_again();
  leave_much_dirty();
  janitor_start();
  CHECK(janitor_is_running());
  run_in_child(be_a_child);
  CHECK(thread_count() <= 2);
  wait_until_it_is_gone();
}

static void interrupt(void) {
  janitor_stop();
  janitor_resume();
}

/* As of a server that changes its ids for each request. */
TEST(it_starts_again_some_times_in_a_row_then_after_a_while) {
  enum { MOST = 3 };
  start_again();
  purge.idle_looks = 1000; /* it does not leave by itself */
  sleep_ms(20);
  uint64_t starts = snug_counters.janitor_starts;
  leave_much_dirty();
  janitor_start();
  for (int i = 0; i < 10; i++) {
    interrupt();
    janitor.started_at_ns = sys_coarse_time_ns(); /* however long this thread waited for its turn */
    janitor_start_again(MOST);
  }
  CHECK_THAT(snug_counters.janitor_starts == starts + MOST, "%d starts", (int)(snug_counters.janitor_starts - starts));
  CHECK(!janitor_is_running());
  sleep_ms(20);
  janitor_start_again(MOST);
  CHECK(janitor_is_running());
  interrupt();
  purge.idle_looks = IDLE_LOOKS_MIN;
  sleep_ms(20);
  janitor_start_again(MOST);
  wait_until_it_is_gone();
  CHECK(pages_dirty() == 0);
}

/* As while another thread forks, or changes its ids, and this one then idles. */
TEST(who_is_turned_down_by_a_stop_is_heard_after_it) {
  start_again();
  janitor.interrupted = false;
  janitor_stop(); /* there is none */
  leave_much_dirty();
  janitor_start();
  CHECK(is_gone());
  janitor_resume();
  janitor_start_again(UINT32_MAX);
  CHECK(janitor_is_running());
  wait_until_it_is_gone();
  CHECK(pages_dirty() == 0);
}

static void start_after_a_stop(void) {
  janitor.interrupted = true;
  janitor.started_at_ns = 0;
  ends_rights = true;
  janitor_start_again(0);
}

static void replace(void) {
  purge.idle_looks = 1000;
  janitor_start();
  CHECK(janitor_is_running());
  janitor.started_at_ns = 0;
  ends_rights = true;
  janitor_replace_if_old();
  purge.idle_looks = IDLE_LOOKS_MIN;
}

TEST(none_starts_where_rights_have_ended_meanwhile) {
  void (*const starts[])(void) = {start_after_a_stop, replace};
  for (size_t i = 0; i < COUNT_OF(starts); i++) {
    start_again();
    uint32_t had = rights.had;
    leave_much_dirty();
    interrupt();
    starts[i]();
    CHECK(!ends_rights && !rights_have(RIGHT_THREAD));
    CHECK_THAT(thread_starts == 0, "way %zu", i);
    rights.had_entered = false;
    rights_resume(had);
  }
}

static void be_a_child_of_a_refused(void) {
  CHECK(janitor.refused == 0);
  be_a_child();
}

/* At a limit of threads, say, or where children go to another namespace of processes. */
TEST(what_the_system_refused_the_parent_it_may_grant_the_child) {
  start_again();
  janitor.refused = REFUSED_SKIPS;
  run_in_child(be_a_child_of_a_refused);
}

/* As in a namespace of processes that is not the caller's own, where the kernel starts no threads. */
TEST(a_refusal_after_a_stop_is_no_refusal_for_long) {
  start_again();
  leave_much_dirty();
  purge.idle_looks = 1000;
  janitor_start();
  interrupt();
  purge.idle_looks = IDLE_LOOKS_MIN;
  refuse_thread = true;
  janitor_start_again(UINT32_MAX);
  CHECK(!janitor_is_running() && janitor.refused == 0);
  refuse_thread = false;
  interrupt();
  janitor_start_again(UINT32_MAX);
  CHECK(janitor_is_running());
  wait_until_it_is_gone();
}

/* A signal handler forks while its thread waits in fork; in the child that thread goes on. */
TEST(forks_that_wait_are_not_counted_below_none) {
  janitor_await_fork(true);
  CHECK(janitor.forks == 1);
  janitor_forget();
  janitor_await_fork(false);
  CHECK_THAT(janitor.forks == 0, "%u forks wait", janitor.forks);
}

static void exit_quietly(void) {}

TEST(forks_and_starts_in_a_row) {
  start_again();
  leave_much_dirty();
  for (int i = 0; i < 50; i++) {
    janitor_start();
    run_in_child(exit_quietly);
  }
  wait_until_it_is_gone();
  CHECK(thread_count() == 1);
}

/* While a fork is on, slow paths of other threads must not start one. */
TEST(a_stop_blocks_starts_until_the_fork_is_over) {
  start_again();
  uint64_t starts = snug_counters.janitor_starts;
  janitor_stop();
  janitor_start();
  CHECK(is_gone() && snug_counters.janitor_starts == starts);
  janitor_resume();
  leave_much_dirty();
  janitor_start();
  CHECK(janitor_is_running());
  wait_until_it_is_gone();
}

enum { STOP_MS = 5000 };

static bool stopped; /* atomic */

static void *stop_it(void *argument) {
  janitor_stop();
  __atomic_store_n(&stopped, true, __ATOMIC_RELEASE);
  CHECK(is_gone());
  janitor_resume();
  return argument;
}

/* A fork that begins while another one is on must stop a janitor that starts just after that other one. */
TEST(two_forks_at_once_both_stop_it) {
  start_again();
  for (int turn = 0; turn < 10; turn++) {
    pthread_t thread;
    __atomic_store_n(&stopped, false, __ATOMIC_RELAXED);
    leave_much_dirty();
    janitor_stop();
    REQUIRE(pthread_create(&thread, NULL, stop_it, NULL) == 0);
    sleep_ms(20); /* now it waits for the end of ours */
    janitor_resume();
    janitor_start();
    double end_s = now_s() + STOP_MS * 1e-3;
    /* Never idle, and always with something to give back, it does not end by itself. */
    while (!__atomic_load_n(&stopped, __ATOMIC_ACQUIRE) && now_s() < end_s) free(malloc(100 * KIB));
    CHECK(stopped);
    pthread_join(thread, NULL);
  }
}
