/* cxx.c: C++'s operators new and delete, by their mangled names, so that neither this library nor a C program needs a
 * C++ library. Without them libstdc++'s would call malloc and free as well; with them a program saves a call, sized
 * deletes are checked, and a static program has one allocator for all. Where a program replaces some of them, the
 * others call those, as libstdc++'s do ([new.delete]).
 *
 * A failed new calls the program's new_handler until there is memory, it returns none, or it throws (C++20,
 * [new.delete.single]). What throws is libstdc++'s own function, found weakly, or in a static program strongly
 * (core/archive/operators.c). */
#include <stddef.h>

#include "base.h"
#include "block.h"
#include "fatal.h"
#include "symbols.h"

typedef void (*new_handler)(void);

/* std::get_new_handler() and std::__throw_bad_alloc() of libstdc++, if the program was linked with it. */
extern new_handler get_new_handler(void) __asm__("_ZSt15get_new_handlerv") __attribute__((weak));
extern void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv") __attribute__((weak));

/* Where none is bound, a plug-in may have brought a libstdc++ in later. */
static COLD new_handler current_handler(void) {
  if (get_new_handler != NULL) return get_new_handler();
  new_handler (*late)(void) = (new_handler(*)(void))symbols_next("_ZSt15get_new_handlerv");
  return late != NULL ? late() : NULL;
}

static COLD void throw_or_die(size_t size_bytes) {
  void (*late)(void) =
      throw_bad_alloc != NULL ? throw_bad_alloc : (void (*)(void))symbols_next("_ZSt17__throw_bad_allocv");
  if (late != NULL) late();
  fatal_bad_alloc(size_bytes);
}

static ALWAYS_INLINE void *take(size_t alignment, size_t size_bytes) {
  bool clean;
  return alignment <= 16 ? block_take(size_bytes) : block_take_aligned(alignment, size_bytes, &clean);
}

static COLD void *new_failed(size_t alignment, size_t size_bytes) {
  for (;;) {
    new_handler handler = current_handler();
    if (handler == NULL) throw_or_die(size_bytes);
    handler(); /* may throw */
    void *block = take(alignment, size_bytes);
    if (block != NULL) return block;
  }
}

static ALWAYS_INLINE void *new_throwing(size_t alignment, size_t size_bytes) {
  void *block = take(alignment, size_bytes);
  return likely(block != NULL) ? block : new_failed(alignment, size_bytes);
}

static NEVER_INLINE void *new_slow(size_t size_bytes) {
  void *block = block_take_slow(size_bytes);
  return likely(block != NULL) ? block : new_failed(1, size_bytes);
}

/* The fast path, as malloc's. */
static ALWAYS_INLINE void *new_plain(size_t size_bytes) {
  if (likely(size_bytes <= CLASS_SMALL_MAX_BYTES) && likely(cache_counts(size_bytes))) {
    void *block = cache_pop_at(bin_offset_of(size_bytes));
    if (likely(block != NULL)) return block;
  }
  return new_slow(size_bytes);
}

/* The handler may throw and C cannot catch; libstdc++'s own nothrow operator can, and calls our throwing one. */
static COLD void *nothrow_failed(const char *symbol, size_t size_bytes, size_t alignment, const void *tag) {
  if (current_handler() == NULL) return NULL;
  void *next = symbols_next(symbol);
  if (next == NULL) return NULL;
  if (alignment <= 16) return ((void *(*)(size_t, const void *))next)(size_bytes, tag);
  return ((void *(*)(size_t, size_t, const void *))next)(size_bytes, alignment, tag);
}

#define NEW_NOTHROW "_ZnwmRKSt9nothrow_t"
#define NEW_ALIGNED_NOTHROW "_ZnwmSt11align_val_tRKSt9nothrow_t"
#define NEW_ARRAY_NOTHROW "_ZnamRKSt9nothrow_t"
#define NEW_ARRAY_ALIGNED_NOTHROW "_ZnamSt11align_val_tRKSt9nothrow_t"

static ALWAYS_INLINE void *new_nothrow(size_t alignment, size_t size_bytes, const void *tag) {
  void *block = take(alignment, size_bytes);
  if (likely(block != NULL)) return block;
  return nothrow_failed(alignment <= 16 ? NEW_NOTHROW : NEW_ALIGNED_NOTHROW, size_bytes, alignment, tag);
}

#define OPERATOR(name, mangled) EXPORT name __asm__(mangled)

OPERATOR(void *new_one(size_t), "_Znwm");
OPERATOR(void *new_array(size_t), "_Znam");
OPERATOR(void *new_one_nothrow(size_t, const void *), NEW_NOTHROW);
OPERATOR(void *new_array_nothrow(size_t, const void *), NEW_ARRAY_NOTHROW);
OPERATOR(void *new_one_aligned(size_t, size_t), "_ZnwmSt11align_val_t");
OPERATOR(void *new_array_aligned(size_t, size_t), "_ZnamSt11align_val_t");
OPERATOR(void *new_one_aligned_nothrow(size_t, size_t, const void *), NEW_ALIGNED_NOTHROW);
OPERATOR(void *new_array_aligned_nothrow(size_t, size_t, const void *), NEW_ARRAY_ALIGNED_NOTHROW);
OPERATOR(void delete_one(void *), "_ZdlPv");
OPERATOR(void delete_array(void *), "_ZdaPv");
OPERATOR(void delete_one_sized(void *, size_t), "_ZdlPvm");
OPERATOR(void delete_array_sized(void *, size_t), "_ZdaPvm");
OPERATOR(void delete_one_nothrow(void *, const void *), "_ZdlPvRKSt9nothrow_t");
OPERATOR(void delete_array_nothrow(void *, const void *), "_ZdaPvRKSt9nothrow_t");
OPERATOR(void delete_one_aligned(void *, size_t), "_ZdlPvSt11align_val_t");
OPERATOR(void delete_array_aligned(void *, size_t), "_ZdaPvSt11align_val_t");
OPERATOR(void delete_one_sized_aligned(void *, size_t, size_t), "_ZdlPvmSt11align_val_t");
OPERATOR(void delete_array_sized_aligned(void *, size_t, size_t), "_ZdaPvmSt11align_val_t");
OPERATOR(void delete_one_aligned_nothrow(void *, size_t, const void *), "_ZdlPvSt11align_val_tRKSt9nothrow_t");
OPERATOR(void delete_array_aligned_nothrow(void *, size_t, const void *), "_ZdaPvSt11align_val_tRKSt9nothrow_t");

/* Operators that a program may replace, and others must call then ([new.delete]): whether it did. */
#define OWN(name, mangled) extern __typeof(name) own_##name __attribute__((alias(mangled))) HIDDEN
#define IS_THEIRS(name) unlikely(AS_BOUND(name) != own_##name)

OWN(new_one, "_Znwm");
OWN(new_array, "_Znam");
OWN(new_one_aligned, "_ZnwmSt11align_val_t");
OWN(new_array_aligned, "_ZnamSt11align_val_t");
OWN(new_one_nothrow, NEW_NOTHROW);
OWN(new_array_nothrow, NEW_ARRAY_NOTHROW);
OWN(new_one_aligned_nothrow, NEW_ALIGNED_NOTHROW);
OWN(new_array_aligned_nothrow, NEW_ARRAY_ALIGNED_NOTHROW);
OWN(delete_one, "_ZdlPv");
OWN(delete_array, "_ZdaPv");
OWN(delete_one_sized, "_ZdlPvm");
OWN(delete_one_aligned, "_ZdlPvSt11align_val_t");
OWN(delete_array_aligned, "_ZdaPvSt11align_val_t");

/* The next library's function, NULL if there is none. To look it up takes the loader's lock, so once is enough. */
static void *next_of(const char *symbol, void **known) {
  static char none;
  void *next = __atomic_load_n(known, __ATOMIC_RELAXED);
  if (next == NULL) {
    void *found = symbols_next(symbol);
    next = found != NULL ? found : &none;
    __atomic_store_n(known, next, __ATOMIC_RELAXED);
  }
  return next != &none ? next : NULL;
}

static void *next_nothrow, *next_array_nothrow, *next_aligned_nothrow, *next_array_aligned_nothrow;

/* In whose place these stand: libstdc++'s own call the program's, and catch what it throws. */
static COLD void *nothrow_of_theirs(const char *symbol, void **known, size_t size_bytes, const void *tag) {
  void *next = next_of(symbol, known);
  return next != NULL ? ((void *(*)(size_t, const void *))next)(size_bytes, tag) : AS_BOUND(new_one)(size_bytes);
}

static COLD void *nothrow_aligned_of_theirs(const char *symbol, void **known, size_t size_bytes, size_t alignment,
                                            const void *tag) {
  void *next = next_of(symbol, known);
  if (next == NULL) return AS_BOUND(new_one_aligned)(size_bytes, alignment);
  return ((void *(*)(size_t, size_t, const void *))next)(size_bytes, alignment, tag);
}

void *new_one(size_t size_bytes) { return new_plain(size_bytes); }
void *new_array(size_t size_bytes) {
  return IS_THEIRS(new_one) ? AS_BOUND(new_one)(size_bytes) : own_new_one(size_bytes);
}
void *new_one_nothrow(size_t size_bytes, const void *tag) {
  if (IS_THEIRS(new_one)) return nothrow_of_theirs(NEW_NOTHROW, &next_nothrow, size_bytes, tag);
  return new_nothrow(1, size_bytes, tag);
}
void *new_array_nothrow(size_t size_bytes, const void *tag) {
  if (IS_THEIRS(new_one) || IS_THEIRS(new_array))
    return nothrow_of_theirs(NEW_ARRAY_NOTHROW, &next_array_nothrow, size_bytes, tag);
  return own_new_one_nothrow(size_bytes, tag);
}
void *new_one_aligned(size_t size_bytes, size_t alignment) { return new_throwing(alignment, size_bytes); }
void *new_array_aligned(size_t size_bytes, size_t alignment) {
  if (IS_THEIRS(new_one_aligned)) return AS_BOUND(new_one_aligned)(size_bytes, alignment);
  return own_new_one_aligned(size_bytes, alignment);
}
void *new_one_aligned_nothrow(size_t size_bytes, size_t alignment, const void *tag) {
  if (IS_THEIRS(new_one_aligned))
    return nothrow_aligned_of_theirs(NEW_ALIGNED_NOTHROW, &next_aligned_nothrow, size_bytes, alignment, tag);
  return new_nothrow(alignment, size_bytes, tag);
}
void *new_array_aligned_nothrow(size_t size_bytes, size_t alignment, const void *tag) {
  if (IS_THEIRS(new_one_aligned) || IS_THEIRS(new_array_aligned))
    return nothrow_aligned_of_theirs(NEW_ARRAY_ALIGNED_NOTHROW, &next_array_aligned_nothrow, size_bytes, alignment,
                                     tag);
  return own_new_one_aligned_nothrow(size_bytes, alignment, tag);
}

/* Atomic: smaller sizes take the fast path. 0: delete or a new is theirs, or nobody has looked yet. As the size was
 * compared before, it costs that path nothing. */
static size_t sized_below;

/* Then a block may be longer than the object in it, and the size says nothing. */
static COLD bool some_new_is_theirs(void) {
  return IS_THEIRS(new_one) || IS_THEIRS(new_array) || IS_THEIRS(new_one_nothrow) || IS_THEIRS(new_array_nothrow) ||
         IS_THEIRS(new_one_aligned) || IS_THEIRS(new_array_aligned) || IS_THEIRS(new_one_aligned_nothrow) ||
         IS_THEIRS(new_array_aligned_nothrow);
}

static NEVER_INLINE void delete_sized_slow(void *block, size_t size_bytes) {
  if (IS_THEIRS(delete_one)) return AS_BOUND(delete_one)(block);
  if (some_new_is_theirs()) return own_delete_one(block);
  __atomic_store_n(&sized_below, CLASS_SMALL_MAX_BYTES + 1, __ATOMIC_RELAXED);
  block_give_sized(block, 1, size_bytes);
}

static NEVER_INLINE void delete_unsized_here(void *block) {
  if (IS_THEIRS(delete_one)) return AS_BOUND(delete_one)(block);
  own_delete_one(block);
}

static NEVER_INLINE void delete_unsized_aligned_here(void *block, size_t alignment) {
  if (IS_THEIRS(delete_one_aligned)) return AS_BOUND(delete_one_aligned)(block, alignment);
  own_delete_one(block);
}

static NEVER_INLINE void delete_sized_aligned_here(void *block, size_t size_bytes, size_t alignment) {
  if (IS_THEIRS(delete_one_aligned)) return AS_BOUND(delete_one_aligned)(block, alignment);
  if (some_new_is_theirs()) return own_delete_one(block);
  block_give_sized(block, alignment, size_bytes);
}

void delete_one(void *block) { block_give(block); }
void delete_array(void *block) { delete_unsized_here(block); }
void delete_one_sized(void *block, size_t size_bytes) {
  if (unlikely(size_bytes >= __atomic_load_n(&sized_below, __ATOMIC_RELAXED)))
    return delete_sized_slow(block, size_bytes);
  if (size_bytes > CLASS_SMALL_MAX_BYTES) __builtin_unreachable();
  block_give_sized(block, 1, size_bytes);
}
void delete_array_sized(void *block, size_t size_bytes) {
  if (IS_THEIRS(delete_array)) return AS_BOUND(delete_array)(block);
  own_delete_one_sized(block, size_bytes);
}
void delete_one_nothrow(void *block, const void *tag) {
  (void)tag;
  delete_unsized_here(block);
}
void delete_array_nothrow(void *block, const void *tag) {
  (void)tag;
  if (IS_THEIRS(delete_array)) return AS_BOUND(delete_array)(block);
  delete_unsized_here(block);
}
void delete_one_aligned(void *block, size_t alignment) {
  (void)alignment;
  block_give(block);
}
void delete_array_aligned(void *block, size_t alignment) { delete_unsized_aligned_here(block, alignment); }
void delete_one_sized_aligned(void *block, size_t size_bytes, size_t alignment) {
  delete_sized_aligned_here(block, size_bytes, alignment);
}
void delete_array_sized_aligned(void *block, size_t size_bytes, size_t alignment) {
  if (IS_THEIRS(delete_array_aligned)) return AS_BOUND(delete_array_aligned)(block, alignment);
  delete_sized_aligned_here(block, size_bytes, alignment);
}
void delete_one_aligned_nothrow(void *block, size_t alignment, const void *tag) {
  (void)tag;
  delete_unsized_aligned_here(block, alignment);
}
void delete_array_aligned_nothrow(void *block, size_t alignment, const void *tag) {
  (void)tag;
  if (IS_THEIRS(delete_array_aligned)) return AS_BOUND(delete_array_aligned)(block, alignment);
  delete_unsized_aligned_here(block, alignment);
}
