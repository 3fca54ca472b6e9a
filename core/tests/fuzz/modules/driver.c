/* driver.c: runs a list of steps on a module of the core, in a process of its own, and makes a list smaller that
 * fails. */
#include "driver.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { CHECK_INTERVAL = 256, HANG_S = 280, HANG_CPU_S = 60, SHRINK_S = 60 };

const char *driver_output = "fuzz-failure.txt";
struct fuzz_counts *fuzz_counts;
struct fuzz_allocator fuzz_peers[3];
struct step list[STEPS_MAX];
const struct fuzz_module *module;
bool driver_spoils;

static struct step candidate[STEPS_MAX];
static size_t step_now;

unsigned operation_count(void) {
  unsigned count = 0;
  while (module->operations[count] != NULL) count++;
  return count;
}

static const char *name_of(const struct step *step) {
  unsigned count = operation_count(), operation = step->operation % (count + 1);
  return operation == count ? "refuse" : module->operations[operation];
}

void fuzz_fail(const char *format, ...) {
  char what[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  test_print(2, "%s: step %zu (%s %u %u): %s\n", module->name, step_now, name_of(&list[step_now]), list[step_now].a,
             list[step_now].b, what);
  abort();
}

/* ---- one input ---- */

static void run_list(const struct step *steps, size_t count) {
  unsigned operations = operation_count();
  if (steps != list) memcpy(list, steps, count * sizeof list[0]);
  module->begin();
  for (step_now = 0; step_now < count; step_now++) {
    const struct step *step = &list[step_now];
    unsigned operation = step->operation % (operations + 1);
    if (operation == operations)
      fuzz_refuse(step->a, step->b);
    else
      module->step(operation, step->a, step->b);
    fuzz_counts->operations++;
    if (step_now % CHECK_INTERVAL == CHECK_INTERVAL - 1) module->check();
  }
  step_now = count != 0 ? count - 1 : 0;
  fuzz_refuse(0, 0);
  if (driver_spoils) module->spoil();
  module->check();
  module->end();
}

void (*driver_at_end)(void);

extern void __gcov_dump(void) __attribute__((weak)); /* where it is compiled for fuzz-core-coverage */

bool passes(const struct step *steps, size_t count, bool quiet) {
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int nowhere = quiet ? open("/dev/null", O_WRONLY) : -1;
    if (nowhere >= 0) dup2(nowhere, 2);
    struct rlimit cpu = {HANG_CPU_S, HANG_CPU_S};
    setrlimit(RLIMIT_CPU, &cpu);
    alarm(HANG_S); /* one that waits takes no CPU time */
    run_list(steps, count);
    if (driver_at_end != NULL) driver_at_end();
    if (__gcov_dump != NULL) __gcov_dump();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) REQUIRE(errno == EINTR);
  if (!quiet && WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT)
    test_print(2, "%s: killed by signal %d%s\n", module->name, WTERMSIG(status),
               WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGKILL ? ": it hung" : "");
  return status == 0;
}

/* ---- making smaller what fails ---- */

static void write_list(size_t count) {
  FILE *file = fopen(driver_output, "w");
  if (file == NULL) {
    test_print(2, "fuzz: cannot write %s: %s\n", driver_output, strerror(errno));
    return;
  }
  fprintf(file, "module %s\n", module->name);
  for (size_t i = 0; i < count; i++) {
    fprintf(file, "%s %u %u\n", name_of(&list[i]), list[i].a, list[i].b);
    if (i < 40) test_print(2, "  %s %u %u\n", name_of(&list[i]), list[i].a, list[i].b);
  }
  fclose(file);
}

static size_t leave_out(size_t count, double end_s) {
  for (size_t piece = count / 2; piece > 0 && now_s() < end_s; piece /= 2) {
    for (size_t from = 0; from < count && now_s() < end_s;) {
      size_t out = from + piece <= count ? piece : count - from;
      memcpy(candidate, list, from * sizeof list[0]);
      memcpy(candidate + from, list + from + out, (count - from - out) * sizeof list[0]);
      if (passes(candidate, count - out, true)) {
        from += piece;
      } else {
        count -= out;
        memcpy(list, candidate, count * sizeof list[0]);
      }
    }
  }
  return count;
}

static void make_numbers_small(size_t count, double end_s) {
  for (size_t i = 0; i < count; i++) {
    for (int which = 0; which < 2; which++) {
      struct step before = list[i];
      while (now_s() < end_s && (which == 0 ? list[i].a : list[i].b) != 0) {
        before = list[i];
        if (which == 0)
          list[i].a /= 2;
        else
          list[i].b /= 2;
        if (passes(list, count, true)) {
          list[i] = before;
          break;
        }
      }
    }
  }
}

void report(size_t count) {
  double end_s = now_s() + SHRINK_S;
  test_print(2, "fuzz: a list of %zu steps of %s fails; making it smaller\n", count, module->name);
  count = leave_out(count, end_s);
  make_numbers_small(count, end_s);
  passes(list, count, false); /* for its message */
  write_list(count);
  test_print(2, "fuzz: %zu steps in %s\n", count, driver_output);
}

/* ---- other allocators ---- */

static void *symbol(void *library, const char *name) { return library != NULL ? dlsym(library, name) : NULL; }

static void find_peers(void) {
  struct fuzz_allocator *glibc = &fuzz_peers[0], *jemalloc = &fuzz_peers[1];
  *glibc = (struct fuzz_allocator){.name = "glibc",
                                   .malloc = malloc,
                                   .free = free,
                                   .calloc = calloc,
                                   .realloc = realloc,
                                   .reallocarray = reallocarray,
                                   .aligned_alloc = aligned_alloc,
                                   .posix_memalign = posix_memalign,
                                   .memalign = memalign,
                                   .malloc_usable_size = malloc_usable_size};
  void *library = dlopen("libjemalloc.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    test_print(1, "SKIPPED differential with jemalloc: %s\n", dlerror());
    return;
  }
  jemalloc->name = "jemalloc";
  *(void **)&jemalloc->malloc = symbol(library, "malloc");
  *(void **)&jemalloc->free = symbol(library, "free");
  *(void **)&jemalloc->calloc = symbol(library, "calloc");
  *(void **)&jemalloc->realloc = symbol(library, "realloc");
  *(void **)&jemalloc->aligned_alloc = symbol(library, "aligned_alloc");
  *(void **)&jemalloc->posix_memalign = symbol(library, "posix_memalign");
  *(void **)&jemalloc->memalign = symbol(library, "memalign");
  *(void **)&jemalloc->valloc = symbol(library, "valloc");
  *(void **)&jemalloc->malloc_usable_size = symbol(library, "malloc_usable_size");
  *(void **)&jemalloc->mallocx = symbol(library, "mallocx");
  *(void **)&jemalloc->rallocx = symbol(library, "rallocx");
  *(void **)&jemalloc->xallocx = symbol(library, "xallocx");
  *(void **)&jemalloc->sallocx = symbol(library, "sallocx");
  *(void **)&jemalloc->nallocx = symbol(library, "nallocx");
  *(void **)&jemalloc->dallocx = symbol(library, "dallocx");
  *(void **)&jemalloc->sdallocx = symbol(library, "sdallocx");
}

void make_room_for_peers(char **arguments) {
  if (getenv("GLIBC_TUNABLES") != NULL) return;
  setenv("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=16384", 1);
  execv("/proc/self/exe", arguments);
}

void start_driver(void) {
  fuzz_counts = mmap(NULL, sizeof *fuzz_counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(fuzz_counts != MAP_FAILED);
  find_peers();
}
