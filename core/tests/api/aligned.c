/* posix_memalign, aligned_alloc, memalign, valloc, pvalloc: alignment, errors as return value or errno. */
#include "../support/test.h"

#include <malloc.h>
#include <sys/mman.h>

TEST(posix_memalign_serves_every_alignment_and_size) {
  for (size_t alignment = sizeof(void *); alignment <= 64 * KIB; alignment *= 2) {
    for (size_t size = 0; size <= 300 * KIB; size = size * 3 / 2 + 1) {
      void *block = NULL;
      REQUIRE(posix_memalign(&block, alignment, size) == 0);
      CHECK_THAT(block != NULL && (uintptr_t)block % alignment == 0, "alignment %zu, size %zu: %p", alignment, size,
                 block);
      CHECK(malloc_usable_size(block) >= size);
      memset(block, 0x5a, malloc_usable_size(block));
      free(block);
    }
  }
}

TEST(huge_alignments) {
  for (size_t alignment = 128 * KIB; alignment <= GIB; alignment *= 2) {
    const size_t sizes[] = {1, 100, 5000, 100 * KIB, 3 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
      unsigned char *block = NULL;
      int error = posix_memalign((void **)&block, alignment, sizes[i]);
      CHECK_THAT(error == 0, "alignment %zu, size %zu: error %d", alignment, sizes[i], error);
      if (error != 0) continue;
      CHECK_THAT((uintptr_t)block % alignment == 0, "alignment %zu, size %zu: %p", alignment, sizes[i], (void *)block);
      memset(block, 0x5a, sizes[i]);
      CHECK(malloc_usable_size(block) >= sizes[i]);
      free(block);
    }
  }
}

TEST(aligned_blocks_do_not_overlap) {
  enum { COUNT = 1000 };
  static unsigned char *blocks[COUNT];
  static size_t sizes[COUNT];
  uint64_t random = 3;
  for (size_t i = 0; i < COUNT; i++) {
    size_t alignment = (size_t)8 << random_below(&random, 15);
    sizes[i] = 1 + random_below(&random, (size_t)1 << random_below(&random, 17));
    REQUIRE(posix_memalign((void **)&blocks[i], alignment, sizes[i]) == 0);
    CHECK((uintptr_t)blocks[i] % alignment == 0);
    fill_pattern(blocks[i], sizes[i], i);
  }
  for (size_t i = 0; i < COUNT; i++)
    CHECK_THAT(pattern_mismatch(blocks[i], sizes[i], i) == sizes[i], "block %zu of %zu bytes", i, sizes[i]);
  for (size_t i = 0; i < COUNT; i++) free(blocks[i]);
}

/* EINVAL by the result alone; ENOMEM by errno, too, as glibc and musl do, whatever POSIX says. */
TEST(posix_memalign_reports_errors_as_libc_does) {
  const size_t bad[] = {0, 1, 2, 3, 4, 7, 12, 24, 4097, (size_t)PTRDIFF_MAX, SIZE_MAX};
  void *const untouched = (void *)&test_failed;
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    if (bad[i] % sizeof(void *) == 0 && bad[i] != 0 && (bad[i] & (bad[i] - 1)) == 0) continue;
    void *block = untouched;
    errno = 4321;
    int error = posix_memalign(&block, hidden_size(bad[i]), 100);
    CHECK_THAT(error == EINVAL, "alignment %zu: %d", bad[i], error);
    CHECK_THAT(block == untouched && errno == 4321, "alignment %zu: block %p, errno %d", bad[i], block, errno);
  }
  const size_t impossible[] = {SIZE_MAX, SIZE_MAX - 16, SIZE_MAX - 4096, (size_t)PTRDIFF_MAX + 1};
  for (size_t i = 0; i < COUNT_OF(impossible); i++) {
    for (size_t alignment = 8; alignment <= MIB; alignment *= 8) {
      void *block = untouched;
      errno = 4321;
      int error = posix_memalign(&block, alignment, hidden_size(impossible[i]));
      CHECK_THAT(error == ENOMEM, "alignment %zu, size %zu: %d", alignment, impossible[i], error);
      CHECK_THAT(block == untouched && errno == ENOMEM, "block %p, errno %d", block, errno);
    }
  }
}

TEST(aligned_alloc_aligns_and_sets_errno) {
  for (size_t alignment = 1; alignment <= 64 * KIB; alignment *= 2) {
    const size_t sizes[] = {alignment, alignment * 3, 1, 100}; /* since C17 the size need not be a multiple */
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
      void *block = hidden(aligned_alloc(hidden_size(alignment), hidden_size(sizes[i])));
      CHECK_THAT(block != NULL && (uintptr_t)block % alignment == 0, "aligned_alloc(%zu, %zu) = %p", alignment,
                 sizes[i], block);
      free(block);
    }
  }
  errno = 0;
  CHECK(hidden(aligned_alloc(64, hidden_size(SIZE_MAX - 63))) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(hidden(aligned_alloc(4096, hidden_size((size_t)PTRDIFF_MAX + 1))) == NULL && errno == ENOMEM);
}

TEST(alignments_that_are_no_power_of_two) {
  /* C leaves it open: glibc 2.36 rounds up to a power of two, later ones and musl refuse with EINVAL. */
  const size_t odd[] = {3, 24, 48, 100, 5000};
  for (size_t i = 0; i < COUNT_OF(odd); i++) {
    void *(*const functions[])(size_t, size_t) = {aligned_alloc, memalign};
    for (size_t k = 0; k < COUNT_OF(functions); k++) {
      size_t rounded = 1;
      while (rounded < odd[i]) rounded *= 2;
      errno = 0;
      void *block = hidden(functions[k](hidden_size(odd[i]), 1000));
      CHECK_THAT(block ? (uintptr_t)block % rounded == 0 : errno == EINVAL, "alignment %zu: %p, errno %d", odd[i],
                 block, errno);
      free(block);
    }
  }
  errno = 0;
  void *block = hidden(memalign(hidden_size((size_t)PTRDIFF_MAX + 2), 1));
  CHECK_THAT(block == NULL && (errno == EINVAL || errno == ENOMEM), "memalign(PTRDIFF_MAX + 2, 1) = %p, errno %d",
             block, errno);
}

TEST(memalign_aligns) {
  for (size_t alignment = 1; alignment <= 2 * MIB; alignment *= 2) {
    void *block = hidden(memalign(alignment, 1000));
    CHECK_THAT(block != NULL && (uintptr_t)block % alignment == 0, "memalign(%zu, 1000) = %p", alignment, block);
    free(block);
  }
  errno = 0;
  CHECK(hidden(memalign(64, hidden_size(SIZE_MAX))) == NULL && errno == ENOMEM);
}

TEST(valloc_and_pvalloc_use_pages) {
#ifdef __GLIBC__
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t size = 0; size <= 5 * page; size += 777) {
    void *block = hidden(valloc(size));
    CHECK_THAT(block != NULL && (uintptr_t)block % page == 0, "valloc(%zu) = %p", size, block);
    free(block);
    block = hidden(pvalloc(size));
    CHECK_THAT(block != NULL && (uintptr_t)block % page == 0, "pvalloc(%zu) = %p", size, block);
    size_t whole_pages = (size + page - 1) / page * page;
    CHECK_THAT(malloc_usable_size(block) >= whole_pages, "pvalloc(%zu): %zu usable", size, malloc_usable_size(block));
    memset(block, 1, whole_pages);
    free(block);
  }
  errno = 0;
  CHECK(hidden(valloc(hidden_size(SIZE_MAX))) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(hidden(pvalloc(hidden_size(SIZE_MAX))) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(hidden(pvalloc(hidden_size(SIZE_MAX - 10))) == NULL && errno == ENOMEM);
#else
  SKIP("this C library declares no pvalloc");
#endif
}

/* glibc unmaps such blocks. */
TEST(what_was_protected_and_freed_is_no_ones_trap) {
  static const size_t sizes[] = {33 * MIB, 2 * MIB};
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    char *block = (char *)aligned_alloc(4096, sizes[i]);
    REQUIRE(block != NULL && mprotect(block, sizes[i], PROT_READ) == 0);
    free(block);
    block = (char *)hidden(malloc(sizes[i]));
    REQUIRE(block != NULL);
    memset(block, 1, sizes[i]);
    free(block);
  }
}

TEST(many_live_aligned_blocks_do_not_waste_their_alignment) {
  /* 500 blocks of 8 KiB aligned to 64 KiB hold 4 MiB; 64 KiB of memory each would be 32 MiB. */
  enum { COUNT = 500 };
  static void *blocks[COUNT];
  size_t before = resident_bytes();
  for (size_t i = 0; i < COUNT; i++) {
    REQUIRE(posix_memalign(&blocks[i], 64 * KIB, 8 * KIB) == 0);
    memset(blocks[i], 1, 8 * KIB);
  }
  size_t after = resident_bytes();
  CHECK_THAT(after < before + 12 * MIB, "%zu bytes are resident, %zu before", after, before);
  for (size_t i = 0; i < COUNT; i++) free(blocks[i]);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
