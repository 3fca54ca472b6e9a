/* call_times.c: a library to preload before an allocator. It notes how long each call of malloc(3) and fork takes, by the
 * clock on the wall, and adds that up over all threads and processes of a program in the file that
 * MALLOC_CALL_TIMES_FILE names, which it makes. Without that variable it only passes calls on.
 *
 * The file is an array of struct call, see below, in the order of enum kind. A time falls into a bucket: times below 8 ns
 * have their own, and of each power of two above the eighths have one. For bench/worst, which compiles and reads it.
 *
 *   gcc -O2 -shared -fPIC -o libcall_times.so bench/call_times.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { EIGHTHS = 8, BUCKETS = 62 * EIGHTHS, EARLY_BYTES = 1 << 16 };
enum kind { MALLOC, CALLOC, REALLOC, ALIGNED, FREE, FORK, KINDS };

struct call {
  uint64_t count, longest_ns, buckets[BUCKETS];
};

static struct call *calls; /* shared by all processes; NULL: nothing is noted */

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void *(*next_memalign)(size_t, size_t);
static void *(*next_aligned_alloc)(size_t, size_t);
static int (*next_posix_memalign)(void **, size_t, size_t);
static void (*next_free)(void *);
static pid_t (*next_fork)(void);

/* What dlsym asks for before the next functions are known. */
static char early[EARLY_BYTES] __attribute__((aligned(16)));
static size_t early_used;

static void *take_early(size_t bytes) {
  size_t start = __atomic_fetch_add(&early_used, (bytes + 31) & ~(size_t)15, __ATOMIC_RELAXED);
  if (start + bytes + 16 > sizeof early) abort();
  memcpy(early + start, &bytes, sizeof bytes);
  return early + start + 16;
}

static int is_early(const void *p) { return (const char *)p >= early && (const char *)p < early + sizeof early; }

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static unsigned bucket_of(uint64_t ns) {
  if (ns < EIGHTHS) return (unsigned)ns;
  unsigned power = 63 - (unsigned)__builtin_clzll(ns);
  return (power - 2) * EIGHTHS + (unsigned)(ns >> (power - 3)) % EIGHTHS;
}

static void note(enum kind kind, uint64_t start_ns) {
  if (calls == NULL) return;
  uint64_t ns = now_ns() - start_ns, longest = __atomic_load_n(&calls[kind].longest_ns, __ATOMIC_RELAXED);
  __atomic_fetch_add(&calls[kind].count, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&calls[kind].buckets[bucket_of(ns)], 1, __ATOMIC_RELAXED);
  while (ns > longest &&
         !__atomic_compare_exchange_n(&calls[kind].longest_ns, &longest, ns, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

static uint64_t start(void) { return calls != NULL ? now_ns() : 0; }

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("MALLOC_CALL_TIMES_FILE");
  int fd = path != NULL ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd < 0) return;
  if (ftruncate(fd, KINDS * sizeof *calls) == 0) {
    void *mapped = mmap(NULL, KINDS * sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) calls = mapped;
  }
  close(fd);
}

static void find(void) {
  static int is_looking; /* the thread that starts is alone */
  if (is_looking) return;
  is_looking = 1;
  next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
  next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
  next_memalign = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "memalign");
  next_aligned_alloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "aligned_alloc");
  next_posix_memalign = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
  next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
  next_fork = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
  next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
}

void *malloc(size_t bytes) {
  if (next_malloc == NULL) find();
  if (next_malloc == NULL) return take_early(bytes);
  uint64_t since = start();
  void *block = next_malloc(bytes);
  note(MALLOC, since);
  return block;
}

void *calloc(size_t count, size_t bytes) {
  if (next_malloc == NULL) find();
  if (next_malloc == NULL) return take_early(count * bytes);
  uint64_t since = start();
  void *block = next_calloc(count, bytes);
  note(CALLOC, since);
  return block;
}

void *realloc(void *old, size_t bytes) {
  if (is_early(old)) {
    size_t old_bytes;
    void *block = malloc(bytes);
    memcpy(&old_bytes, (char *)old - 16, sizeof old_bytes);
    return block != NULL ? memcpy(block, old, old_bytes < bytes ? old_bytes : bytes) : NULL;
  }
  if (next_malloc == NULL) find();
  if (next_malloc == NULL) return take_early(bytes);
  uint64_t since = start();
  void *block = next_realloc(old, bytes);
  note(REALLOC, since);
  return block;
}

void free(void *block) {
  int saved = errno;
  if (block == NULL || is_early(block)) return;
  if (next_malloc == NULL) find();
  uint64_t since = start();
  next_free(block);
  note(FREE, since);
  errno = saved;
}

void *memalign(size_t alignment, size_t bytes) {
  if (next_malloc == NULL) find();
  uint64_t since = start();
  void *block = next_memalign(alignment, bytes);
  note(ALIGNED, since);
  return block;
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  if (next_malloc == NULL) find();
  uint64_t since = start();
  void *block = next_aligned_alloc(alignment, bytes);
  note(ALIGNED, since);
  return block;
}

int posix_memalign(void **block, size_t alignment, size_t bytes) {
  if (next_malloc == NULL) find();
  uint64_t since = start();
  int error = next_posix_memalign(block, alignment, bytes);
  note(ALIGNED, since);
  return error;
}

/* The parent's time alone: the child goes on elsewhere. */
pid_t fork(void) {
  if (next_malloc == NULL) find();
  uint64_t since = start();
  pid_t child = next_fork();
  if (child != 0) note(FORK, since);
  return child;
}
