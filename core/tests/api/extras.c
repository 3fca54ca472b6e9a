/* The entry points beyond POSIX: C23's sized frees, glibc's statistics and tuning calls, the __libc_ names. */
#include "../support/test.h"

#include <dlfcn.h>
#include <malloc.h>

/* Younger than the C libraries we run on: looked up, so that the program also starts without them. */
static void *looked_up(const char *name) {
  void *symbol = dlsym(RTLD_DEFAULT, name);
  CHECK_THAT(symbol != NULL || !snug_is_active(), "snug does not offer %s", name);
  return symbol;
}

TEST(free_sized_frees) {
  void (*free_sized_)(void *, size_t);
  *(void **)&free_sized_ = looked_up("free_sized");
  if (free_sized_ == NULL) SKIP("no free_sized here");
  size_t sizes[256];
  size_t count = boundary_sizes(sizes, COUNT_OF(sizes), 8 * MIB);
  for (size_t i = 0; i < count; i++) {
    for (int how = 0; how < 3; how++) {
      void *block = hidden(how == 0 ? malloc(sizes[i]) : how == 1 ? calloc(1, sizes[i]) : realloc(NULL, sizes[i]));
      REQUIRE(block != NULL);
      errno = 4321;
      free_sized_(block, sizes[i]);
      CHECK_THAT(errno == 4321, "free_sized of %zu bytes set errno %d", sizes[i], errno);
    }
  }
  free_sized_(NULL, 0);
  free_sized_(NULL, 100);
}

TEST(free_sized_after_realloc_takes_the_new_size) {
  void (*free_sized_)(void *, size_t);
  *(void **)&free_sized_ = looked_up("free_sized");
  if (free_sized_ == NULL) SKIP("no free_sized here");
  size_t sizes[256];
  size_t count = boundary_sizes(sizes, COUNT_OF(sizes), 4 * MIB);
  for (size_t from = 1; from < count; from += 3) {
    for (size_t to = 1; to < count; to += 3) {
      void *block = hidden(realloc(hidden(malloc(sizes[from])), sizes[to]));
      REQUIRE(block != NULL);
      free_sized_(block, sizes[to]);
    }
  }
}

TEST(free_aligned_sized_frees) {
  void (*free_aligned_sized_)(void *, size_t, size_t);
  *(void **)&free_aligned_sized_ = looked_up("free_aligned_sized");
  if (free_aligned_sized_ == NULL) SKIP("no free_aligned_sized here");
  for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 2) {
    const size_t sizes[] = {alignment, alignment * 2, alignment * 5, 1, 1000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
      void *block = hidden(aligned_alloc(hidden_size(alignment), hidden_size(sizes[i])));
      REQUIRE(block != NULL);
      errno = 4321;
      free_aligned_sized_(block, alignment, sizes[i]);
      CHECK_THAT(errno == 4321, "free_aligned_sized(%zu, %zu) set errno %d", alignment, sizes[i], errno);
    }
  }
  free_aligned_sized_(NULL, 64, 64);
}

TEST(cfree_frees) {
  void (*cfree_)(void *);
  *(void **)&cfree_ = looked_up("cfree");
  if (cfree_ == NULL) SKIP("no cfree here");
  for (int round = 0; round < 100000; round++) {
    void *block = hidden(malloc(100 * KIB));
    REQUIRE(block != NULL); /* 10 GB in all: would fail or swap if nothing were freed */
    *(char *)block = 1;
    cfree_(block);
  }
  cfree_(NULL);
}

TEST(the_internal_names_belong_to_the_same_heap) {
#ifdef __GLIBC__
  void *(*libc_malloc)(size_t), *(*libc_calloc)(size_t, size_t), *(*libc_realloc)(void *, size_t);
  void *(*libc_memalign)(size_t, size_t);
  void (*libc_free)(void *);
  *(void **)&libc_malloc = looked_up("__libc_malloc");
  *(void **)&libc_calloc = looked_up("__libc_calloc");
  *(void **)&libc_realloc = looked_up("__libc_realloc");
  *(void **)&libc_memalign = looked_up("__libc_memalign");
  *(void **)&libc_free = looked_up("__libc_free");
  if (!snug_is_active()) SKIP("only an allocator that replaces them is asked to");
  if (!libc_malloc || !libc_calloc || !libc_realloc || !libc_memalign || !libc_free) SKIP("only glibc has these names");
  unsigned char *block = (unsigned char *)hidden(libc_malloc(100));
  REQUIRE(block != NULL);
  fill_pattern(block, 100, 1);
  block = (unsigned char *)hidden(realloc(block, 5000));
  CHECK(pattern_mismatch(block, 100, 1) == 100);
  block = (unsigned char *)hidden(libc_realloc(block, 70000));
  CHECK(pattern_mismatch(block, 100, 1) == 100);
  free(block);
  block = (unsigned char *)hidden(libc_calloc(10, 10));
  CHECK(nonzero_offset(block, 100) == 100);
  free(block);
  block = (unsigned char *)hidden(libc_memalign(4096, 10));
  CHECK((uintptr_t)block % 4096 == 0);
  libc_free(block);
  libc_free(hidden(malloc(10)));
#else
  SKIP("only glibc has these names");
#endif
}

TEST(every_entry_point_comes_from_one_object) {
  /* A mixture would hand one allocator's blocks to another: the "half-linked" process. */
  static const char *const names[] = {"malloc",
                                      "calloc",
                                      "realloc",
                                      "free",
                                      "posix_memalign",
                                      "aligned_alloc",
                                      "memalign",
                                      "valloc",
                                      "pvalloc",
                                      "malloc_usable_size",
                                      "reallocarray",
                                      "free_sized",
                                      "free_aligned_sized",
                                      "cfree",
                                      "malloc_trim",
                                      "mallinfo",
                                      "mallinfo2",
                                      "malloc_info",
                                      "malloc_stats",
                                      "mallopt",
                                      "__libc_malloc",
                                      "__libc_calloc",
                                      "__libc_realloc",
                                      "__libc_free",
                                      "__libc_memalign",
                                      "__libc_valloc",
                                      "__libc_pvalloc",
                                      "__posix_memalign",
                                      "_Znwm",
                                      "_Znam",
                                      "_ZnwmRKSt9nothrow_t",
                                      "_ZnamRKSt9nothrow_t",
                                      "_ZnwmSt11align_val_t",
                                      "_ZnamSt11align_val_t",
                                      "_ZnwmSt11align_val_tRKSt9nothrow_t",
                                      "_ZnamSt11align_val_tRKSt9nothrow_t",
                                      "_ZdlPv",
                                      "_ZdaPv",
                                      "_ZdlPvm",
                                      "_ZdaPvm",
                                      "_ZdlPvRKSt9nothrow_t",
                                      "_ZdaPvRKSt9nothrow_t",
                                      "_ZdlPvSt11align_val_t",
                                      "_ZdaPvSt11align_val_t",
                                      "_ZdlPvmSt11align_val_t",
                                      "_ZdaPvmSt11align_val_t",
                                      "_ZdlPvSt11align_val_tRKSt9nothrow_t",
                                      "_ZdaPvSt11align_val_tRKSt9nothrow_t"};
  if (!snug_is_active()) SKIP("a question to snug");
  Dl_info ours;
  REQUIRE(dladdr((void *)snug_version, &ours) != 0);
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    void *symbol = dlsym(RTLD_DEFAULT, names[i]);
    Dl_info info;
    CHECK_THAT(symbol != NULL && dladdr(symbol, &info) != 0 && info.dli_fbase == ours.dli_fbase, "%s is not snug's",
               names[i]);
  }
}

#ifdef __GLIBC__
TEST(mallinfo_counts_what_is_live) {
  struct mallinfo2 before = mallinfo2();
  enum { COUNT = 1000 };
  static void *blocks[COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    blocks[i] = hidden(malloc(10000));
    REQUIRE(blocks[i] != NULL);
  }
  void *large = hidden(malloc(32 * MIB));
  REQUIRE(large != NULL);
  struct mallinfo2 during = mallinfo2();
  size_t live_before = before.uordblks + before.hblkhd, live_during = during.uordblks + during.hblkhd;
  CHECK_THAT(live_during >= live_before + 10000 * COUNT + 32 * MIB, "%zu -> %zu", live_before, live_during);
  CHECK_THAT(live_during <= live_before + 10000 * COUNT * 5 / 4 + 33 * MIB, "%zu -> %zu", live_before, live_during);
  CHECK(during.arena + during.hblkhd >= live_during);
  for (size_t i = 0; i < COUNT; i++) free(blocks[i]);
  free(large);
  struct mallinfo2 after = mallinfo2();
  size_t live_after = after.uordblks + after.hblkhd;
  CHECK_THAT(live_after <= live_before + 2 * MIB || freed_blocks_wait(), "%zu -> %zu", live_before, live_after);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  struct mallinfo narrow = mallinfo();
#pragma GCC diagnostic pop
  CHECK_THAT((size_t)narrow.uordblks <= live_after + MIB, "mallinfo says %d", narrow.uordblks);
}

TEST(malloc_info_writes_one_document) {
  static char text[1 << 20];
  FILE *stream = fmemopen(text, sizeof text, "w");
  REQUIRE(stream != NULL);
  CHECK(malloc_info(0, stream) == 0);
  fclose(stream);
  CHECK_THAT(strncmp(text, "<malloc version=", 16) == 0, "begins with %.20s", text);
  CHECK(strstr(text, "</malloc>") != NULL);
  size_t opened = 0, closed = 0;
  for (const char *cursor = text; *cursor; cursor++) {
    opened += *cursor == '<';
    closed += *cursor == '>';
  }
  CHECK_THAT(opened > 2 && opened == closed, "%zu '<', %zu '>'", opened, closed);
  int error = malloc_info(hidden_size(1) == 1 ? 1 : 0, stdout);
  CHECK_THAT(error == EINVAL || error == -1, "malloc_info(1, stdout) = %d", error);
}

TEST(malloc_stats_writes_to_stderr) {
  int pipe_ends[2], saved = dup(2);
  REQUIRE(saved >= 0 && pipe(pipe_ends) == 0);
  fflush(stderr);
  REQUIRE(dup2(pipe_ends[1], 2) == 2);
  malloc_stats();
  fflush(stderr);
  REQUIRE(dup2(saved, 2) == 2);
  close(pipe_ends[1]);
  char text[256];
  ssize_t length = read(pipe_ends[0], text, sizeof text);
  CHECK_THAT(length > 10, "%zd bytes", length);
  close(pipe_ends[0]);
  close(saved);
}

TEST(mallopt_accepts_the_documented_parameters) {
  CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
  CHECK(mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1);
  CHECK(mallopt(M_ARENA_MAX, 2) == 1);
  CHECK(mallopt(M_TOP_PAD, 0) == 1);
  void *block = hidden(malloc(100));
  CHECK(block != NULL);
  free(block);
}
#endif

TEST(snug_functions_check_their_arguments) {
  if (!snug_is_active()) SKIP("a question to snug");
  int (*stats)(void *, size_t);
  int (*json)(void (*)(void *, const char *, size_t), void *);
  *(void **)&stats = dlsym(RTLD_DEFAULT, "snug_stats");
  *(void **)&json = dlsym(RTLD_DEFAULT, "snug_stats_json");
  REQUIRE(stats != NULL && json != NULL);
  errno = 0;
  CHECK(stats(NULL, 8) == -1 && errno == EINVAL);
  errno = 0;
  CHECK(json(NULL, NULL) == -1 && errno == EINVAL);
  /* Fields the library does not know are zeroed; a caller with fewer fields is not overrun. */
  unsigned char fields[4096];
  memset(fields, 0xee, sizeof fields);
  CHECK(stats(fields, sizeof fields) == 0);
  CHECK(nonzero_offset(fields + 2048, 2048) == 2048);
  memset(fields, 0xee, sizeof fields);
  CHECK(stats(fields, 16) == 0);
  CHECK(fields[16] == 0xee);
}

static size_t json_length;
static long json_depth, json_lowest_depth;
static char json_last;

static void measure_json(void *context, const char *text, size_t length) {
  (void)context;
  for (size_t i = 0; i < length; i++) {
    json_depth += (text[i] == '{' || text[i] == '[') - (text[i] == '}' || text[i] == ']');
    if (json_length + i + 2 < json_length + length && json_depth < json_lowest_depth) json_lowest_depth = json_depth;
    json_last = text[i];
  }
  json_length += length;
}

TEST(stats_json_is_one_balanced_object) {
  if (!snug_is_active()) SKIP("a question to snug");
  int (*json)(void (*)(void *, const char *, size_t), void *);
  *(void **)&json = dlsym(RTLD_DEFAULT, "snug_stats_json");
  REQUIRE(json != NULL);
  json_length = 0;
  json_depth = json_lowest_depth = 0;
  CHECK(json(measure_json, NULL) == 0);
  CHECK_THAT(json_depth == 0 && json_lowest_depth >= 0, "depth at the end %ld, lowest %ld", json_depth,
             json_lowest_depth);
  CHECK_THAT(json_length > 100 && json_last == '\n', "%zu bytes", json_length);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
