/* sys_test.c: the system calls, and the whole core on a kernel as old as Linux 4.14: calls that came later do not exist
 * there, and flags that came later are not looked at. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../src/sys.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include "../../src/syscall_raw.h"

static bool old_kernel;
static int refused_calls, hinted_maps;

enum { SET_VMA = 0x53564d41, FIRST_NEW_CALL = 424 /* pidfd_send_signal, Linux 5.1 */ };

static long syscall_of_kernel(long number, long a, long b, long c, long d, long e, long f) {
  if (old_kernel && (number >= FIRST_NEW_CALL || (number == SYS_prctl && a == SET_VMA))) {
    refused_calls++;
    return number == SYS_prctl ? -EINVAL : -ENOSYS;
  }
  if (number == SYS_mmap && a != 0) hinted_maps++;
  return syscall_raw(number, a, b, c, d, e, f);
}
#define syscall_raw syscall_of_kernel
#include "../../src/sys.c"
#undef syscall_raw
#include "above_sys.h"
#include "unit.h"

#include <pthread.h>

static void be_old(void) {
  old_kernel = true;
  refused_calls = hinted_maps = 0;
}

TEST(a_mapping_at_an_address_never_replaces_another) {
  for (int old = 0; old < 2; old++) {
    be_old();
    old_kernel = old == 1;
    size_t page = sys_page_size_bytes();
    char *place = sys_map(3 * page);
    REQUIRE(place != NULL && sys_unmap(place + page, page));
    place[0] = place[2 * page] = 42;
    CHECK(sys_map_at(place + page, page)); /* the gap */
    place[page] = 1;
    CHECK(!sys_map_at(place + page, page) && !sys_map_at(place, 3 * page));
    CHECK(place[0] == 42 && place[page] == 1 && place[2 * page] == 42);
    CHECK(hinted_maps == 3);
    sys_unmap(place, 3 * page);
    old_kernel = false;
  }
}

TEST(decommitted_memory_is_gone) {
  size_t page = sys_page_size_bytes();
  char *place = sys_reserve(4 * page);
  REQUIRE(place != NULL && sys_commit(place, 4 * page));
  memset(place, 1, 4 * page);
  CHECK(sys_purge(place, 2 * page) && place[0] == 0 && place[2 * page] == 1);
  CHECK(sys_decommit(place, 4 * page));
  check_unreadable(place);
  CHECK(sys_commit(place, 4 * page));
  sys_unmap(place, 4 * page);
}

TEST(calls_report_refusals_and_leave_errno_alone) {
  errno = 4321;
  CHECK(!sys_commit((void *)4096, 4096) && !sys_unmap((void *)1, 1) && !sys_purge((void *)1, 1));
  CHECK(sys_remap((void *)4096, 4096, 8192, true) == NULL && sys_reserve((size_t)1 << 62) == NULL);
  char text[16];
  CHECK(sys_read_file("/nowhere", text, sizeof text) == 0);
  CHECK(errno == 4321);
}

TEST(a_file_is_read_up_to_the_room_there_is) {
  char text[8] = "xxxxxxx";
  CHECK(sys_read_file("/proc/self/stat", text, sizeof text) == 7 && text[7] == '\0' && strlen(text) == 7);
}

TEST(threads_of_this_process_exist) {
  uint32_t process = sys_process_id();
  CHECK(sys_thread_exists(process, sys_thread_id()));
  CHECK(!sys_thread_exists(process, 1) && !sys_thread_exists(process, 0x3fffffff));
}

/* ---- an old kernel ---- */

static void *churn(void *argument) {
  uint64_t random = (uintptr_t)argument;
  static __thread unsigned char *blocks[500];
  for (int step = 0; step < 30000; step++) {
    unsigned char **place = &blocks[random_below(&random, COUNT_OF(blocks))];
    free(*place);
    size_t size = 1 + random_below(&random, random_below(&random, 50) == 0 ? 3 * MIB : 3000);
    *place = malloc(size);
    REQUIRE(*place != NULL);
    (*place)[0] = (*place)[size - 1] = 1;
  }
  for (size_t i = 0; i < COUNT_OF(blocks); i++) {
    free(blocks[i]);
    blocks[i] = NULL;
  }
  return argument;
}

static void work_as_on_any_kernel(void) {
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, churn, (void *)1) == 0);
  churn((void *)2);
  pthread_join(thread, NULL);
  snug_check();
  snug_purge();
  CHECK_THAT(pages_dirty() * PAGE_BYTES < zone.page_bytes * 64, "%zu dirty pages", pages_dirty());
}

TEST(the_heap_works_on_an_old_kernel) {
  be_old();
  work_as_on_any_kernel();
  run_in_child(work_as_on_any_kernel);
  old_kernel = false;
}

/* Under a limit the heap grows by mappings at chosen addresses, and meets others there. */
static void grow_without_reservation(void) {
  be_old();
  struct rlimit limit = {GIB * 4, GIB * 4};
  fork_lock_all();
  map_release_reservations();
  fork_unlock_all();
  if (!is_emulated()) CHECK(sys_call(SYS_prlimit64, 0, RLIMIT_AS, (long)&limit, 0, 0, 0) == 0);
  static char *blocks[4000];
  for (size_t i = 0; i < COUNT_OF(blocks); i++) {
    blocks[i] = malloc(40000);
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], (int)i, 64);
  }
  CHECK(hinted_maps > 0);
  for (size_t i = 0; i < COUNT_OF(blocks); i++) {
    CHECK(blocks[i][63] == (char)i);
    free(blocks[i]);
  }
  work_as_on_any_kernel();
}

TEST(a_limited_heap_grows_on_an_old_kernel) { run_in_child(grow_without_reservation); }

TEST(the_janitor_works_on_an_old_kernel) {
  be_old();
  static void *blocks[200];
  options.purge_cpu_percent = 0;
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = memset(malloc(100 * KIB), 1, 100 * KIB);
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
  uint64_t purges = snug_counters.idle_purges;
  janitor_start();
  for (int i = 0; i < 10000 && janitor_is_running(); i++) sleep_ms(1);
  CHECK(!janitor_is_running() && snug_counters.idle_purges == purges + 1);
  CHECK_THAT(pages_dirty() == 0 || zone.page_bytes > PAGE_BYTES, "%zu dirty pages", pages_dirty());
  old_kernel = false;
}

TEST(links_are_read) {
  char path[64], text[16];
  snprintf(path, sizeof path, "/tmp/snug-link-%d", getpid());
  REQUIRE(symlink("narenas:2,thp:never", path) == 0);
  CHECK(sys_read_link(path, text, sizeof text) == 15 && strcmp(text, "narenas:2,thp:n") == 0); /* as much as fits */
  unlink(path);
  CHECK(sys_read_link(path, text, sizeof text) == 0);
  CHECK(sys_read_link("/proc/self/status", text, sizeof text) == 0);
}
