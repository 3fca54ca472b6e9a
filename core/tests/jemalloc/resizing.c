/* resizing.c: every way by which a block changes its size, at random, against a model of what its bytes may be.
 *
 * A program may use all that malloc_usable_size and sallocx say. So of a block that changes its size, whether it moves
 * or not, what was usable and still is keeps its bytes, and with MALLOCX_ZERO what becomes usable is zero; of one that
 * was asked for as zero, all that is usable is. Bytes of another block are in none. Each block is filled to its end
 * with a pattern of its own, freed ones, too. */
#include "../../include/jemalloc/jemalloc.h"
#include "../support/test.h"

enum { BLOCKS = 200, STEPS = 60000, LG_ALIGN_MAX = 14 };

static struct live {
  unsigned char *block;
  size_t size_bytes, usable_bytes, written_bytes; /* the rest of usable_bytes is zero */
  uint64_t seed;
} live[BLOCKS];

static uint64_t random_state, last_seed;

static size_t below(size_t limit) { return (size_t)random_below(&random_state, limit); }

static size_t some_size(void) {
  switch (below(64)) {
    case 0: return 1 + below(3 * MIB);
    case 1:
    case 2: return 1 + below(100 * KIB);
    case 3:
    case 4:
    case 5:
    case 6: return 1 + below(9000);
    default: return 1 + below(below(3) == 0 ? 1100 : 70);
  }
}

static int some_flags(void) {
  int flags = below(3) == 0 ? MALLOCX_LG_ALIGN((int)below(LG_ALIGN_MAX + 1)) : 0;
  return below(2) == 0 ? flags | MALLOCX_ZERO : flags;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* The first of the bytes [from, to) that is not zero; `to` if all are. */
static size_t nonzero_in(const unsigned char *block, size_t from, size_t to) {
  return from >= to ? to : from + nonzero_offset(block + from, to - from);
}

/* Writes the block's first bytes; all that can be used, most often. */
static void write_block(struct live *it, bool rest_is_zero) {
  it->usable_bytes = sallocx(it->block, 0);
  CHECK_THAT(it->usable_bytes >= it->size_bytes, "%zu of %zu", it->usable_bytes, it->size_bytes);
  it->seed = ++last_seed;
  it->written_bytes = rest_is_zero && below(2) == 0 ? below(it->size_bytes + 1) : it->usable_bytes;
  fill_pattern(it->block, it->written_bytes, it->seed);
}

/* Whether the first `kept_bytes` are what they were. */
static void check_kept(const struct live *it, size_t kept_bytes, const char *how) {
  size_t written = least(it->written_bytes, kept_bytes);
  size_t mismatch = pattern_mismatch(it->block, written, it->seed);
  CHECK_THAT(mismatch == written, "%s to %zu: usable were %zu, byte %zu is another's", how, it->size_bytes,
             it->usable_bytes, mismatch);
  size_t nonzero = nonzero_in(it->block, written, kept_bytes);
  CHECK_THAT(nonzero >= kept_bytes, "%s to %zu: usable were %zu, byte %zu was zero", how, it->size_bytes,
             it->usable_bytes, nonzero);
}

static void take(struct live *it) {
  int flags = some_flags();
  size_t size_bytes = it->size_bytes = some_size(), alignment = (size_t)1 << (flags & 63);
  bool zero = true;
  const char *how = "calloc";
  void *block = NULL;
  switch (below(4)) {
    case 0: block = calloc(1, size_bytes); break;
    case 1:
      zero = false;
      if (alignment < sizeof(void *)) alignment = sizeof(void *);
      REQUIRE(posix_memalign(&block, alignment, size_bytes) == 0);
      break;
    case 2:
      zero = false;
      block = malloc(size_bytes);
      break;
    default:
      how = "mallocx";
      zero = flags & MALLOCX_ZERO;
      block = mallocx(size_bytes, flags);
  }
  REQUIRE(block != NULL);
  it->block = block;
  size_t usable = sallocx(block, 0), nonzero = zero ? nonzero_in(it->block, 0, usable) : usable;
  CHECK_THAT(nonzero == usable, "%s of %zu bytes, flags 0x%x: byte %zu of %zu is another's", how, size_bytes, flags,
             nonzero, usable);
  write_block(it, zero);
}

static void give(struct live *it) {
  check_kept(it, it->usable_bytes, "free");
  switch (below(4)) {
    case 0: dallocx(it->block, 0); break;
    case 1: sdallocx(it->block, sallocx(it->block, 0), 0); break;
    default: free(it->block);
  }
  it->block = NULL;
}

/* Often only a little longer or shorter, as programs do. */
static size_t another_size(const struct live *it) {
  if (below(2) == 0) return some_size();
  size_t change = 1 + below(it->size_bytes / 4 + 8);
  return below(3) != 0 ? it->size_bytes + change : change < it->size_bytes ? it->size_bytes - change : 1;
}

static void resize(struct live *it) {
  size_t size_bytes = another_size(it), old_usable = it->usable_bytes;
  int flags = some_flags();
  void *block = it->block;
  const char *how = "realloc";
  switch (below(5)) {
    case 0:
      flags = 0;
      block = realloc(block, size_bytes);
      break;
    case 1:
      how = "reallocarray";
      flags = 0;
      block = reallocarray(block, 1, size_bytes);
      break;
    case 2:
      how = "xallocx";
      if (xallocx(block, size_bytes, below(5000), flags) < size_bytes) size_bytes = it->size_bytes;
      size_bytes = least(size_bytes, sallocx(block, 0));
      break;
    default: how = "rallocx"; block = rallocx(block, size_bytes, flags);
  }
  REQUIRE(block != NULL);
  it->block = block;
  it->size_bytes = size_bytes;
  size_t usable = sallocx(block, 0), kept = snug_is_active() ? usable : size_bytes; /* jemalloc's */
  check_kept(it, least(old_usable, kept), how);
  bool zero = flags & MALLOCX_ZERO;
  size_t nonzero = zero ? nonzero_in(it->block, old_usable, usable) : usable;
  CHECK_THAT(nonzero >= usable, "%s to %zu, flags 0x%x: usable were %zu, byte %zu of %zu is another's", how, size_bytes,
             flags, old_usable, nonzero, usable);
  write_block(it, false);
}

static void resize_at_random(uint64_t seed) {
  random_state = seed;
  for (size_t step = 0; step < STEPS; step++) {
    struct live *it = &live[below(BLOCKS)];
    if (it->block == NULL) {
      take(it);
    } else if (below(3) == 0) {
      give(it);
    } else {
      resize(it);
    }
  }
  for (size_t i = 0; i < BLOCKS; i++) {
    if (live[i].block != NULL) give(&live[i]);
  }
}

TEST(bytes_are_kept_or_zero) { resize_at_random(1); }

/* As `how` resized it, with a freed block's bytes where it would move to. */
static void grow_beside_a_secret(size_t from, size_t to, int flags) {
  char *block = mallocx(from, flags), *secret = mallocx(to, flags & ~MALLOCX_ZERO);
  REQUIRE(block != NULL && secret != NULL);
  size_t old_usable = sallocx(block, 0);
  memset(block, 1, from);
  memset(secret, 0xee, sallocx(secret, 0));
  dallocx(secret, 0);
  block = rallocx(block, to, flags);
  REQUIRE(block != NULL);
  size_t usable = sallocx(block, 0), i = from;
  while (i < usable && block[i] == 0) i++;
  CHECK_THAT(i >= usable, "%zu to %zu, flags 0x%x: byte %zu of %zu, usable were %zu", from, to, flags, i, usable,
             old_usable);
  dallocx(block, 0);
}

/* Asked for as zero, and as zero again: nobody wrote what lies behind the bytes asked for. */
TEST(what_was_never_written_stays_zero) {
  for (size_t from = 1; from <= 300; from++) {
    for (size_t to = 1; to <= 320; to++) {
      for (int lg = 0; lg <= 6; lg += 3) grow_beside_a_secret(from, to, MALLOCX_ZERO | MALLOCX_LG_ALIGN(lg));
    }
  }
  for (size_t from = 400; from <= 3 * MIB; from = from * 5 / 4) {
    for (size_t to = from / 2; to <= from * 3; to = to * 9 / 7) {
      for (int lg = 0; lg <= LG_ALIGN_MAX; lg += 7) grow_beside_a_secret(from, to, MALLOCX_ZERO | MALLOCX_LG_ALIGN(lg));
    }
  }
}

/* The first of these tests again in a process with other settings. */
static const char *variable, *settings;

static void run_again(void) {
  setenv(variable, settings, 1);
  execl("/proc/self/exe", "resizing", "bytes_are_kept_or_zero", (char *)NULL);
}

static void under(const char *name, const char *value) {
  if (!snug_is_active()) SKIP("not snug");
  variable = name;
  settings = value;
  int silent = open("/dev/null", O_WRONLY), out = dup(1); /* its own line of what passed is not one of ours */
  dup2(silent, 1);
  run_in_child(run_again);
  dup2(out, 1);
  close(out);
  close(silent);
}

TEST(so_under_guard) { under("SNUG", "guard:1"); }
TEST(so_with_guarded_samples) { under("SNUG", "profile:4096,guard_samples:1"); }
TEST(so_with_zero) { under("MALLOC_CONF", "zero:true"); }

int main(int argc, char **argv) { return run_tests(argc, argv); }
