#include "unwind.h"

#include <link.h>
#include <string.h>

#include "sys.h"
#include "unwind_memory.h"

enum {
  STACK_MAX_BYTES = 64 << 20, /* further up than this nothing is taken for the same stack */
  OBJECTS_MAX = 64,           /* of musl */
  LAST_FRAMES = 6,            /* through so many an extension may allocate (rb_str_new has 4) */
};

bool unwind_is_there(struct stack_memory *memory, uintptr_t address) {
  uintptr_t page = round_down(address, PAGE_BYTES);
  if ((page >= memory->low && page < memory->high) || page == memory->other) return true;
  if (page < PAGE_BYTES || !sys_can_read((const void *)page)) return false;
  if (page == memory->high) {
    memory->high += PAGE_BYTES;
  } else {
    memory->other = page;
  }
  return true;
}

/* ---- objects ---- */

/* A library or program with tables for unwinding. */
struct object {
  uintptr_t start, end;
  const uint8_t *header; /* .eh_frame_hdr */
};

/* musl's, which stay loaded: what was there at start. */
static struct object objects[OBJECTS_MAX];
static uint32_t object_count; /* atomic */

static int note_object(struct dl_phdr_info *info, size_t size_bytes, void *data) {
  (void)size_bytes;
  (void)data;
  struct object object = {UINTPTR_MAX, 0, NULL};
  for (size_t i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
    uintptr_t start = info->dlpi_addr + segment->p_vaddr;
    if (segment->p_type == PT_GNU_EH_FRAME) object.header = (const uint8_t *)start;
    if (segment->p_type != PT_LOAD) continue;
    if (start < object.start) object.start = start;
    if (start + segment->p_memsz > object.end) object.end = start + segment->p_memsz;
  }
  if (object.header == NULL) return 0;
  if (object_count == OBJECTS_MAX) return 1;
  objects[object_count] = object;
  __atomic_store_n(&object_count, object_count + 1, __ATOMIC_RELEASE);
  return 0;
}

/* As glibc describes an object; its own declaration is not everywhere. */
struct found_object {
  unsigned long long flags;
  void *map_start, *map_end, *link_map, *eh_frame;
  unsigned long long more[8];
};
extern int find_object(void *address, struct found_object *found) __asm__("_dl_find_object") __attribute__((weak));

void unwind_prepare(void) {
  if (find_object != NULL || sys_is_glibc() || dl_iterate_phdr == NULL) return;
  if (__atomic_load_n(&object_count, __ATOMIC_RELAXED) == 0) dl_iterate_phdr(note_object, NULL);
}

const uint8_t *unwind_tables(uint64_t pc) {
  if (find_object != NULL) {
    struct found_object found = {0};
    return find_object((void *)(uintptr_t)pc, &found) == 0 ? found.eh_frame : NULL;
  }
  uint32_t count = __atomic_load_n(&object_count, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < count; i++) {
    if (pc >= objects[i].start && pc < objects[i].end) return objects[i].header;
  }
  return NULL;
}

#if defined(__x86_64__)
#include "unwind_x86_64.h"
#elif defined(__aarch64__)
#include "unwind_aarch64.h"
#endif

/* Code has no place in the first page, nor where the kernel is. */
static bool may_be_code(uint64_t pc) { return pc >= PAGE_BYTES && pc < ADDRESSES_END; }

/* is_signal: the machine stands at an instruction, of whose stack nothing is known, rather than after a call. Part of
 * its callers, whose frames it needs. */
static ALWAYS_INLINE size_t walk_from(struct machine machine, bool is_signal, uint64_t *frames, size_t most,
                                      const struct unwind_range *last, enum unwind_end *end) {
  uint64_t first_sp = machine.sp, sp = machine.sp;
  uintptr_t page = round_down((uintptr_t)machine.sp, PAGE_BYTES);
  struct stack_memory memory = {page, is_signal ? page : page + PAGE_BYTES, 0};
  size_t count = 0, count_of_last = 0;
  bool outmost = false;
  while (count < most && count_of_last < LAST_FRAMES) {
    bool steps = machine_step(&machine, &memory, &is_signal);
    outmost = steps && machine.pc == 0;
    if (!steps || !may_be_code(machine.pc)) break;
    if (machine.sp <= sp || machine.sp - first_sp > STACK_MAX_BYTES) break; /* U2 */
    sp = machine.sp;
    frames[count++] = machine.pc - 1;
    count_of_last +=
        last != NULL && (unwind_range_holds(last[0], machine.pc - 1) || unwind_range_holds(last[1], machine.pc - 1));
  }
  bool enough = count == most || count_of_last == LAST_FRAMES;
  *end = outmost ? UNWIND_OUTMOST : enough ? UNWIND_ENOUGH : UNWIND_CUT;
  return count;
}

NEVER_INLINE size_t unwind_here(uint64_t *frames, size_t most, const struct unwind_range *last, enum unwind_end *end) {
  return walk_from(machine_here(), false, frames, most, last, end);
}

size_t unwind_interrupted(const void *context, uint64_t *frames, size_t most, enum unwind_end *end) {
  struct machine machine = machine_interrupted(sys_interrupted_registers(context));
  *end = UNWIND_CUT;
  if (most == 0 || !may_be_code(machine.pc)) return 0;
  frames[0] = machine.pc;
  return 1 + walk_from(machine, true, frames + 1, most - 1, NULL, end);
}
