/* deepbind.c: dlopen(..., RTLD_DEEPBIND), in the shared library only (docs/decisions/0023).
 *
 * A library opened so looks for symbols in its own dependencies first, and libc is one of them: what it frees would go
 * to glibc's free, what the program gave it comes from ours. So before the first such dlopen, the entries of malloc and
 * its relatives in libc's table of symbols get our addresses. Who looks there finds us; who is bound already stays so.
 *
 * D1  Processes that open nothing with that flag keep libc's table as it is, shared with all others.
 * D2  If libc is laid out in another way than this knows, nothing is written: then such libraries go to glibc's malloc.
 * D3  The call itself is passed on by a jump: dlopen goes by its caller's address (RUNPATH, namespace), so it must see
 *     the program's, not ours. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include "dlopen_x86_64.h"
#elif defined(__aarch64__)
#include "dlopen_aarch64.h"
#endif

enum { DEEPBIND_FLAG = 8, NAMES = 16 }; /* musl does not name the flag, and ignores it */

typedef void *open_function(const char *, int);

/* Called by dlopen in dlopen_*.h, which jumps to what it returns. */
__attribute__((visibility("hidden"), used)) open_function *deepbind_next_dlopen(int flags);

/* What all other libraries of this process are bound to. */
static const char *const names[NAMES] = {
    "malloc",      "free",          "calloc",         "realloc",         "reallocarray",       "memalign",
    "valloc",      "aligned_alloc", "pvalloc",        "posix_memalign",  "malloc_usable_size", "__libc_malloc",
    "__libc_free", "__libc_calloc", "__libc_realloc", "__libc_memalign",
};

typedef ElfW(Sym) elf_symbol;
typedef ElfW(Phdr) elf_segment;
typedef ElfW(Dyn) elf_dynamic;

/* libc's table of symbols as its headers describe it. */
struct table {
  uintptr_t known; /* an address inside libc */
  uintptr_t base;  /* what its addresses are relative to */
  const elf_segment *segments;
  size_t segment_count;
  elf_symbol *symbols;
  const char *strings, *strings_end;
  const uint32_t *hash; /* DT_GNU_HASH */
};

static const elf_segment *segment_of(const struct table *table, uintptr_t begin, uintptr_t end) {
  for (size_t i = 0; i < table->segment_count; i++) {
    const elf_segment *segment = &table->segments[i];
    uintptr_t first = table->base + segment->p_vaddr;
    if (segment->p_type == PT_LOAD && begin >= first && end <= first + segment->p_filesz) return segment;
  }
  return NULL;
}

/* musl leaves the addresses in a dynamic section relative. */
static const void *absolute(const struct table *table, uintptr_t address) {
  return (const void *)(address < table->base ? address + table->base : address);
}

static void read_dynamic(struct table *table, const elf_dynamic *entry) {
  size_t strings_bytes = 0;
  for (; entry->d_tag != DT_NULL; entry++) {
    const void *address = absolute(table, entry->d_un.d_ptr);
    if (entry->d_tag == DT_SYMTAB) table->symbols = (elf_symbol *)(uintptr_t)address;
    if (entry->d_tag == DT_STRTAB) table->strings = address;
    if (entry->d_tag == DT_STRSZ) strings_bytes = entry->d_un.d_val;
    if (entry->d_tag == DT_GNU_HASH) table->hash = address;
  }
  table->strings_end = table->strings + strings_bytes;
}

static int look_at_object(struct dl_phdr_info *info, size_t size_bytes, void *data) {
  (void)size_bytes;
  struct table *table = data;
  table->base = info->dlpi_addr;
  table->segments = info->dlpi_phdr;
  table->segment_count = info->dlpi_phnum;
  if (segment_of(table, table->known, table->known + 1) == NULL) return 0;
  for (size_t i = 0; i < table->segment_count; i++) {
    const elf_segment *segment = &table->segments[i];
    if (segment->p_type == PT_DYNAMIC) read_dynamic(table, (const elf_dynamic *)(table->base + segment->p_vaddr));
  }
  return 1;
}

static bool describe(struct table *table) {
  memset(table, 0, sizeof *table);
  table->known = (uintptr_t)dlsym(RTLD_NEXT, "__libc_start_main");
  return table->known != 0 && dl_iterate_phdr(look_at_object, table) == 1 && table->symbols != NULL &&
         table->strings != NULL && table->hash != NULL;
}

static elf_symbol *find_symbol(const struct table *table, const char *name) {
  uint32_t hash = 5381;
  for (const char *c = name; *c != '\0'; c++) hash = hash * 33 + (uint8_t)*c;
  uint32_t bucket_count = table->hash[0], first = table->hash[1], filter_words = table->hash[2];
  const uint32_t *buckets = (const uint32_t *)((const uintptr_t *)(table->hash + 4) + filter_words);
  const uint32_t *chain = buckets + bucket_count;
  uint32_t index = buckets[hash % bucket_count];
  if (index < first) return NULL;
  for (;; index++) {
    uint32_t value = chain[index - first]; /* the lowest bit: the last of its bucket */
    elf_symbol *symbol = &table->symbols[index];
    if ((value | 1) == (hash | 1) && strcmp(table->strings + symbol->st_name, name) == 0) return symbol;
    if ((value & 1) != 0) return NULL;
  }
}

/* Makes the pages from begin to end writable. False if that cannot be, or if code of libc may be in them. */
static bool open_pages(const struct table *table, uintptr_t begin, uintptr_t end, uint32_t *flags) {
  const elf_segment *segment = segment_of(table, begin, end);
  if (segment == NULL) return false;
  *flags = segment->p_flags;
  /* Where one segment holds symbols, their names and code, in this order, the names must reach beyond these pages. */
  bool before_code = (uintptr_t)table->symbols <= (uintptr_t)table->strings && end <= (uintptr_t)table->strings_end;
  if (*flags != PF_R && !(*flags == (PF_R | PF_X) && before_code)) return false;
  return mprotect((void *)begin, end - begin, PROT_READ | PROT_WRITE) == 0;
}

/* Pages that may not become executable again, by a policy of the system, need not: there is no code in them. */
static void close_pages(uintptr_t begin, uintptr_t end, uint32_t flags) {
  int protection = PROT_READ | ((flags & PF_X) != 0 ? PROT_EXEC : 0);
  if (mprotect((void *)begin, end - begin, protection) != 0) mprotect((void *)begin, end - begin, PROT_READ);
}

/* Writes our addresses. Nobody is locked out: a look-up meanwhile finds the old address or the new one. */
static void write_addresses(void) {
  struct table table;
  if (!describe(&table)) return;
  elf_symbol *symbols[NAMES];
  void *ours[NAMES];
  uintptr_t begin = UINTPTR_MAX, end = 0, page_mask = getauxval(AT_PAGESZ) - 1;
  for (size_t i = 0; i < NAMES; i++) {
    symbols[i] = find_symbol(&table, names[i]);
    ours[i] = dlsym(RTLD_DEFAULT, names[i]);
    if (symbols[i] == NULL) continue;
    uintptr_t first = (uintptr_t)symbols[i], last = first + sizeof *symbols[i] - 1;
    if (first < begin) begin = first & ~page_mask;
    if (last >= end) end = (last | page_mask) + 1;
  }
  uint32_t flags;
  if (begin >= end || !open_pages(&table, begin, end, &flags)) return;
  for (size_t i = 0; i < NAMES; i++) {
    if (symbols[i] == NULL || ours[i] == NULL) continue;
    __atomic_store_n(&symbols[i]->st_value, (uintptr_t)ours[i] - table.base, __ATOMIC_RELAXED);
  }
  close_pages(begin, end, flags);
}

static void *no_dlopen(const char *path, int flags) {
  (void)path, (void)flags;
  return NULL;
}

open_function *deepbind_next_dlopen(int flags) {
  static open_function *next;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  open_function *found = __atomic_load_n(&next, __ATOMIC_RELAXED);
  if (found == NULL) {
    *(void **)&found = dlsym(RTLD_NEXT, "dlopen");
    if (found == NULL) found = no_dlopen;
    __atomic_store_n(&next, found, __ATOMIC_RELAXED);
  }
  if ((flags & DEEPBIND_FLAG) != 0) pthread_once(&once, write_addresses);
  return found;
}
