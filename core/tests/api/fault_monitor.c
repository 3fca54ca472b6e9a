/* Memory of the heap that somebody else serves page by page, as programs do that move or restore others: by
 * userfaultfd(2), for pages that are missing and for those that are written. What is allocated holds what was written,
 * and what calloc returns is zero, though memory goes back meanwhile. The monitor of missing pages allocates. */
#include "../support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#ifdef __has_include
#if __has_include(<linux/userfaultfd.h>)
#include <linux/userfaultfd.h>
#endif
#endif

#ifdef UFFDIO_WRITEPROTECT

enum { BLOCKS = 800, ROUNDS = 16, LARGE_BYTES = 1 << 20 };

struct monitor {
  int descriptor, stop[2];
  bool serves_missing, allocates;
  size_t page_bytes, ranges;
  pthread_t thread;
  uint64_t faults, events; /* the monitor's, until it is joined */
};

/* The monitor's own memory is none that it serves: a mapping of libc's might become one with a block's. */
static unsigned char stack[256 * KIB] __attribute__((aligned(64 * 1024)));
static unsigned char *blocks[BLOCKS];
static size_t sizes[BLOCKS];

static void serve(struct monitor *it, const struct uffd_msg *message) {
  if (message->event != UFFD_EVENT_PAGEFAULT) {
    it->events++;
    return;
  }
  it->faults++;
  uint64_t page = message->arg.pagefault.address & ~(uint64_t)(it->page_bytes - 1);
  struct uffdio_range range = {page, it->page_bytes};
  if (it->serves_missing) {
    struct uffdio_zeropage zero = {range, 0, 0};
    if (ioctl(it->descriptor, UFFDIO_ZEROPAGE, &zero) != 0) ioctl(it->descriptor, UFFDIO_WAKE, &range);
  } else {
    struct uffdio_writeprotect open = {range, 0};
    if (ioctl(it->descriptor, UFFDIO_WRITEPROTECT, &open) != 0) ioctl(it->descriptor, UFFDIO_WAKE, &range);
  }
  if (it->allocates) free(hidden(malloc(it->faults % 3000)));
}

static void *watch(void *argument) {
  struct monitor *it = (struct monitor *)argument;
  struct pollfd both[2] = {{it->descriptor, POLLIN, 0}, {it->stop[0], POLLIN, 0}};
  for (;;) {
    if (poll(both, 2, -1) < 0 && errno != EINTR) abort();
    struct uffd_msg message;
    if ((both[0].revents & POLLIN) != 0) {
      while (read(it->descriptor, &message, sizeof message) == sizeof message) serve(it, &message);
    } else if (both[1].revents != 0) {
      return NULL;
    }
  }
}

/* The reason why there is none, or NULL. */
static const char *begin(struct monitor *it, uint64_t features) {
  it->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  it->descriptor = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
  if (it->descriptor < 0) return errno == EPERM ? "needs root" : "the kernel has no userfaultfd";
  struct uffdio_api api = {UFFD_API, features, 0};
  if (ioctl(it->descriptor, UFFDIO_API, &api) != 0) return "the kernel's userfaultfd can't do that";
  REQUIRE(pipe(it->stop) == 0);
  return NULL;
}

static void attach_range(struct monitor *it, uint64_t mode, uintptr_t first, uintptr_t end) {
  uintptr_t mask = it->page_bytes - 1;
  struct uffdio_range range = {(first + mask) & ~mask, 0};
  if ((end & ~mask) <= range.start) return;
  range.len = (end & ~mask) - range.start;
  struct uffdio_register pages = {range, mode, 0};
  if (ioctl(it->descriptor, UFFDIO_REGISTER, &pages) != 0) return;
  it->ranges++;
  struct uffdio_writeprotect closed = {range, UFFDIO_WRITEPROTECT_MODE_WP};
  if (mode == UFFDIO_REGISTER_MODE_WP) REQUIRE(ioctl(it->descriptor, UFFDIO_WRITEPROTECT, &closed) == 0);
}

/* Registers what the small blocks of a mapping span, and each large one by itself: neighbours may be the allocator's
 * own tables, for which its threads would wait with locks held. */
static void attach(struct monitor *it, uint64_t mode) {
  static char lines[256 * KIB];
  size_t length = 0;
  int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  for (ssize_t got; (got = read(maps, lines + length, sizeof lines - 1 - length)) > 0;) length += (size_t)got;
  close(maps);
  lines[length] = '\0';
  for (char *line = lines, *next; line != NULL && *line != '\0'; line = next) {
    next = strchr(line, '\n');
    if (next != NULL) *next++ = '\0';
    unsigned long first, end;
    if (sscanf(line, "%lx-%lx rw-p", &first, &end) != 2) continue;
    uintptr_t lowest = end, highest = first;
    for (int i = 0; i < BLOCKS; i++) {
      uintptr_t block = (uintptr_t)blocks[i];
      if (block < first || block >= end || sizes[i] >= LARGE_BYTES) continue;
      if (block < lowest) lowest = block;
      if (block + sizes[i] > highest) highest = block + sizes[i];
    }
    attach_range(it, mode, lowest, highest < end ? highest : end);
  }
  for (int i = 0; i < BLOCKS; i++)
    if (sizes[i] >= LARGE_BYTES) attach_range(it, mode, (uintptr_t)blocks[i], (uintptr_t)blocks[i] + sizes[i]);
  REQUIRE(it->ranges > 0);
}

static void end(struct monitor *it) {
  REQUIRE(write(it->stop[1], "x", 1) == 1);
  REQUIRE(pthread_join(it->thread, NULL) == 0);
  close(it->descriptor);
  close(it->stop[0]);
  close(it->stop[1]);
}

static size_t size_of(uint64_t *seed) {
  uint64_t kind = random_below(seed, 100);
  return kind < 70 ? 1 + random_below(seed, 2000) : kind < 98 ? 5000 + random_below(seed, 30000) : 1100 * KIB;
}

static void renew(int i, uint64_t *seed) {
  if (blocks[i] != NULL) {
    CHECK(pattern_mismatch(blocks[i], sizes[i], (uint64_t)i) == sizes[i]);
    free(blocks[i]);
  }
  sizes[i] = size_of(seed);
  blocks[i] = (unsigned char *)hidden(i % 2 == 0 ? calloc(1, sizes[i]) : malloc(sizes[i]));
  REQUIRE(blocks[i] != NULL);
  for (size_t at = 0; i % 2 == 0 && at < sizes[i]; at++) REQUIRE(blocks[i][at] == 0);
  fill_pattern(blocks[i], sizes[i], (uint64_t)i);
}

static void use_under(struct monitor *it, uint64_t mode) {
  uint64_t seed = 5;
  for (int i = 0; i < BLOCKS; i++) renew(i, &seed);
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, sizeof stack) == 0);
  REQUIRE(pthread_create(&it->thread, &attributes, watch, it) == 0);
  pthread_attr_destroy(&attributes);
  attach(it, mode);
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = round % 3; i < BLOCKS; i += 3) renew(i, &seed);
    if (round % 8 == 3) trim_heap();
    for (int i = 0; round % 8 == 5 && i < BLOCKS; i++) {
      free(blocks[i]);
      blocks[i] = NULL;
    }
  }
  end(it);
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]), blocks[i] = NULL;
  CHECK(it->faults > 0);
}

TEST(missing_pages_are_served_by_a_thread_that_allocates) {
  struct monitor it = {.serves_missing = true, .allocates = true};
  const char *settings = getenv("SNUG");
  if (settings != NULL && strstr(settings, "guard:1") != NULL) SKIP("guard:1 touches blocks with a lock held");
  const char *reason = begin(&it, 0);
  if (reason != NULL) SKIP(reason);
  use_under(&it, UFFDIO_REGISTER_MODE_MISSING);
}

TEST(a_monitor_hears_of_pages_that_go_back) {
  struct monitor it = {.serves_missing = true};
  const char *reason = begin(&it, UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP);
  if (reason != NULL) SKIP(reason);
  use_under(&it, UFFDIO_REGISTER_MODE_MISSING);
  if (snug_is_active()) CHECK(it.events > 0);
}

TEST(pages_that_are_written_are_noted) {
  struct monitor it = {.allocates = false};
  const char *reason = begin(&it, UFFD_FEATURE_PAGEFAULT_FLAG_WP);
  if (reason != NULL) SKIP(reason);
  use_under(&it, UFFDIO_REGISTER_MODE_WP);
}

#else

TEST(memory_that_is_served) { SKIP("no linux/userfaultfd.h here"); }

#endif

int main(int argc, char **argv) { return run_tests(argc, argv); }
