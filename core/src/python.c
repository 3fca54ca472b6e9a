#include "python.h"

#include "interpreter.h"
#include "symbols.h"

/* Offsets in CPython's objects, in all its versions that are read here. */
enum {
  OBJECT_REFERENCES = 0, /* the low half tells whether there are any */
  OBJECT_TYPE = 8,
  SIZED_OBJECT_LENGTH = 16,
  BYTES_DATA = 32,
  STRING_LENGTH = 16, /* in characters */
  STRING_STATE = 32,
  STATE_KIND_SHIFT = 2, /* 1, 2 or 4 bytes a character */
  STATE_KIND_MASK = 7,
  STATE_IS_COMPACT = 1 << 5,
  STATE_IS_ASCII = 1 << 6,
  CODE_FILE = 112,
  CODE_QUALIFIED_NAME = 128,
  CODE_LINES = 136,
  FRAME_INSTRUCTION = 56,
  FRAME_OF_INTERPRETER = 3, /* not one of Python code */
  INSTRUCTION_BYTES = 2,
  REFERENCE_MARKS = 3,
  UTF8_MAX_BYTES = 512,
};

/* What is elsewhere in each version: offsets in bytes, in the structures of pycore_frame.h (since 3.14
 * pycore_interpframe_structs.h), cpython/pystate.h, cpython/code.h and cpython/unicodeobject.h. */
static const struct python_layout {
  bool current_is_per_process; /* until 3.11: the state of whichever thread holds the lock */
  uint8_t state_frame;         /* of the thread's state: the innermost frame */
  bool has_c_frame;            /* until 3.12 the state leads to a record of the C function that interprets, */
  uint8_t c_frame_frame;       /* and this to the frame */
  uint8_t frame_code;          /* of a frame; since 3.14 with marks in the lowest bits */
  uint8_t frame_previous;
  uint8_t frame_owner;
  uint8_t code_first_line;
  uint8_t code_start;   /* of its instructions */
  uint8_t string_ascii; /* where the characters begin */
  uint8_t string_other;
} layouts[] = {
    {true, 56, true, 8, 32, 48, 69, 72, 184, 48, 72}, /* 3.11 */
    {false, 56, true, 0, 0, 8, 70, 68, 192, 40, 56},  /* 3.12 */
    {false, 72, false, 0, 0, 8, 70, 68, 200, 40, 56}, /* 3.13 */
    {false, 72, false, 0, 0, 8, 74, 68, 208, 40, 56}, /* 3.14 */
    {false, 72, false, 0, 0, 8, 74, 68, 208, 40, 56}, /* 3.15 */
};

enum { VERSION_FIRST = 0x030b, VERSION_LAST = VERSION_FIRST + sizeof layouts / sizeof layouts[0] - 1 };

static struct {
  bool is_there; /* atomic: all below is set */
  const struct python_layout *layout;
  const void *code_type, *string_type;
  const char *(*current_state)(void);
  const char *(*own_state)(void);
  struct interpreter interpreter;
} python;

static const void *pointer_at(const char *object, size_t offset) { return *(const void *const *)(object + offset); }

static uint32_t word_at(const char *object, size_t offset) { return *(const uint32_t *)(object + offset); }

static bool is_of_type(const char *object, const void *type) {
  return object != NULL && (uintptr_t)object % sizeof(void *) == 0 && pointer_at(object, OBJECT_TYPE) == type;
}

static bool python_is_there(void) { return __atomic_load_n(&python.is_there, __ATOMIC_ACQUIRE); }

struct unwind_range python_code(void) {
  return python_is_there() ? python.interpreter.code : (struct unwind_range){0, 0};
}

/* Whether all is there that frames of this version are read by. */
static bool find_types(uint32_t version, const char *type_type) {
  if (version < VERSION_FIRST || version > VERSION_LAST || !is_of_type(type_type, type_type)) return false;
  python.layout = &layouts[version - VERSION_FIRST];
  python.code_type = symbols_variable("PyCode_Type");
  python.string_type = symbols_variable("PyUnicode_Type");
  return python.code_type != NULL && python.string_type != NULL &&
         (symbols_function(&python.current_state, "PyThreadState_GetUnchecked") ||
          symbols_function(&python.current_state, "_PyThreadState_UncheckedGet")) &&
         symbols_function(&python.own_state, "PyGILState_GetThisThreadState") &&
         interpreter_find(&python.interpreter, python.own_state, (const char *const[]){NULL, NULL});
}

uint32_t python_prepare(void) {
  const char *type_type = symbols_variable("PyType_Type");
  if (type_type == NULL) return 0;
  const unsigned long *version = symbols_variable("Py_Version"); /* since 3.11 */
  uint32_t found = version != NULL ? (uint32_t)(*version >> 16) : 3 << 8;
  if (!find_types(found, type_type)) return found | SNUG_PROFILE_UNREAD;
  __atomic_store_n(&python.is_there, true, __ATOMIC_RELEASE);
  return found;
}

/* ---- names ---- */

static uint32_t character_at(const void *characters, size_t i, uint32_t bytes_each) {
  if (bytes_each == 1) return ((const uint8_t *)characters)[i];
  if (bytes_each == 2) return ((const uint16_t *)characters)[i];
  return ((const uint32_t *)characters)[i];
}

/* As many whole characters as there is room for. Returns their bytes. */
static size_t write_utf8(char *utf8, const void *characters, size_t count, uint32_t bytes_each) {
  size_t bytes = 0;
  for (size_t i = 0; i < count && bytes + 4 <= UTF8_MAX_BYTES; i++) {
    uint32_t c = character_at(characters, i, bytes_each);
    int following = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t marks[] = {0, 0xc0, 0xe0, 0xf0};
    utf8[bytes++] = (char)(marks[following] | c >> 6 * following);
    while (following-- > 0) utf8[bytes++] = (char)(0x80 | (c >> 6 * following & 0x3f));
  }
  return bytes;
}

struct python_text {
  const char *text;
  size_t bytes;
};

/* The string at the offset of an object; what is not ASCII is written to utf8. Empty: it is none. */
static struct python_text read_text(const char *object, size_t offset, char *utf8) {
  const char *string = pointer_at(object, offset);
  if (!is_of_type(string, python.string_type)) return (struct python_text){"", 0};
  uint32_t state = word_at(string, STRING_STATE);
  size_t length = (size_t)pointer_at(string, STRING_LENGTH);
  if ((state & STATE_IS_COMPACT) == 0) return (struct python_text){"", 0};
  if ((state & STATE_IS_ASCII) != 0) return (struct python_text){string + python.layout->string_ascii, length};
  const char *characters = string + python.layout->string_other;
  return (struct python_text){utf8, write_utf8(utf8, characters, length, state >> STATE_KIND_SHIFT & STATE_KIND_MASK)};
}

/* ---- lines ---- */

/* A number in groups of six bits, the lowest first; bit 6 says that another follows. */
static uint32_t read_variable(const uint8_t **at, const uint8_t *end) {
  uint32_t value = 0;
  for (int shift = 0; *at < end && shift < 32; shift += 6) {
    uint8_t byte = *(*at)++;
    value |= (uint32_t)(byte & 0x3f) << shift;
    if ((byte & 0x40) == 0) break;
  }
  return value;
}

/* The line of an instruction, by the table that CPython's Objects/locations.md describes; the function's first line for
 * what stands before all instructions. 0: none. */
static uint32_t source_line(const char *code, ptrdiff_t instruction) {
  enum { ONE_LINE_FIRST = 10, NO_COLUMNS = 13, LONG = 14, NONE = 15 };
  const char *table = pointer_at(code, CODE_LINES);
  uint32_t line = word_at(code, python.layout->code_first_line);
  if (instruction < 0 || table == NULL) return line;
  const uint8_t *at = (const uint8_t *)table + BYTES_DATA, *end = at + (size_t)pointer_at(table, SIZED_OBJECT_LENGTH);
  ptrdiff_t next = 0;
  while (at < end) {
    uint8_t first = *at++;
    int kind = first >> 3 & 15;
    size_t columns = 0; /* bytes that follow, if that is known before they are read */
    if (kind < ONE_LINE_FIRST) {
      columns = 1;
    } else if (kind < NO_COLUMNS) {
      columns = 2;
      line += (uint32_t)(kind - ONE_LINE_FIRST);
    } else if (kind == NO_COLUMNS || kind == LONG) {
      uint32_t change = read_variable(&at, end);
      line += (change & 1) != 0 ? 0u - (change >> 1) : change >> 1;
    }
    next += (first & 7) + 1;
    if (instruction < next) return kind == NONE ? 0 : line;
    if (columns != 0) {
      at += columns;
    } else {
      while (at < end && (*at & 0x80) == 0) at++;
    }
  }
  return 0;
}

/* ---- frames ---- */

static uint64_t python_frame_word(const struct profile_frames *frames, const char *frame, const char *code) {
  char label_utf8[UTF8_MAX_BYTES], path_utf8[UTF8_MAX_BYTES];
  struct python_text label = read_text(code, CODE_QUALIFIED_NAME, label_utf8);
  struct python_text path = read_text(code, CODE_FILE, path_utf8);
  const char *instruction = pointer_at(frame, FRAME_INSTRUCTION);
  uint32_t line = source_line(code, (instruction - (code + python.layout->code_start)) / INSTRUCTION_BYTES);
  return profile_table_frame(frames, label.text, label.bytes, path.text, path.bytes, line);
}

/* The code that a frame runs; NULL: it is none of Python code, or about to end (Z2). */
static const char *code_of(const char *frame) {
  if (frame[python.layout->frame_owner] == FRAME_OF_INTERPRETER) return NULL;
  const char *code =
      (const char *)((uintptr_t)pointer_at(frame, python.layout->frame_code) & ~(uintptr_t)REFERENCE_MARKS);
  return is_of_type(code, python.code_type) && word_at(code, OBJECT_REFERENCES) != 0 ? code : NULL;
}

static const char *innermost_frame(const char *state) {
  const struct python_layout *layout = python.layout;
  const char *at = pointer_at(state, layout->state_frame);
  return layout->has_c_frame && at != NULL ? pointer_at(at, layout->c_frame_frame) : at;
}

void python_add_frames(struct profile_frames *frames) {
  if (!python_is_there() || !interpreter_can_be_asked(&python.interpreter, frames)) return;
  /* First what asks no loader: a thread that Python does not know may not have its thread-local variables yet (D4). */
  const char *own = python.own_state();
  if (own == NULL) return;
  const char *state = python.current_state();
  if (state == NULL || (python.layout->current_is_per_process && state != own)) {
    frames->tags |= SNUG_PROFILE_PYTHON_NO_LOCK;
    return;
  }
  const char *frame = innermost_frame(state);
  for (; frame != NULL && frames->language_count < PROFILE_LANGUAGE_MAX;
       frame = pointer_at(frame, python.layout->frame_previous)) {
    const char *code = code_of(frame);
    if (code != NULL) frames->language[frames->language_count++] = python_frame_word(frames, frame, code);
  }
  if (frames->language_count != 0) frames->tags |= SNUG_PROFILE_PYTHON;
  if (frame != NULL) frames->tags |= SNUG_PROFILE_DEEP;
}

const void *python_function(void) { return python_is_there() ? (const void *)python.own_state : NULL; }
