#include "interpreter.h"

#include <string.h>

#include "symbols.h"
#include "sys.h"

static const void *place_of_mark(const void *function) {
  return (const void *)round_down((uintptr_t)function, INTERPRETER_MARK_BYTES);
}

bool interpreter_find(struct interpreter *interpreter, const void *function,
                      const char *const endings[INTERPRETER_ENDINGS]) {
  struct symbol_table table;
  uintptr_t at = (uintptr_t)function;
  const Elf64_Phdr *segment = symbols_of(function, &table) ? symbol_table_segment(&table, at, at + 1) : NULL;
  if (segment == NULL) return false;
  uintptr_t start = table.base + segment->p_vaddr;
  interpreter->code = (struct unwind_range){start, start + segment->p_memsz};
  for (int i = 0; i < INTERPRETER_ENDINGS; i++) {
    const Elf64_Sym *symbol = endings[i] != NULL ? symbol_table_find(&table, endings[i]) : NULL;
    if (symbol == NULL) continue;
    start = table.base + symbol->st_value;
    interpreter->endings[i] = (struct unwind_range){start, start + symbol->st_size};
  }
  interpreter->function = function;
  memcpy(interpreter->mark, place_of_mark(function), sizeof interpreter->mark);
  return true;
}

/* If the program is the interpreter, the code that began the first thread is inside, too: that frame does not count. */
static bool is_inside(const struct interpreter *interpreter, const struct profile_frames *frames) {
  bool inside = frames->native_end != UNWIND_OUTMOST;
  for (size_t i = 0; i < frames->native_count; i++) {
    uint64_t pc = frames->native[i];
    bool began_thread = frames->native_end == UNWIND_OUTMOST && i + 1 == frames->native_count;
    inside = inside || (!began_thread && unwind_range_holds(interpreter->code, pc));
    for (int k = 0; k < INTERPRETER_ENDINGS; k++) {
      if (unwind_range_holds(interpreter->endings[k], pc)) return false;
    }
  }
  return inside;
}

bool interpreter_can_be_asked(const struct interpreter *interpreter, const struct profile_frames *frames) {
  const void *mark = place_of_mark(interpreter->function);
  return is_inside(interpreter, frames) && sys_can_read(mark) &&
         memcmp(mark, interpreter->mark, sizeof interpreter->mark) == 0;
}
