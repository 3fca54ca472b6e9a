/* symbol_table.h: the dynamic symbols of an object that the loader or the kernel put into memory, by its headers.
 *
 * Serves where dlsym(3) can't: for the kernel's own object (vdso(7)), before glibc 2.34 in a program without libdl, and
 * to find the table's entry itself. Takes no lock and calls nothing but strcmp. */
#ifndef SNUG_SYMBOL_TABLE_H
#define SNUG_SYMBOL_TABLE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "libc.h"

struct symbol_table {
  uintptr_t base; /* what the addresses in the file are relative to */
  const Elf64_Phdr *segments;
  size_t segment_count;
  Elf64_Sym *symbols; /* NULL: the object has no table */
  const char *names, *names_end;
  const uint32_t *hash;     /* DT_HASH, DT_GNU_HASH; NULL: not there */
  const uint32_t *gnu_hash; /* at least one of them is there if symbols is */
  const uint16_t *versions; /* NULL: none */
};

/* The loaded segment that holds all bytes from begin to end; NULL if none does. */
static inline const Elf64_Phdr *symbol_table_segment(const struct symbol_table *table, uintptr_t begin, uintptr_t end) {
  for (size_t i = 0; i < table->segment_count; i++) {
    const Elf64_Phdr *segment = &table->segments[i];
    uintptr_t first = table->base + segment->p_vaddr;
    if (segment->p_type == PT_LOAD && begin >= first && end <= first + segment->p_memsz) return segment;
  }
  return NULL;
}

/* glibc makes the addresses in a dynamic section absolute; musl and the kernel leave them relative. */
static inline const void *symbol_table_address(const struct symbol_table *table, uintptr_t address) {
  uintptr_t moved = table->base + address;
  return (const void *)(symbol_table_segment(table, moved, moved + 1) != NULL ? moved : address);
}

static inline void symbol_table_note(struct symbol_table *table, const Elf64_Dyn *entry, size_t *names_bytes) {
  const void *address = symbol_table_address(table, entry->d_un.d_ptr);
  switch (entry->d_tag) {
    case DT_SYMTAB: table->symbols = (Elf64_Sym *)(uintptr_t)address; break;
    case DT_STRTAB: table->names = address; break;
    case DT_STRSZ: *names_bytes = entry->d_un.d_val; break;
    case DT_HASH: table->hash = address; break;
    case DT_GNU_HASH: table->gnu_hash = address; break;
    case DT_VERSYM: table->versions = address; break;
    default: break;
  }
}

static inline struct symbol_table symbol_table_of(uintptr_t base, const Elf64_Phdr *segments, size_t segment_count) {
  struct symbol_table table = {base, segments, segment_count, NULL, NULL, NULL, NULL, NULL, NULL};
  const Elf64_Dyn *entry = NULL;
  size_t names_bytes = 0;
  for (size_t i = 0; i < segment_count; i++) {
    if (segments[i].p_type == PT_DYNAMIC) entry = (const Elf64_Dyn *)(base + segments[i].p_vaddr);
  }
  for (; entry != NULL && entry->d_tag != DT_NULL; entry++) symbol_table_note(&table, entry, &names_bytes);
  if (table.names == NULL || (table.hash == NULL && table.gnu_hash == NULL)) table.symbols = NULL;
  table.names_end = table.names + names_bytes;
  return table;
}

/* Whether it is a definition of that name, and of several versions the one that new programs are linked with. */
static inline bool symbol_table_matches(const struct symbol_table *table, uint32_t index, const char *name) {
  enum { HIDDEN_VERSION = 0x8000 };
  const Elf64_Sym *symbol = &table->symbols[index];
  return symbol->st_shndx != SHN_UNDEF && strcmp(table->names + symbol->st_name, name) == 0 &&
         (table->versions == NULL || (table->versions[index] & HIDDEN_VERSION) == 0);
}

static inline Elf64_Sym *symbol_table_find_gnu(const struct symbol_table *table, const char *name) {
  uint32_t wanted = 5381;
  for (const char *c = name; *c != '\0'; c++) wanted = wanted * 33 + (uint8_t)*c;
  uint32_t bucket_count = table->gnu_hash[0], first = table->gnu_hash[1], filter_words = table->gnu_hash[2];
  const uint32_t *buckets = table->gnu_hash + 4 + 2 * (size_t)filter_words, *chain = buckets + bucket_count;
  uint32_t index = bucket_count != 0 ? buckets[wanted % bucket_count] : 0;
  if (index < first || index == 0) return NULL;
  for (;; index++) {
    uint32_t value = chain[index - first]; /* the lowest bit: the last of its bucket */
    if ((value | 1) == (wanted | 1) && symbol_table_matches(table, index, name)) return &table->symbols[index];
    if ((value & 1) != 0) return NULL;
  }
}

static inline Elf64_Sym *symbol_table_find_sysv(const struct symbol_table *table, const char *name) {
  uint32_t wanted = 0;
  for (const char *c = name; *c != '\0'; c++) {
    wanted = (wanted << 4) + (uint8_t)*c;
    wanted = (wanted ^ ((wanted & 0xf0000000) >> 24)) & 0x0fffffff;
  }
  uint32_t bucket_count = table->hash[0];
  const uint32_t *buckets = table->hash + 2, *chain = buckets + bucket_count;
  uint32_t index = bucket_count != 0 ? buckets[wanted % bucket_count] : 0;
  for (; index != 0; index = chain[index]) {
    if (symbol_table_matches(table, index, name)) return &table->symbols[index];
  }
  return NULL;
}

/* The definition of that name; NULL when there is none. */
static inline Elf64_Sym *symbol_table_find(const struct symbol_table *table, const char *name) {
  if (table->symbols == NULL) return NULL;
  return table->gnu_hash != NULL ? symbol_table_find_gnu(table, name) : symbol_table_find_sysv(table, name);
}

/* How many symbols there are: DT_HASH says so; else those that the buckets lead to are counted. */
static inline uint32_t symbol_table_count(const struct symbol_table *table) {
  if (table->hash != NULL) return table->hash[1];
  uint32_t bucket_count = table->gnu_hash[0], first = table->gnu_hash[1], last = 0;
  const uint32_t *buckets = table->gnu_hash + 4 + 2 * (size_t)table->gnu_hash[2], *chain = buckets + bucket_count;
  for (uint32_t i = 0; i < bucket_count; i++) last = buckets[i] > last ? buckets[i] : last;
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) last++;
  return last + 1;
}

/* The function whose code holds the address; NULL: none that other objects can call. */
static inline const Elf64_Sym *symbol_table_holding(const struct symbol_table *table, uintptr_t address) {
  uint32_t count = table->symbols != NULL ? symbol_table_count(table) : 0;
  for (uint32_t i = 0; i < count; i++) {
    const Elf64_Sym *symbol = &table->symbols[i];
    bool is_code = ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF;
    if (is_code && address - (table->base + symbol->st_value) < symbol->st_size) return symbol;
  }
  return NULL;
}

#endif
