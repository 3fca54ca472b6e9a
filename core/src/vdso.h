/* vdso.h: finds a function in the shared object that the kernel maps into every process (vdso(7)).
 *
 * It reads clocks without a system call, which a sandbox might not allow, and without libc's clock_gettime, which
 * another library may have taken the place of with code that needs a thread of libc's. Included by sys.c only. */
#ifndef SNUG_VDSO_H
#define SNUG_VDSO_H

#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

/* What its dynamic section points to. */
struct vdso {
  uintptr_t bias; /* from addresses in the file to those in memory */
  const Elf64_Sym *symbols;
  const char *names;
  const uint32_t *hash;     /* DT_HASH; NULL: none */
  const uint32_t *gnu_hash; /* DT_GNU_HASH; NULL: none */
};

static void vdso_note(struct vdso *vdso, const Elf64_Dyn *entry) {
  const void *address = (const void *)(vdso->bias + entry->d_un.d_ptr);
  switch (entry->d_tag) {
    case DT_SYMTAB: vdso->symbols = address; break;
    case DT_STRTAB: vdso->names = address; break;
    case DT_HASH: vdso->hash = address; break;
    case DT_GNU_HASH: vdso->gnu_hash = address; break;
    default: break;
  }
}

/* How many symbols there are. A GNU hash table does not say: the last one ends the chain that begins highest. */
static uint32_t vdso_symbol_count(const struct vdso *vdso) {
  if (vdso->hash != NULL) return vdso->hash[1];
  if (vdso->gnu_hash == NULL) return 0;
  uint32_t buckets = vdso->gnu_hash[0], first = vdso->gnu_hash[1], filter_words = vdso->gnu_hash[2], last = 0;
  const uint32_t *bucket = vdso->gnu_hash + 4 + 2 * (size_t)filter_words, *chain = bucket + buckets;
  for (uint32_t i = 0; i < buckets; i++) {
    if (bucket[i] > last) last = bucket[i];
  }
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) last++;
  return last + 1;
}

/* The function of that name; NULL when there is none, or no such object. */
static void *vdso_find(const char *name) {
  int before = errno;
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)getauxval(AT_SYSINFO_EHDR);
  errno = before; /* it says so where there is none, under an emulator */
  if (header == NULL) return NULL;
  const Elf64_Phdr *segments = (const Elf64_Phdr *)((uintptr_t)header + header->e_phoff);
  struct vdso vdso = {0};
  const Elf64_Dyn *dynamic = NULL;
  for (size_t i = 0; i < header->e_phnum; i++) {
    if (segments[i].p_type == PT_LOAD) vdso.bias = (uintptr_t)header + segments[i].p_offset - segments[i].p_vaddr;
    if (segments[i].p_type == PT_DYNAMIC) dynamic = (const Elf64_Dyn *)((uintptr_t)header + segments[i].p_offset);
  }
  for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) vdso_note(&vdso, dynamic);
  if (vdso.symbols == NULL || vdso.names == NULL) return NULL;
  uint32_t count = vdso_symbol_count(&vdso);
  for (uint32_t i = 0; i < count; i++) {
    const Elf64_Sym *symbol = &vdso.symbols[i];
    if (symbol->st_shndx != SHN_UNDEF && strcmp(vdso.names + symbol->st_name, name) == 0)
      return (void *)(vdso.bias + symbol->st_value);
  }
  return NULL;
}

#endif
