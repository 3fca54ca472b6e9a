/* operators.c: C++'s operators new and delete of libsnug.a, a member of its own that only C++ programs pull in.
 *
 * In the library cxx.c finds what throws std::bad_alloc at run time. In a static program nothing does: a weak reference
 * takes no member out of libstdc++.a. Here the references are strong, which a C program must not be asked for; and a
 * program whose libstdc++.a comes first and brings its own operators leaves this member alone.
 *
 * The operators themselves are those of cxx.c, which the Makefile renames in the other member: _Znwm is snug_Znwm. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

extern void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv");
extern void get_new_handler(void) __asm__("_ZSt15get_new_handlerv");

__attribute__((used)) static void (*const needed[])(void) = {throw_bad_alloc, get_new_handler};

/* Each operator under both its names, and a jump from one to the other. */
#define NEW(name, mangled, parameters, arguments)              \
  extern void *snug_##name parameters __asm__("snug" mangled); \
  EXPORT void *name parameters __asm__(mangled);               \
  void *name parameters { return snug_##name arguments; }

#define DELETE(name, mangled, parameters, arguments)          \
  extern void snug_##name parameters __asm__("snug" mangled); \
  EXPORT void name parameters __asm__(mangled);               \
  void name parameters { snug_##name arguments; }

NEW(new_one, "_Znwm", (size_t size), (size))
NEW(new_array, "_Znam", (size_t size), (size))
NEW(new_one_nothrow, "_ZnwmRKSt9nothrow_t", (size_t size, const void *tag), (size, tag))
NEW(new_array_nothrow, "_ZnamRKSt9nothrow_t", (size_t size, const void *tag), (size, tag))
NEW(new_one_aligned, "_ZnwmSt11align_val_t", (size_t size, size_t alignment), (size, alignment))
NEW(new_array_aligned, "_ZnamSt11align_val_t", (size_t size, size_t alignment), (size, alignment))
NEW(new_one_aligned_nothrow, "_ZnwmSt11align_val_tRKSt9nothrow_t", (size_t size, size_t alignment, const void *tag),
    (size, alignment, tag))
NEW(new_array_aligned_nothrow, "_ZnamSt11align_val_tRKSt9nothrow_t", (size_t size, size_t alignment, const void *tag),
    (size, alignment, tag))
DELETE(delete_one, "_ZdlPv", (void *block), (block))
DELETE(delete_array, "_ZdaPv", (void *block), (block))
DELETE(delete_one_sized, "_ZdlPvm", (void *block, size_t size), (block, size))
DELETE(delete_array_sized, "_ZdaPvm", (void *block, size_t size), (block, size))
DELETE(delete_one_nothrow, "_ZdlPvRKSt9nothrow_t", (void *block, const void *tag), (block, tag))
DELETE(delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", (void *block, const void *tag), (block, tag))
DELETE(delete_one_aligned, "_ZdlPvSt11align_val_t", (void *block, size_t alignment), (block, alignment))
DELETE(delete_array_aligned, "_ZdaPvSt11align_val_t", (void *block, size_t alignment), (block, alignment))
DELETE(delete_one_sized_aligned, "_ZdlPvmSt11align_val_t", (void *block, size_t size, size_t alignment),
       (block, size, alignment))
DELETE(delete_array_sized_aligned, "_ZdaPvmSt11align_val_t", (void *block, size_t size, size_t alignment),
       (block, size, alignment))
DELETE(delete_one_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t",
       (void *block, size_t alignment, const void *tag), (block, alignment, tag))
DELETE(delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t",
       (void *block, size_t alignment, const void *tag), (block, alignment, tag))
