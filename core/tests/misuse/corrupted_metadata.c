/* Each of snug's tables is overwritten in turn, as a wild write of the program would: the next frees, allocations or
 * snug_check() must end the process with "snug: fatal: ...". Living on and dying by SIGSEGV both fail.
 *
 * The tables are found from outside, in /proc/self/maps: each begins at a whole chunk of addresses before the heap, and
 * is a private anonymous "rw-p" mapping. The heap is the one that holds a block.
 *
 * One table may end in SIGSEGV instead of words: the thread caches, since the fast path that reads them has no room for
 * a check. */
#include "misuse.h"

enum { TABLES_MAX = 32, BLOCKS = 3000 };

#define TABLES_SPAN ((size_t)16 << 30) /* bytes of addresses before the heap, at most */

struct range {
  char *start, *end;
};

static struct range tables[TABLES_MAX];
static size_t table_count;
static char *blocks[BLOCKS];

TEST_C_LINKAGE size_t snug_check(void) __attribute__((weak));

static bool holds_block(struct range range) {
  for (size_t i = 0; i < BLOCKS; i++)
    if (blocks[i] >= range.start && blocks[i] < range.end) return true;
  return false;
}

static void find_tables(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  REQUIRE(maps != NULL);
  char line[512];
  struct range found[TABLES_MAX];
  size_t count = 0;
  while (fgets(line, sizeof line, maps) != NULL) {
    unsigned long start, end, inode;
    char access[8];
    REQUIRE(sscanf(line, "%lx-%lx %7s %*x %*s %lu", &start, &end, access, &inode) == 4);
    struct range range = {(char *)start, (char *)end};
    if (inode != 0 || strcmp(access, "rw-p") != 0) continue;
    if (holds_block(range)) { /* mappings are listed by address, so the tables came before */
      for (size_t i = 0; i < count; i++)
        if (range.start - found[i].start < (ptrdiff_t)TABLES_SPAN) tables[table_count++] = found[i];
      break;
    }
    if (start % (4 * MIB) == 0 && count < TABLES_MAX) found[count++] = range;
  }
  fclose(maps);
}

/* Everything that reads the tables. */
static void use_heap(void) {
  for (size_t i = 0; i < BLOCKS; i += 2) free(blocks[i]);
  for (size_t i = 0; i < BLOCKS; i++) *block_of(1 + i * 13) = 1;
  *block_of(100 * KIB) = 1;
  trim_heap();
  if (snug_check != NULL) snug_check();
}

static size_t wordless_deaths;

static bool holds_only(const char *start, size_t length, int value) {
  return *start == (char)value && memcmp(start, start + 1, length - 1) == 0;
}

/* Overwrites from the offset on, in a child whose messages go into a pipe; checks how it dies. */
static void scribble(size_t number, size_t offset, size_t length, int value) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], 2);
    close(ends[0]);
    if (holds_only(tables[number].start + offset, length, value)) _exit(77); /* nothing to overwrite */
    memset(tables[number].start + offset, value, length);
    use_heap();
    _exit(0);
  }
  close(ends[1]);
  char text[1024];
  ssize_t length_read = read(ends[0], text, sizeof text - 1);
  text[length_read > 0 ? length_read : 0] = 0;
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && wordless_deaths++ == 0) return;
  CHECK_THAT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strncmp(text, "snug: fatal: ", 13) == 0,
             "table %zu of %zu (%zu KiB), 0x%02x over %zu bytes at %zu: wait status 0x%x, it said: %s", number,
             table_count, (size_t)(tables[number].end - tables[number].start) / KIB, value, length, offset, status,
             text);
}

static void scribble_all(size_t offset, size_t length, int value) {
  if (!snug_is_active()) SKIP("a question to snug");
  if (getenv("TEST_EMULATED")) SKIP("the emulator's own mappings look like tables");
  CHECK_THAT(table_count >= 3, "only %zu tables found", table_count);
  wordless_deaths = 0;
  for (size_t i = 0; i < table_count; i++) scribble(i, offset, length, value);
}

TEST(tables_of_ones) { scribble_all(0, 4096, 0xff); }
TEST(tables_of_text) { scribble_all(0, 4096, 'A'); }
TEST(tables_of_zeros) { scribble_all(0, 4096, 0); }
TEST(one_overrun_line) { scribble_all(64, 64, 0x11); }

int main(int argc, char **argv) {
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = block_of(1 + i * 7);
  find_tables();
  return run_tests(argc, argv);
}
