/* core.c: the whole core as one unit. Between it and the kernel stands asked_syscall, which refuses what the input
 * says. Time stands still but for the input. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../../src/syscall_raw.h"
static long asked_syscall(long number, long a, long b, long c, long d, long e, long f);
#define syscall_raw asked_syscall
#include "../../../src/sys.c"
#undef syscall_raw

static uint64_t own_clock(void);
#define sys_coarse_time_ns own_clock
static size_t own_file(const char *path, char *text, size_t capacity_bytes);
#define sys_read_file own_file
#include "../../unit/above_sys.h"
#undef sys_read_file

#undef GIB                             /* map.c has its own */
#define snug_version fuzz_snug_version /* these two may be declared weak there, but are in the same unit here */
#define malloc_trim fuzz_malloc_trim
#include "../../support/test.h"
#undef snug_version
#undef malloc_trim

#include <limits.h>

#include "world.h"

/* ---- what the kernel says ---- */

uint64_t clock_ns;
static uint64_t own_clock(void) { return clock_ns; }

const char *container_limit, *container_use;

static size_t own_file(const char *path, char *text, size_t capacity_bytes) {
  if (container_limit == NULL) return sys_read_file(path, text, capacity_bytes);
  const char *content = strcmp(path, "/proc/self/status") == 0               ? "Cpus_allowed:\t3\n"
                        : strcmp(path, "/proc/self/cgroup") == 0             ? "0::/\n"
                        : strcmp(path, "/sys/fs/cgroup/memory.max") == 0     ? container_limit
                        : strcmp(path, "/sys/fs/cgroup/memory.current") == 0 ? container_use
                                                                             : "";
  snprintf(text, capacity_bytes, "%s", content);
  return strlen(text);
}

enum call_kind { CALL_MAP, CALL_UNMAP, CALL_REMAP, CALL_PROTECT, CALL_ADVISE, CALL_FUTEX, CALL_BARRIER, CALL_OTHER };

static const struct refusable {
  long number;
  enum call_kind kind;
  short errors[2];
} refusables[] = {
    {SYS_mmap, CALL_MAP, {ENOMEM, EAGAIN}},
    {SYS_munmap, CALL_UNMAP, {ENOMEM, EINVAL}},
    {SYS_mremap, CALL_REMAP, {ENOMEM, EFAULT}},
    {SYS_mprotect, CALL_PROTECT, {ENOMEM, EACCES}},
    {SYS_madvise, CALL_ADVISE, {EINVAL, EAGAIN}},
    {SYS_futex, CALL_FUTEX, {EAGAIN, EINTR}},
    {SYS_membarrier, CALL_BARRIER, {EPERM, EINVAL}},
    {SYS_mincore, CALL_OTHER, {ENOMEM, EAGAIN}},
    {SYS_prctl, CALL_OTHER, {EINVAL, EPERM}},
    {SYS_openat, CALL_OTHER, {EMFILE, EINTR}},
    {SYS_read, CALL_OTHER, {EINTR, EIO}},
    {SYS_write, CALL_OTHER, {EINTR, EPIPE}},
    {SYS_tgkill, CALL_OTHER, {EPERM, EAGAIN}},
    {SYS_prlimit64, CALL_OTHER, {EPERM, EFAULT}},
    {SYS_sysinfo, CALL_OTHER, {EPERM, EFAULT}},
    {SYS_readlinkat, CALL_OTHER, {ENOENT, EACCES}},
    {SYS_clone, CALL_OTHER, {EAGAIN, EPERM}},
};

static struct {
  unsigned kinds;       /* a bit for each that is refused */
  unsigned skips, left; /* so many calls of these are let through, so many refused then */
  unsigned error;
} refusal;
uint64_t refused_calls;

/* b, from its lowest bit: 4 of how many calls are let through, 4 of how many are refused then (15: until the next
 * `refuse`), 1 of which errno. */
void fuzz_refuse(unsigned a, unsigned b) {
  refusal.kinds = a;
  refusal.skips = b & 15;
  refusal.left = (b >> 4 & 15) == 15 ? UINT_MAX : b >> 4 & 15;
  refusal.error = b >> 8 & 1;
}

static const struct refusable *refused_now(long number) {
  if (likely(refusal.kinds == 0)) return NULL;
  for (size_t i = 0; i < COUNT_OF(refusables); i++) {
    if (refusables[i].number != number) continue;
    if ((refusal.kinds >> refusables[i].kind & 1) == 0 || refusal.left == 0) return NULL;
    if (refusal.skips != 0) return refusal.skips--, NULL;
    if (refusal.left != UINT_MAX) refusal.left--;
    refused_calls++;
    fuzz_counts->refused++;
    return &refusables[i];
  }
  return NULL;
}

bool (*module_answers)(long number, long a, long b, long *result);

static long asked_syscall(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  if (number == SYS_clock_gettime && clock_ns != 0) {
    *(struct timespec *)b = (struct timespec){(time_t)(clock_ns / 1000000000), (long)(clock_ns % 1000000000)};
    return 0;
  }
  if (number == SYS_futex && d != 0) { /* who naps has napped: nobody else is there to wake it */
    const struct timespec *nap = (const struct timespec *)d;
    if (nap->tv_sec != 0 || nap->tv_nsec > 1) return -ETIMEDOUT;
  }
  if (module_answers != NULL && module_answers(number, a, b, &result)) return result;
  const struct refusable *refused = refused_now(number);
  if (refused == NULL) return syscall_raw(number, a, b, c, d, e, f);
  size_t half = (size_t)b / 2 / PAGE_BYTES * PAGE_BYTES;
  bool does_half = number == SYS_mprotect || (number == SYS_madvise && c == MADV_DONTNEED);
  if (does_half && half != 0) syscall_raw(number, a, (long)half, c, d, e, f);
  return -refused->errors[refusal.error];
}

/* ---- of all modules ---- */

const struct fuzz_allocator own_allocator = {
    "snug",        malloc,
    free,          calloc,
    realloc,       reallocarray,
    aligned_alloc, posix_memalign,
    memalign,      valloc,
    pvalloc,       malloc_usable_size,
    free_sized,    free_aligned_sized,
    mallocx,       rallocx,
    xallocx,       sallocx,
    nallocx,       dallocx,
    sdallocx,
};

void end_own_thread(void) { thread_ends(&this_thread); }

size_t trim_own_heap(void) { return (size_t)malloc_trim(0); }

void begin_core(void) {
  clock_ns = UINT64_C(1000000000000);
  container_limit = container_use = "max\n";
  options.background = 0;  /* no thread but the input's */
  (void)hidden(malloc(1)); /* this thread has its cache */
}

size_t size_from(unsigned b) {
  unsigned kind = b >> 11, digits = b & 2047;
  if (kind < 24) return ((size_t)digits << kind * kind / 28) >> 8;
  if (kind == 24) return (size_t)digits << 13;
  if (kind < 27) return ((size_t)1 << digits % 25) + digits / 25 % 5 - 2;
  if (kind == 27) return digits % 2 == 0 ? SIZE_MAX - digits : (size_t)PTRDIFF_MAX + digits - 1024;
  return digits % 1025;
}
