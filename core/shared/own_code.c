/* own_code.c: where the shared library's code lies. That of the archive lies among the program's: core/archive. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../src/profile_dump.h"

/* As the linker defines them. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

bool profile_dump_is_own_code(uintptr_t address) {
  return address >= (uintptr_t)__ehdr_start && address < (uintptr_t)etext;
}
