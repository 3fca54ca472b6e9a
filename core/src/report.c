#include "report.h"

#include <string.h>

#include "lock.h"
#include "profile_table.h"
#include "python.h"
#include "rights.h"
#include "ruby.h"
#include "symbol_table.h"
#include "sys.h"
#include "unwind.h"

enum {
  NATIVE_LINES_MAX = 16,
  INTERPRETER_LINES = 2, /* where nobody knows beforehand whether lines of its language follow */
  LANGUAGE_LINES_MAX = 24,
  REPORT_LINE_BYTES = 600,
  MAPS_LINE_BYTES = 1024,
  WAIT_NAPS = 10000,
};

#define WAIT_NAP_NS UINT64_C(1000000)

/* I1. Static, as stacks of signal handlers are short. */
static struct {
  const void *thread; /* atomic: lock_self() of who reports, or NULL */
  struct profile_frames frames;
  uint32_t language_lines;
  char line[REPORT_LINE_BYTES], maps[MAPS_LINE_BYTES];
} report;

bool report_begin(void) {
  const void *self = lock_self();
  for (int i = 0; i < WAIT_NAPS; i++) {
    const void *nobody = NULL;
    if (__atomic_compare_exchange_n(&report.thread, &nobody, self, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return true;
    if (nobody == self) return false;
    sys_sleep(WAIT_NAP_NS);
  }
  return false;
}

bool report_is_own(void) { return __atomic_load_n(&report.thread, __ATOMIC_ACQUIRE) == lock_self(); }

void report_after_fork(void) { __atomic_store_n(&report.thread, NULL, __ATOMIC_RELAXED); }

void report_end(void) { __atomic_store_n(&report.thread, NULL, __ATOMIC_RELEASE); }

void report_line(struct text *text) {
  text_char(text, '\n');
  sys_write(2, "snug: ", 6);
  sys_write(2, text->start, text->length_bytes);
}

static struct text begin_line(const char *words) {
  struct text text = text_in(report.line, sizeof report.line - 1);
  text_string(&text, words);
  return text;
}

static void say(const char *words) {
  struct text text = begin_line(words);
  report_line(&text);
}

/* ---- objects ---- */

/* A file that is mapped, and where. */
struct code_object {
  uintptr_t address; /* whose object is looked for */
  bool found;
  uintptr_t base, base_end; /* its first mapping */
  char path[REPORT_LINE_BYTES / 2];
};

static uintptr_t hexadecimal_at(const char **at) {
  uintptr_t value = 0;
  for (;; (*at)++) {
    char c = **at;
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return value;
    value = value << 4 | (uintptr_t)digit;
  }
}

/* start-end permissions offset device inode path */
static bool look_at_mapping(const char *line, void *data) {
  struct code_object *object = data;
  const char *at = line, *path = string_find(line, '/');
  uintptr_t start = hexadecimal_at(&at);
  if (*at != '-') return true; /* the rest of a line that was cut */
  at++;
  uintptr_t end = hexadecimal_at(&at);
  bool is_readable = at[0] == ' ' && at[1] == 'r';
  for (int spaces = 0; *at != '\0' && spaces < 2; at++) spaces += *at == ' ';
  bool is_first = hexadecimal_at(&at) == 0; /* its offset */
  if (path == NULL) return true;
  if (is_first) {
    struct text text = text_in(object->path, sizeof object->path);
    text_string(&text, path);
    object->base = is_readable ? start : 0;
    object->base_end = end;
  }
  if (object->address < start || object->address >= end) return true;
  object->found = object->base != 0 && string_begins(path, object->path);
  return false;
}

static bool find_code(struct code_object *object, uint64_t address) {
  *object = (struct code_object){.address = (uintptr_t)address};
  if (rights_have(RIGHT_FILES)) /* the process is about to end: no sandbox is entered meanwhile (S1) */
    sys_each_line("/proc/self/maps", report.maps, sizeof report.maps, look_at_mapping, object);
  return object->found;
}

/* The headers of an object, and where its addresses count from. False: they are not there. */
static bool read_headers(const struct code_object *object, struct symbol_table *table, bool *is_program) {
  const Elf64_Ehdr *header = (const Elf64_Ehdr *)object->base;
  size_t room = object->base_end - object->base;
  if (room < sizeof *header || header->e_ident[0] != 0x7f || header->e_ident[1] != 'E') return false;
  if (header->e_phoff > room || header->e_phnum > (room - header->e_phoff) / sizeof(Elf64_Phdr)) return false;
  const Elf64_Phdr *segments = (const Elf64_Phdr *)(object->base + header->e_phoff);
  uintptr_t first = UINTPTR_MAX;
  *is_program = header->e_type == ET_EXEC;
  for (size_t i = 0; i < header->e_phnum; i++) {
    if (segments[i].p_type == PT_INTERP) *is_program = true;
    if (segments[i].p_type == PT_LOAD && segments[i].p_vaddr < first) first = segments[i].p_vaddr;
  }
  *table = symbol_table_of(object->base - round_down(first, PAGE_BYTES), segments, header->e_phnum);
  return true;
}

/* ---- frames ---- */

/* name+0x12 (file+0x345): what addr2line(1) takes. */
static void say_native(uint64_t pc, const struct code_object *object) {
  struct text text = begin_line("  ");
  struct symbol_table table;
  bool is_program;
  if (!object->found || !read_headers(object, &table, &is_program)) {
    text_address(&text, (const void *)(uintptr_t)pc);
    return report_line(&text);
  }
  const Elf64_Sym *symbol = symbol_table_holding(&table, (uintptr_t)pc);
  if (symbol != NULL) {
    text_string(&text, table.names + symbol->st_name);
    text_char(&text, '+');
    text_address(&text, (const void *)((uintptr_t)pc - table.base - symbol->st_value));
    text_string(&text, " (");
  }
  text_string(&text, object->path);
  text_char(&text, '+');
  text_address(&text, (const void *)((uintptr_t)pc - table.base));
  if (symbol != NULL) text_char(&text, ')');
  report_line(&text);
}

/* The library itself, if it is one: in a program that it is linked into its frames are among the others. */
static uintptr_t own_base(struct code_object *object) {
  struct symbol_table table;
  bool is_program = true;
  if (!find_code(object, (uintptr_t)own_base) || !read_headers(object, &table, &is_program)) return 0;
  return is_program ? 0 : object->base;
}

/* Up to where the interpreter begins, whose own frames say little, and so many of those: if none, then also none of
 * those by which an extension asked it for memory. */
static void say_native_frames(const uint64_t *frames, size_t count, const void *interpreter, size_t of_interpreter) {
  struct code_object object;
  uintptr_t own = own_base(&object), end = 0;
  if (interpreter != NULL && find_code(&object, (uintptr_t)interpreter)) end = object.base;
  size_t lines = 0;
  for (size_t i = 0; i < count && lines < NATIVE_LINES_MAX; i++) {
    bool found = find_code(&object, frames[i]);
    if (found && lines == 0 && (object.base == own || (of_interpreter == 0 && object.base == end))) continue;
    if (found && object.base == end && of_interpreter-- == 0) break;
    say_native(frames[i], &object);
    lines++;
  }
}

static void say_language(const char *label, size_t label_bytes, const char *path, size_t path_bytes, uint32_t line) {
  if (report.language_lines++ >= LANGUAGE_LINES_MAX) return;
  struct text text = begin_line("  ");
  for (size_t i = 0; i < label_bytes && i < PROFILE_LABEL_MAX_BYTES; i++) text_char(&text, label[i]);
  text_string(&text, path_bytes != 0 ? " (" : "");
  for (size_t i = 0; i < path_bytes && i < PROFILE_PATH_MAX_BYTES; i++) text_char(&text, path[i]);
  if (line != 0) text_char(&text, ':');
  if (line != 0) text_number(&text, line);
  text_string(&text, path_bytes != 0 ? ")" : "");
  report_line(&text);
}

static void say_tags(uint32_t tags) {
  if ((tags & SNUG_PROFILE_RUBY_NO_LOCK) != 0) say("  (no lines of Ruby: the thread did not hold its lock)");
  if ((tags & SNUG_PROFILE_RUBY_GC) != 0) say("  (no lines of Ruby: its garbage collector was running)");
  if ((tags & SNUG_PROFILE_PYTHON_NO_LOCK) != 0) say("  (no lines of Python: the thread did not hold its lock)");
}

static const void *interpreter_of(uint32_t tags) {
  if ((tags & SNUG_PROFILE_RUBY) != 0) return ruby_function();
  return (tags & SNUG_PROFILE_PYTHON) != 0 ? python_function() : NULL;
}

void report_stack(uint32_t stack) {
  if (stack == 0) return say("  (unknown)");
  const struct snug_profile_stack *row = profile_table_stack_at(stack);
  const uint64_t *words = (const uint64_t *)(row + 1);
  report.language_lines = 0;
  say_native_frames(words, row->native_frames, interpreter_of(row->tags), 0);
  for (size_t i = 0; i < row->language_frames; i++) {
    uint64_t word = words[row->native_frames + i];
    if ((uint32_t)word == 0) continue; /* P3 */
    const struct snug_profile_name *name = profile_table_name_at((uint32_t)word);
    const char *label = (const char *)(name + 1);
    say_language(label, name->label_bytes, label + name->label_bytes, name->path_bytes, (uint32_t)(word >> 32));
  }
  say_tags(row->tags);
}

void report_here(const void *context) {
  struct profile_frames *frames = &report.frames;
  *frames = (struct profile_frames){.tell = say_language};
  if (context != NULL) {
    frames->native_count = unwind_interrupted(context, frames->native, PROFILE_NATIVE_MAX, &frames->native_end);
  } else {
    frames->native_count = unwind_here(frames->native, PROFILE_NATIVE_MAX, NULL, &frames->native_end);
  }
  const void *interpreter = ruby_function() != NULL ? ruby_function() : python_function();
  say_native_frames(frames->native, frames->native_count, interpreter, INTERPRETER_LINES);
  /* Last: where the interpreter itself is what went wrong, its records may be, too. */
  report.language_lines = 0;
  ruby_add_frames(frames);
  if (frames->language_count == 0) python_add_frames(frames);
  say_tags(frames->tags);
}
