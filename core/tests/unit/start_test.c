/* start_test.c: the heap is set up once, whoever comes first; the library leaves LD_PRELOAD when it is asked to; and
 * what verbose:1 warns of. (startup/ tests the same from outside: early libraries, static programs, sandboxes.) */
#include "../../src/sys.c"

#include <string.h>

static const char *thp_file = "always [madvise] never\n";
static size_t read_thp(const char *path, char *text, size_t capacity_bytes) {
  if (strcmp(path, "/proc/self/status") == 0) return sys_read_file(path, text, capacity_bytes);
  if (thp_file == NULL || strcmp(path, "/sys/kernel/mm/transparent_hugepage/enabled") != 0) return 0;
  size_t length = strlen(thp_file) < capacity_bytes - 1 ? strlen(thp_file) : capacity_bytes - 1;
  memcpy(text, thp_file, length);
  text[length] = '\0';
  return length;
}
#define sys_read_file read_thp
#include "above_sys.h"
#include "unit.h"

TEST(starting_again_changes_nothing) {
  free(malloc(1));
  struct zone before = zone;
  uint32_t caches_in_use = caches.count;
  start_now();
  CHECK(start_state == START_DONE && memcmp(&before, &zone, sizeof zone) == 0 && caches.count == caches_in_use);
}

TEST(the_page_of_counters_describes_the_process) {
  CHECK(snug_counters.pid == (uint32_t)getpid() && snug_counters.page_size_bytes == zone.page_bytes);
  CHECK(memcmp(snug_counters.magic, SNUG_COUNTERS_MAGIC, sizeof snug_counters.magic) == 0);
  CHECK(snug_counters.class_count == CLASS_COUNT && strcmp(snug_counters.snug_version, SNUG_VERSION) == 0);
}

/* ---- LD_PRELOAD ---- */

#define OURS "/usr/lib/libsnug.so"

static const struct {
  const char *before, *after; /* NULL: not set */
} preloads[] = {
    {OURS, NULL},
    {OURS ":/lib/a.so", "/lib/a.so"},
    {OURS " /lib/a.so", "/lib/a.so"},
    {"/lib/a.so:" OURS, "/lib/a.so"},
    {"/lib/a.so " OURS, "/lib/a.so"},
    {"/lib/a.so:" OURS ":/lib/b.so", "/lib/a.so:/lib/b.so"},
    {"/lib/a.so:" OURS " /lib/b.so c.so", "/lib/a.so:/lib/b.so c.so"},
    {"/lib/a.so", "/lib/a.so"},
    {"/x" OURS, "/x" OURS},
    {OURS ".0", OURS ".0"},
    {OURS ".0:" OURS, OURS ".0"},
    {":" OURS, ""},
    {OURS ":", NULL},
    {"", NULL},
    {NULL, NULL},
};

static void check_preload(size_t i) {
  if (preloads[i].before != NULL) {
    setenv("LD_PRELOAD", preloads[i].before, 1);
  } else {
    unsetenv("LD_PRELOAD");
  }
  setenv("SNUG_THIS_ONLY", OURS, 1);
  leave_preload_list();
  const char *after = getenv("LD_PRELOAD"), *wanted = preloads[i].after;
  bool same = after == NULL || wanted == NULL || wanted[0] == '\0' ? after == NULL : strcmp(after, wanted) == 0;
  CHECK_THAT(same, "\"%s\" became \"%s\"", preloads[i].before, after);
  CHECK(getenv("SNUG_THIS_ONLY") == NULL);
}

static void check_preloads(void) {
  for (size_t i = 0; i < COUNT_OF(preloads); i++) check_preload(i);
}

TEST(the_library_leaves_the_list_of_preloads_and_nothing_else_does) { run_in_child(check_preloads); }

static void keep_all(void) {
  setenv("LD_PRELOAD", OURS ":/lib/a.so", 1);
  unsetenv("SNUG_THIS_ONLY");
  leave_preload_list();
  CHECK(strcmp(getenv("LD_PRELOAD"), OURS ":/lib/a.so") == 0);
  setenv("SNUG_THIS_ONLY", "", 1);
  leave_preload_list();
  CHECK(strcmp(getenv("LD_PRELOAD"), OURS ":/lib/a.so") == 0);
}

TEST(without_being_asked_it_stays_in_the_list) { run_in_child(keep_all); }

/* ---- warnings ---- */

static const char *warnings(void) {
  static char line[512];
  struct text text = text_in(line, sizeof line);
  line[0] = '\0';
  find_warnings(&text);
  return line;
}

static void check_warnings(void) {
  unsetenv("LD_PRELOAD");
  options.thp = 0;
  thp_file = "always [madvise] never\n";
  CHECK_THAT(warnings()[0] == '\0', "%s", warnings());
  thp_file = NULL;
  CHECK_THAT(warnings()[0] == '\0', "%s", warnings());
  thp_file = "[always] madvise never\n";
  CHECK(strstr(warnings(), "huge pages") != NULL && strstr(warnings(), ";") == NULL);
  setenv("LD_PRELOAD", "/lib/libsnug.so:/lib/libtcmalloc.so.2", 1);
  CHECK(strstr(warnings(), "huge pages") != NULL &&
        strstr(warnings(), "; another allocator is also preloaded: tcmalloc"));
  options.thp = 1; /* wished for */
  CHECK(strcmp(warnings(), "another allocator is also preloaded: tcmalloc") == 0);
}

TEST(warnings_name_huge_pages_and_other_allocators) { run_in_child(check_warnings); }
