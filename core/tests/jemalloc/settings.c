/* settings.c: a program with settings of its own, by jemalloc's variable malloc_conf: they count, and can be read back;
 * and what malloc_stats_print says, to whom. */
#include "../../include/jemalloc/jemalloc.h"
#include "../support/test.h"

const char *malloc_conf = "zero:true,narenas:3,dirty_decay_ms:0,stats_print_opts:mg,thp:never";

static char printed[1 << 16];
static size_t printed_length;
static void *context_seen;

/* As callers do: it allocates. */
static void collect(void *context, const char *text) {
  size_t length = strlen(text);
  free(hidden(malloc(3000)));
  context_seen = context;
  REQUIRE(printed_length + length + 1 < sizeof printed);
  memcpy(printed + printed_length, text, length + 1);
  printed_length += length;
}

static const char *print(void (*write)(void *context, const char *text), void *context, const char *letters) {
  printed[printed_length = 0] = '\0';
  malloc_stats_print(write, context, letters);
  return printed;
}

static int64_t read_number(const char *name) {
  int64_t value = 0;
  size_t bytes = sizeof value;
  if (mallctl(name, &value, &bytes, NULL, 0) == EINVAL) value &= (1LL << 8 * bytes) - 1; /* a shorter one, whole */
  return value;
}

static const char *read_text(const char *name) {
  const char *value = "";
  size_t bytes = sizeof value;
  CHECK(mallctl(name, &value, &bytes, NULL, 0) == 0);
  return value;
}

TEST(settings_are_read_back) {
  CHECK(read_number("opt.narenas") == 3 && read_number("opt.zero") == 1 && read_number("opt.dirty_decay_ms") == 0);
  CHECK(strcmp(read_text("opt.stats_print_opts"), "mg") == 0 && strcmp(read_text("opt.thp"), "never") == 0);
  CHECK(read_number("opt.abort_conf") == 0 && strcmp(malloc_conf, "zero:true") > 0);
}

/* Everything that can be used of every block, of memory that was used before as of new. */
static void check_zero(void *(*take)(size_t), size_t size_bytes) {
  for (int turn = 0; turn < 3; turn++) {
    char *block = hidden(take(size_bytes));
    REQUIRE(block != NULL);
    size_t usable = malloc_usable_size(block);
    CHECK_THAT(nonzero_offset(block, usable) == usable, "%zu bytes, turn %d, offset %zu", size_bytes, turn,
               nonzero_offset(block, usable));
    memset(block, 0xee, usable);
    free(block);
  }
}

static void *take_aligned(size_t size_bytes) { return aligned_alloc(64, (size_bytes + 63) / 64 * 64); }
static void *take_far_aligned(size_t size_bytes) { return memalign(8192, size_bytes); }
static void *take_x(size_t size_bytes) { return mallocx(size_bytes, 0); }

TEST(zero_zeroes_all_blocks) {
  for (size_t size_bytes = 1; size_bytes < 4 * MIB; size_bytes = size_bytes * 7 / 3 + 1) {
    check_zero(malloc, size_bytes);
    check_zero(take_aligned, size_bytes);
    check_zero(take_far_aligned, size_bytes);
    check_zero(take_x, size_bytes);
  }
}

TEST(zero_zeroes_what_blocks_grow_by) {
  for (size_t size_bytes = 1; size_bytes < MIB; size_bytes = size_bytes * 7 / 3 + 1) {
    free(memset(hidden(malloc(3 * size_bytes)), 0xee, 3 * size_bytes));
    char *block = malloc(size_bytes);
    REQUIRE(block != NULL);
    size_t old_usable = malloc_usable_size(block);
    memset(block, 0xee, old_usable);
    block = hidden(realloc(block, old_usable * 2));
    REQUIRE(block != NULL);
    size_t grown = malloc_usable_size(block) - old_usable;
    CHECK_THAT(nonzero_offset(block + old_usable, grown) == grown, "from %zu bytes", size_bytes);
    free(block);
  }
}

TEST(statistics_as_text) {
  int mark;
  const char *text = print(collect, &mark, NULL);
  CHECK(context_seen == &mark);
  CHECK_THAT(strncmp(text, "___ Begin jemalloc statistics ___\nVersion: \"5.3.", 46) == 0, "%.100s", text);
  CHECK(strstr(text, "\nAllocated: ") != NULL && strstr(text, "--- End jemalloc statistics ---\n") != NULL);
  CHECK(strstr(text, "opt.narenas: 3\n") != NULL && strstr(text, "Merged arenas stats:") != NULL);
  if (snug_is_active()) CHECK(strstr(text, "snug") != NULL);
  text = print(collect, &mark, "gmablxehd");
  CHECK(strstr(text, "opt.narenas") == NULL && strstr(text, "Merged arenas") == NULL &&
        strstr(text, "Allocated: ") != NULL);
}

/* Braces and quotes pair, and no member is empty. */
static void check_json(const char *text) {
  int depth = 0;
  bool quoted = false;
  for (const char *at = text; *at != '\0'; at++) {
    if (*at == '"' && at[-1] != '\\') quoted = !quoted;
    if (quoted) continue;
    depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
    bool ends = *at == ',' || *at == '}' || *at == ']';
    CHECK_THAT(!(ends && (at[-1] == ',' || at[-1] == ':')), "%.40s", at - 20 > text ? at - 20 : text);
    CHECK_THAT(depth > 0 || at[1] == '\0' || at[1] == '\n', "%s", at);
  }
  CHECK(depth == 0 && !quoted);
}

TEST(statistics_as_json) {
  static const char *const letters[] = {"J", "Jg", "Jm", "Jma", "Jgmabl", "JgJ"};
  for (size_t i = 0; i < COUNT_OF(letters); i++) {
    const char *text = print(collect, NULL, letters[i]);
    CHECK(strncmp(text, "{\"jemalloc\":{", 13) == 0 && strstr(text, "\"allocated\":") != NULL);
    CHECK((strstr(text, "\"opt\":{") == NULL) == (strchr(letters[i], 'g') != NULL));
    CHECK((strstr(text, "\"merged\":{") == NULL) == (strchr(letters[i], 'm') != NULL));
    if (snug_is_active()) check_json(text);
  }
}

TEST(messages_go_where_the_program_says) {
  malloc_message = collect;
  CHECK(strstr(print(NULL, NULL, "g"), "Begin jemalloc statistics") != NULL);
  malloc_message = NULL;
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
