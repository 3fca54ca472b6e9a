/* interface.c: everything that allocates, as programs call it, beside a model of what each block contains.
 *
 * `interface`: ours, with system calls refused. What fails must fail for that, or for its size, and leave the block as
 * it was. `differential`: ours, the C library's and jemalloc, each with blocks of its own, by the same steps; what a
 * caller can observe must be the same, but for the differences that are listed here. */
#include "world.h"

#include "../../../src/block.h"
#include "blocks.h"

enum { SLOTS = 64, PEERS = 3 };

enum interface_operation {
  DO_MALLOC,
  DO_CALLOC,
  DO_REALLOC,
  DO_REALLOCARRAY,
  DO_ALIGNED_ALLOC,
  DO_POSIX_MEMALIGN,
  DO_MEMALIGN,
  DO_VALLOC,
  DO_PVALLOC,
  DO_FREE,
  DO_FREE_SIZED,
  DO_USE_ALL,
  DO_MALLOCX,
  DO_RALLOCX,
  DO_XALLOCX,
  DO_NALLOCX,
  DO_DALLOCX,
  DO_SDALLOCX,
  DO_PURGE,
  DO_WAIT,
};

static const char *const interface_operations[] = {
    "malloc",  "calloc",  "realloc", "reallocarray", "aligned_alloc", "posix_memalign", "memalign",
    "valloc",  "pvalloc", "free",    "free_sized",   "use_all",       "mallocx",        "rallocx",
    "xallocx", "nallocx", "dallocx", "sdallocx",     "purge",         "wait",           NULL,
};

struct user_block {
  char *start; /* NULL: none */
  size_t bytes, requested_bytes, alignment;
  uint64_t seed;
};

/* What a caller observes. */
struct outcome {
  bool done, is_null;
  int error;
};

static struct user {
  const struct fuzz_allocator *allocator;
  struct user_block slots[SLOTS];
} users[PEERS];
static size_t user_count;
static uint64_t seeds, refused_before;

/* ---- one block ---- */

static void check_block(const struct user *user, const struct user_block *block, size_t common) {
  size_t at = mark_mismatch(block->start, block->bytes, common, block->seed);
  if (at != SIZE_MAX)
    fuzz_fail("%s: the block %p of %zu bytes has changed at %zu", user->allocator->name, (void *)block->start,
              block->bytes, at);
}

static struct outcome refused_outcome(const struct user *user, const char *what, size_t bytes, bool impossible) {
  bool may_fail = user->allocator == &own_allocator && refused_calls != refused_before;
  if (!impossible && !may_fail) fuzz_fail("%s: no memory for %s of %zu bytes", user->allocator->name, what, bytes);
  fuzz_counts->failed += !impossible;
  return (struct outcome){true, true, errno};
}

/* A new block in a slot that is empty, or whose block became this one. */
static void take_block(struct user *user, struct user_block *slot, char *start, size_t bytes, size_t alignment) {
  const struct fuzz_allocator *allocator = user->allocator;
  size_t least = allocator == &own_allocator || bytes >= 16 ? 16 : 8;
  if (allocator != &own_allocator && bytes == 0) alignment = 0; /* jemalloc's valloc(0) */
  if ((uintptr_t)start % (alignment > least ? alignment : least) != 0)
    fuzz_fail("%s: %p is not at a multiple of %zu", allocator->name, (void *)start, alignment);
  size_t usable = allocator->malloc_usable_size(start);
  if (usable < bytes) fuzz_fail("%s: %zu usable bytes of %zu", allocator->name, usable, bytes);
  *slot = (struct user_block){start, bytes, bytes, alignment, ++seeds};
  mark(start, bytes, slot->seed);
}

static void release(struct user *user, struct user_block *slot, unsigned operation) {
  const struct fuzz_allocator *allocator = user->allocator;
  struct user_block block = *slot;
  if (block.start == NULL) return;
  check_block(user, &block, block.bytes);
  slot->start = NULL;
  errno = 4321;
  int flags = block.alignment != 0 ? __builtin_ctzl(block.alignment) : 0;
  if (operation == DO_FREE_SIZED && block.alignment != 0 && allocator->free_aligned_sized != NULL)
    allocator->free_aligned_sized(block.start, block.alignment, block.requested_bytes);
  else if (operation == DO_FREE_SIZED && allocator->free_sized != NULL)
    allocator->free_sized(block.start, block.requested_bytes);
  else if (operation == DO_DALLOCX && allocator->dallocx != NULL)
    allocator->dallocx(block.start, flags);
  else if (operation == DO_SDALLOCX && allocator->sdallocx != NULL && block.requested_bytes != 0)
    allocator->sdallocx(block.start, block.requested_bytes, flags);
  else
    allocator->free(block.start);
  if (errno != 4321) fuzz_fail("%s: free sets errno to %d", allocator->name, errno);
}

/* ---- the calls ---- */

static struct outcome take_new(struct user *user, struct user_block *slot, unsigned operation, size_t bytes) {
  const struct fuzz_allocator *allocator = user->allocator;
  char *start = NULL;
  errno = 0;
  if (operation == DO_MALLOC) start = hidden(allocator->malloc(hidden_size(bytes)));
  if (operation == DO_VALLOC) start = hidden(allocator->valloc(hidden_size(bytes)));
  if (operation == DO_PVALLOC) start = hidden(allocator->pvalloc(hidden_size(bytes)));
  size_t alignment = operation == DO_MALLOC ? 0 : (size_t)PAGE_BYTES;
  size_t promised = operation == DO_PVALLOC && bytes <= PTRDIFF_MAX ? round_up(bytes, PAGE_BYTES) : bytes;
  if (start == NULL) return refused_outcome(user, interface_operations[operation], bytes, bytes > PTRDIFF_MAX / 2);
  take_block(user, slot, start, promised, alignment);
  slot->requested_bytes = bytes;
  return (struct outcome){true, false, 0};
}

static struct outcome take_zeroed(struct user *user, struct user_block *slot, size_t count, size_t each) {
  size_t bytes;
  bool overflows = __builtin_mul_overflow(count, each, &bytes);
  errno = 0;
  char *start = hidden(user->allocator->calloc(hidden_size(count), each));
  if (start == NULL) return refused_outcome(user, "calloc", bytes, overflows || bytes > PTRDIFF_MAX / 2);
  if (overflows || !reads_as_zero(start, 0, bytes))
    fuzz_fail("%s: calloc(%zu, %zu) is not zero", user->allocator->name, count, each);
  take_block(user, slot, start, bytes, 0);
  return (struct outcome){true, false, 0};
}

static struct outcome take_aligned_block(struct user *user, struct user_block *slot, unsigned operation,
                                         size_t alignment, size_t bytes) {
  const struct fuzz_allocator *allocator = user->allocator;
  void *start = NULL;
  int error = 0;
  bool is_power = alignment != 0 && (alignment & (alignment - 1)) == 0;
  errno = 0;
  if (operation == DO_ALIGNED_ALLOC) start = hidden(allocator->aligned_alloc(hidden_size(alignment), bytes));
  if (operation == DO_MEMALIGN) start = hidden(allocator->memalign(hidden_size(alignment), bytes));
  if (operation == DO_POSIX_MEMALIGN) {
    error = allocator->posix_memalign(&start, hidden_size(alignment), bytes);
    if ((error != 0) != (start == NULL)) fuzz_fail("%s: posix_memalign says %d", allocator->name, error);
    errno = error;
  }
  bool impossible = bytes > PTRDIFF_MAX / 2 || alignment > PTRDIFF_MAX / 2 || !is_power ||
                    (operation == DO_POSIX_MEMALIGN && alignment % sizeof(void *) != 0);
  if (start == NULL) return refused_outcome(user, interface_operations[operation], bytes, impossible);
  while ((alignment & (alignment - 1)) != 0) alignment += alignment & -alignment; /* as memalign rounds it up */
  take_block(user, slot, start, bytes, alignment);
  return (struct outcome){true, false, 0};
}

static struct outcome resize(struct user *user, struct user_block *slot, size_t count, size_t each, bool is_array) {
  struct user_block before = *slot;
  size_t bytes;
  bool overflows = __builtin_mul_overflow(count, each, &bytes);
  if (before.start != NULL) check_block(user, &before, before.bytes);
  if (bytes == 0 && before.start != NULL) { /* C23 leaves it open; all agree that the old block is gone */
    void *left = hidden(user->allocator->realloc(before.start, 0));
    slot->start = NULL;
    user->allocator->free(left);
    return (struct outcome){false, false, 0};
  }
  errno = 0;
  char *start = is_array ? hidden(user->allocator->reallocarray(before.start, hidden_size(count), each))
                         : hidden(user->allocator->realloc(before.start, hidden_size(bytes)));
  int error = errno;
  if (start == NULL) {
    if (before.start != NULL) check_block(user, &before, before.bytes);
    errno = error;
    return refused_outcome(user, "realloc", bytes, overflows || bytes > PTRDIFF_MAX / 2);
  }
  if (before.start != NULL) {
    before.start = start;
    check_block(user, &before, before.bytes < bytes ? before.bytes : bytes);
  }
  take_block(user, slot, start, bytes, 0);
  return (struct outcome){true, false, 0};
}

static void use_all(struct user *user, struct user_block *slot) {
  if (slot->start == NULL) return;
  check_block(user, slot, slot->bytes);
  slot->bytes = user->allocator->malloc_usable_size(slot->start);
  mark(slot->start, slot->bytes, slot->seed);
}

/* Size zero is undefined in jemalloc's calls. */
static struct outcome take_by_flags(struct user *user, struct user_block *slot, unsigned a, size_t bytes) {
  int flags = (int)(a >> 4 & 15) | ((a & 1) != 0 ? MALLOCX_ZERO : 0);
  if (bytes == 0) bytes = 1;
  errno = 0;
  char *start = user->allocator->mallocx(bytes, flags);
  if (start == NULL) return refused_outcome(user, "mallocx", bytes, bytes > PTRDIFF_MAX / 2);
  if ((flags & MALLOCX_ZERO) != 0 && !reads_as_zero(start, 0, user->allocator->sallocx(start, 0)))
    fuzz_fail("%s: mallocx(%zu, %d) is not zero", user->allocator->name, bytes, flags);
  take_block(user, slot, start, bytes, (size_t)1 << (flags & 63));
  size_t usable = user->allocator->sallocx(start, flags), said = user->allocator->nallocx(bytes, flags);
  if (usable != said && user->allocator != &own_allocator)
    fuzz_fail("%s: nallocx says %zu, sallocx %zu", user->allocator->name, said, usable);
  return (struct outcome){true, false, errno};
}

static struct outcome resize_by_flags(struct user *user, struct user_block *slot, unsigned a, size_t bytes,
                                      bool stays) {
  const struct fuzz_allocator *allocator = user->allocator;
  struct user_block before = *slot;
  int flags = (int)(a >> 4 & 15) | ((a & 1) != 0 ? MALLOCX_ZERO : 0);
  if (before.start == NULL) return (struct outcome){false, false, 0};
  if (bytes == 0) bytes = 1;
  check_block(user, &before, before.bytes);
  size_t usable_before = allocator->sallocx(before.start, 0);
  errno = 0;
  char *start = before.start;
  if (stays) {
    size_t usable = allocator->xallocx(start, bytes, 0, flags);
    if (usable != allocator->sallocx(start, 0)) fuzz_fail("%s: xallocx says %zu", allocator->name, usable);
    if (usable < bytes) bytes = usable;
  } else {
    start = allocator->rallocx(start, bytes, flags);
    if (start == NULL) {
      check_block(user, &before, before.bytes);
      return refused_outcome(user, "rallocx", bytes, bytes > PTRDIFF_MAX / 2);
    }
  }
  size_t usable = allocator->sallocx(start, 0);
  before.start = start;
  check_block(user, &before, before.bytes < bytes ? before.bytes : bytes);
  if ((flags & MALLOCX_ZERO) != 0 && !reads_as_zero(start, usable_before, usable))
    fuzz_fail("%s: what the block grew by is not zero", allocator->name);
  take_block(user, slot, start, bytes, stays ? before.alignment : (size_t)1 << (flags & 63));
  if (stays) slot->requested_bytes = usable; /* what sdallocx takes then */
  return (struct outcome){!stays, false, errno};
}

/* Steps that not every allocator can do are done by those that can. */
static bool has(const struct fuzz_allocator *allocator, unsigned operation) {
  switch (operation) {
    case DO_REALLOCARRAY: return allocator->reallocarray != NULL;
    case DO_VALLOC: return allocator->valloc != NULL;
    case DO_PVALLOC: return allocator->pvalloc != NULL;
    case DO_MALLOCX:
    case DO_RALLOCX:
    case DO_XALLOCX:
    case DO_NALLOCX: return allocator->mallocx != NULL;
    default: return true;
  }
}

static struct outcome execute(struct user *user, unsigned operation, unsigned a, unsigned b) {
  struct user_block *slot = &user->slots[a % SLOTS];
  size_t bytes = size_from(b), alignment = (size_t)1 << (a >> 3 & 15);
  if (a >> 6 == 3) alignment += b % 3 == 0 ? 1 : 0; /* no power of two */
  static const size_t counts[] = {1, 2, 3, 7, 64, 1000, SIZE_MAX / 2, (size_t)1 << 62};
  size_t count = counts[a >> 5], each = bytes > 64 * MIB / count && count <= 1000 ? bytes / count : bytes;
  struct outcome nothing = {false, false, 0};
  if (!has(user->allocator, operation)) return nothing;
  bool keeps = operation == DO_REALLOC || operation == DO_REALLOCARRAY || operation == DO_USE_ALL ||
               operation == DO_RALLOCX || operation == DO_XALLOCX || operation == DO_NALLOCX || operation >= DO_PURGE;
  if (!keeps) release(user, slot, operation);
  switch (operation) {
    case DO_MALLOC:
    case DO_VALLOC:
    case DO_PVALLOC: return take_new(user, slot, operation, bytes);
    case DO_CALLOC: return take_zeroed(user, slot, count, each);
    case DO_REALLOC: return resize(user, slot, 1, bytes, false);
    case DO_REALLOCARRAY: return resize(user, slot, count, each, true);
    case DO_ALIGNED_ALLOC:
    case DO_POSIX_MEMALIGN:
    case DO_MEMALIGN: return take_aligned_block(user, slot, operation, alignment, bytes);
    case DO_USE_ALL: return use_all(user, slot), nothing;
    case DO_MALLOCX: return take_by_flags(user, slot, a, bytes);
    case DO_RALLOCX: return resize_by_flags(user, slot, a, bytes, false);
    case DO_XALLOCX: return resize_by_flags(user, slot, a, bytes, true);
    case DO_NALLOCX: return nothing;
    default: return nothing;
  }
}

/* ---- differences on purpose ---- */

/* What differs from ours, and why. Everything else is the same. */
static const struct difference {
  const char *peer;
  unsigned operation;
  bool theirs_is_null, ours_is_null;
  const char *why;
} differences[] = {
    {"glibc", DO_ALIGNED_ALLOC, true, true, "the same: it looks at the size alone"},
    {"glibc", DO_ALIGNED_ALLOC, false, true, "before 2.38 it takes any alignment; C wants a valid one"},
    {"jemalloc", DO_MEMALIGN, true, false, "it takes powers of two alone; ours and glibc's round up"},
    {"jemalloc", DO_REALLOC, true, true, "it leaves errno alone when it fails"},
    {"jemalloc", DO_MEMALIGN, true, true, "it leaves errno alone when it fails"},
    {"jemalloc", DO_VALLOC, true, true, "it leaves errno alone when it fails"},
};

static void compare(const struct user *user, unsigned operation, struct outcome ours, struct outcome theirs) {
  if (!ours.done || !theirs.done) return;
  if (ours.is_null == theirs.is_null && (!ours.is_null || ours.error == theirs.error)) return;
  for (size_t i = 0; i < COUNT_OF(differences); i++) {
    const struct difference *row = &differences[i];
    if (strcmp(row->peer, user->allocator->name) == 0 && row->operation == operation &&
        row->theirs_is_null == theirs.is_null && row->ours_is_null == ours.is_null)
      return;
  }
  fuzz_fail("snug %s, errno %d; %s %s, errno %d", ours.is_null ? "fails" : "succeeds", ours.error,
            user->allocator->name, theirs.is_null ? "fails" : "succeeds", theirs.error);
}

/* ---- the modules ---- */

static void interface_begin(void) {
  begin_core();
  users[0].allocator = &own_allocator;
  user_count = 1;
}

static void differential_begin(void) {
  interface_begin();
  for (size_t i = 0; i < PEERS - 1 && fuzz_peers[i].name != NULL; i++) users[user_count++].allocator = &fuzz_peers[i];
}

static void interface_step(unsigned operation, unsigned a, unsigned b) {
  if (user_count > 1) fuzz_refuse(0, 0); /* the others get what they ask for */
  refused_before = refused_calls;
  if (operation == DO_PURGE && b % 16 == 0) (void)(a % 2 == 0 ? snug_purge() : trim_own_heap());
  if (operation == DO_WAIT && b % 8 == 0) clock_ns += (uint64_t)b * 100000;
  struct outcome ours = {false, false, 0};
  for (size_t i = 0; i < user_count; i++) {
    struct outcome outcome = execute(&users[i], operation, a, b);
    if (i == 0)
      ours = outcome;
    else
      compare(&users[i], operation, ours, outcome);
  }
}

static void interface_check(void) {
  for (size_t i = 0; i < user_count; i++) {
    for (size_t k = 0; k < SLOTS; k++)
      if (users[i].slots[k].start != NULL) check_block(&users[i], &users[i].slots[k], users[i].slots[k].bytes);
  }
  snug_check();
}

static void interface_end(void) {
  for (size_t i = 0; i < user_count; i++)
    for (size_t k = 0; k < SLOTS; k++) release(&users[i], &users[i].slots[k], DO_FREE + k % 2);
  snug_purge();
  snug_check();
}

static void interface_spoil(void) {
  fuzz_refuse(0, 0);
  interface_step(DO_MALLOC, 0, 65000);
  users[0].slots[0].start[50] ^= 1;
}

const struct fuzz_module interface_module = {"interface",     interface_operations, interface_begin, interface_step,
                                             interface_check, interface_end,        interface_spoil};
const struct fuzz_module differential_module = {"differential", interface_operations, differential_begin,
                                                interface_step, interface_check,      interface_end,
                                                interface_spoil};
