/* names.c: every name of mallctl that jemalloc's manual has (names.h): by name and by MIB, its type, its rights; and
 * every key of MALLOC_CONF. jemalloc itself, asked by the same program, says whether names.h is right. */
#include "names.h"

#include "../../include/jemalloc/jemalloc.h"
#include "../support/test.h"

static const size_t sizes[] = {[ACTION] = 0, [BOOL] = sizeof(bool),        [UNSIGNED] = sizeof(unsigned),
                               [SIZE] = 8,   [SIGNED] = sizeof(ptrdiff_t), [U64] = 8,
                               [TEXT] = 8,   [POINTER] = sizeof(void *)};

/* The name with arena and class 0. */
static const char *whole(const struct name *name) {
  static char text[80];
  size_t length = 0;
  for (const char *at = name->name; *at != '\0'; at++) {
    text[length++] = *at == '<' ? '0' : *at;
    if (*at == '<') at += 2;
  }
  text[length] = '\0';
  return text;
}

static bool is(const struct name *name, const char *what) { return strcmp(name->name, what) == 0; }
static bool is_read(const struct name *name) { return name->rights[0] == 'r'; }
static bool is_written(const struct name *name) { return name->rights[1] == 'w'; }
static bool asks_for_a_value(const struct name *name) { return is(name, "arenas.lookup"); }

static void check_absent(const struct name *name) {
  uint64_t value = 0;
  size_t bytes = sizeof value;
  CHECK_THAT(mallctl(whole(name), &value, &bytes, NULL, 0) == ENOENT, "%s is read", name->name);
  CHECK_THAT(mallctl(whole(name), NULL, NULL, &value, sizeof value) == ENOENT, "%s is written", name->name);
  CHECK_THAT(mallctl(whole(name), NULL, NULL, NULL, 0) == ENOENT, "%s is done", name->name);
}

/* As much as there is room for, and EINVAL unless that is its size; and the same by MIB. */
static void check_read(const struct name *name) {
  size_t size = sizes[name->type], mib[8], length = COUNT_OF(mib);
  char value[32], by_mib[32];
  CHECK_THAT(mallctlnametomib(whole(name), mib, &length) == 0, "%s has no MIB", name->name);
  for (size_t room = 0; room < sizeof value; room++) {
    size_t bytes = room, mib_bytes = room;
    memset(value, 0x55, sizeof value);
    memset(by_mib, 0x55, sizeof by_mib);
    int result = mallctl(whole(name), value, &bytes, NULL, 0);
    CHECK_THAT(result == (room == size ? 0 : EINVAL), "%s into %zu bytes: %d", name->name, room, result);
    CHECK_THAT(bytes == (room < size ? room : size), "%s into %zu bytes: %zu", name->name, room, bytes);
    for (size_t i = bytes; i < sizeof value; i++) CHECK_THAT(value[i] == 0x55, "%s wrote byte %zu", name->name, i);
    CHECK_THAT(mallctlbymib(mib, length, by_mib, &mib_bytes, NULL, 0) == result, "%s by MIB", name->name);
    bool is_new = strstr(name->name, ".create") != NULL; /* another one each time */
    CHECK_THAT(is_new || memcmp(value, by_mib, sizeof value) == 0, "%s differs by MIB", name->name);
  }
  if (name->type == BOOL)
    CHECK_THAT(mallctl(whole(name), value, &(size_t){1}, NULL, 0) == 0 && value[0] < 2, "%d", value[0]);
  CHECK_THAT(mallctl(whole(name), NULL, NULL, NULL, 0) == 0, "%s without a place", name->name);
}

/* What is so already may be written; and if nothing else may, nothing changes. */
static void check_written(const struct name *name) {
  char value[8] = {0};
  size_t size = sizes[name->type], bytes = size;
  if (is_read(name)) mallctl(whole(name), value, &bytes, NULL, 0);
  if (is_read(name) && name->type != TEXT) {
    CHECK_THAT(mallctl(whole(name), NULL, NULL, value, size) == 0, "%s is not written", name->name);
  }
  CHECK_THAT(
      mallctl(whole(name), NULL, NULL, value, size + 1) == (name->type == TEXT && is_read(name) ? EPERM : EINVAL),
      "%s takes any size", name->name);
  if (name->answer != KEPT) return;
  value[0] ^= 1;
  int result = mallctl(whole(name), NULL, NULL, value, size);
  CHECK_THAT(result == EPERM || result == EINVAL, "%s: %d", name->name, result);
}

static void check_answered(const struct name *name) {
  char value[8] = {0};
  size_t bytes = sizes[name->type];
  if (name->type == ACTION) {
    bytes = sizeof value;
    CHECK_THAT(mallctl(whole(name), NULL, NULL, NULL, 0) == 0, "%s", name->name);
    CHECK_THAT(mallctl(whole(name), value, &bytes, NULL, 0) == EPERM, "%s is read", name->name);
    CHECK_THAT(mallctl(whole(name), NULL, NULL, value, bytes) == EPERM, "%s is written", name->name);
    return;
  }
  if (is_read(name)) check_read(name);
  if (!is_read(name)) CHECK_THAT(mallctl(whole(name), value, &bytes, NULL, 0) == EPERM, "%s is read", name->name);
  if (is_written(name) && !strstr(name->name, ".create")) check_written(name);
  if (!is_written(name)) {
    CHECK_THAT(mallctl(whole(name), NULL, NULL, value, bytes) == EPERM, "%s is written", name->name);
  }
}

TEST(every_name_is_answered_or_absent) {
  if (!snug_is_active()) SKIP("not snug");
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    if (names[i].answer == ABSENT) {
      check_absent(&names[i]);
    } else if (!asks_for_a_value(&names[i])) {
      check_answered(&names[i]);
    }
  }
  CHECK(mallctl(NULL, NULL, NULL, NULL, 0) == EINVAL);
}

/* Of the others' own library: that the list is right. What it was built without is ENOENT, too. */
TEST(the_list_is_jemallocs) {
  if (snug_is_active()) SKIP("not jemalloc");
  unsigned char has_prof = 0;
  mallctl("config.prof", &has_prof, &(size_t){sizeof(bool)}, NULL, 0);
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    const struct name *name = &names[i];
    size_t mib[8], length = COUNT_OF(mib), bytes = sizes[name->type];
    char value[8];
    bool newer = strstr(name->name, "curlextents") || is(name, "arena.<i>.name"),
         built_in = is(name, "opt.utrace") || is(name, "opt.xmalloc");
    if (newer || built_in || is(name, "opt.prof_log") || strstr(name->name, "prof.stats") ||
        strstr(name->name, "hpa_shard") || (!has_prof && strstr(name->name, "prof")))
      continue;
    CHECK_THAT(mallctlnametomib(whole(name), mib, &length) == 0, "%s", name->name);
    if (!is_read(name) || asks_for_a_value(name) || name->type == ACTION || name->type == POINTER) continue;
    if (is_written(name) || strstr(name->name, ".create")) continue;
    int result = mallctl(whole(name), value, &bytes, NULL, 0);
    CHECK_THAT((result == 0 && bytes == sizes[name->type]) || strstr(name->name, "prof.") != NULL, "%s: %d, %zu bytes",
               name->name, result, bytes);
  }
}

/* A manual that is there lists no name that names.h lacks. */
TEST(the_list_has_all_of_the_manual) {
  FILE *manual =
      popen("{ zcat /usr/share/man/man3/jemalloc.3.gz || cat /usr/share/man/man3/jemalloc.3; } 2>/dev/null", "r");
  char line[4096];
  size_t found = 0;
  while (manual != NULL && fgets(line, sizeof line, manual) != NULL) {
    char name[80] = "";
    if (strstr(line, ") r\\-") == NULL && strstr(line, ") rw") == NULL && strstr(line, ") \\-") == NULL) continue;
    size_t length = 0;
    for (const char *at = line; *at != ' ' && *at != '\0' && length < sizeof name - 1; at++) {
      if (*at == '\\' && at[1] == '&')
        at++;
      else
        name[length++] = *at;
    }
    if (strchr(name, '.') == NULL || strpbrk(name, "{}();\\") != NULL) continue; /* one of counters, or no name */
    size_t i = 0;
    while (i < COUNT_OF(names) && !is(&names[i], name)) i++;
    CHECK_THAT(i < COUNT_OF(names), "the manual has %s", name);
    found++;
  }
  if (manual != NULL) pclose(manual);
  if (found < 100) SKIP("jemalloc's manual is not installed");
}

static const char *const classes[] = {"16", "100", "1024", "5000", "32784", "40000", "900000", "3000000"};

TEST(lookup_says_the_arena_of_a_block) {
  unsigned arenas = 0;
  REQUIRE(mallctl("arenas.narenas", &arenas, &(size_t){sizeof arenas}, NULL, 0) == 0);
  for (size_t i = 0; i < COUNT_OF(classes); i++) {
    void *block = hidden(malloc((size_t)atoi(classes[i])));
    unsigned arena = 77777;
    size_t bytes = sizeof arena;
    CHECK(mallctl("arenas.lookup", &arena, &bytes, &block, sizeof block) == 0 && bytes == sizeof arena);
    CHECK_THAT(arena < arenas, "%s bytes: arena %u of %u", classes[i], arena, arenas);
    free(block);
  }
  if (!snug_is_active()) SKIP("the rest is undefined elsewhere");
  unsigned arena;
  size_t bytes = sizeof arena;
  void *block = hidden(malloc(1));
  CHECK(mallctl("arenas.lookup", &arena, &bytes, &block, sizeof block - 1) == EINVAL);
  CHECK(mallctl("arenas.lookup", &arena, &bytes, NULL, 0) == EINVAL);
  CHECK(mallctl("arenas.lookup", NULL, NULL, &block, sizeof block) == 0);
  free(block);
  void *const foreign[] = {(void *)(uintptr_t)classes, &arenas, NULL, (void *)(uintptr_t)UINTPTR_MAX};
  for (size_t i = 0; i < COUNT_OF(foreign); i++) {
    CHECK_THAT(mallctl("arenas.lookup", &arena, &bytes, (void *)&foreign[i], sizeof foreign[i]) == EINVAL, "%zu", i);
  }
}

/* What this program says on stderr when it starts with all keys in MALLOC_CONF. */
TEST(every_key_is_known) {
  static char list[8192], said[16384];
  char self[4096];
  int ends[2];
  size_t length = 0;
  if (!snug_is_active()) SKIP("not snug");
  if (getenv("TEST_EMULATED") != NULL) SKIP("an emulated program does not start itself again");
  ssize_t self_length = readlink("/proc/self/exe", self, sizeof self - 1);
  REQUIRE(self_length > 0 && pipe(ends) == 0);
  self[self_length] = '\0';
  length += (size_t)snprintf(list, sizeof list, "MALLOC_CONF=no_such_key:1");
  for (size_t i = 0; i < COUNT_OF(conf_keys); i++) {
    length += (size_t)snprintf(list + length, sizeof list - length, ",%s:1", conf_keys[i]);
  }
  REQUIRE(length < sizeof list);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    char *const environment[] = {list, NULL}, *const arguments[] = {self, (char *)"none", NULL};
    execve(self, arguments, environment);
    _exit(1);
  }
  close(ends[1]);
  length = 0;
  for (ssize_t got; (got = read(ends[0], said + length, sizeof said - 1 - length)) > 0;) length += (size_t)got;
  close(ends[0]);
  REQUIRE(child > 0 && waitpid(child, NULL, 0) == child);
  const char *first = strstr(said, "unknown setting");
  REQUIRE(first != NULL && strstr(said, "\"no_such_key:1\"") != NULL);
  CHECK_THAT(strstr(first + 1, "unknown setting") == NULL, "%s", first + 1);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
