/* code_ends.c: linked into the archive's member behind all else; see code_begins.c. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../src/profile_dump.h"
#include "code.h"

void archive_code_ends(void) {}
void archive_rare_code_ends(void) {}

static bool is_between(uintptr_t address, void (*begin)(void), void (*end)(void)) {
  return address >= (uintptr_t)begin && address < (uintptr_t)end;
}

bool profile_dump_is_own_code(uintptr_t address) {
  return is_between(address, archive_code_begins, archive_code_ends) ||
         is_between(address, archive_rare_code_begins, archive_rare_code_ends);
}
