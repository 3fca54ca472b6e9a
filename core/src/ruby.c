#include "ruby.h"

#include "interpreter.h"
#include "symbols.h"

/* Types of Ruby's C interface (ruby/debug.h, ruby/thread.h, ruby/internal). */
typedef uintptr_t ruby_value;

enum {
  TYPE_MASK = 0x1f,
  TYPE_STRING = 5,
  FLAG_NOT_EMBEDDED = 1 << 13,
  EMBEDDED_LENGTH_SHIFT = 14, /* until 3.1, where the length of a short string is among its flags */
  EMBEDDED_LENGTH_MASK = 31,
  MACHINE_FIRST_THREAD = 5, /* until 3.2 */
  IMMEDIATE_MASK = 7,
  NIL_MAX = 8,
  STATIC_BLOCK_MAX_BYTES = 64 << 10,
};

static struct {
  bool is_there;           /* atomic: all below is set */
  bool has_length_in_word; /* since 3.2 */
  bool needs_context;      /* until 3.2 rb_profile_frames does not look whether there is one */
  intptr_t context_offset; /* of the thread's execution context, from the thread's own block */
  void *const *const *machine;
  int (*has_lock)(void);
  int (*collects)(void);
  int (*walk)(int start, int limit, ruby_value *frames, int *lines);
  ruby_value (*path)(ruby_value frame);
  ruby_value (*method)(ruby_value frame);
  ruby_value (*base_label)(ruby_value frame);
  struct interpreter interpreter;
} ruby;

static char *thread_block(void) { return (char *)__builtin_thread_pointer(); }

/* Where each thread has the variable, if all have it at one distance from the thread's block: so the loader places
 * those of libraries that a program starts with. */
static bool find_context(void) {
  void *context = symbols_variable("ruby_current_ec");
  ruby.context_offset = (char *)context - thread_block();
  return ruby.machine != NULL && context != NULL && ruby.context_offset > -STATIC_BLOCK_MAX_BYTES &&
         ruby.context_offset < STATIC_BLOCK_MAX_BYTES;
}

/* Y2. An interpreter that has ended has no machine, which the stack may not tell: before glibc 2.35 it is cut. */
static bool has_context(void) {
  void *const *machine = ruby.machine != NULL ? *ruby.machine : NULL;
  if (!ruby.needs_context) return ruby.machine == NULL || machine != NULL;
  return machine != NULL && machine[MACHINE_FIRST_THREAD] != NULL &&
         *(void **)(thread_block() + ruby.context_offset) != NULL;
}

static bool ruby_is_there(void) { return __atomic_load_n(&ruby.is_there, __ATOMIC_ACQUIRE); }

struct unwind_range ruby_code(void) { return ruby_is_there() ? ruby.interpreter.code : (struct unwind_range){0, 0}; }

/* Whether all is there that frames of this version are read by. */
static bool find_functions(uint32_t version) {
  if (version < 0x0300 || version > 0x0401) return false;
  ruby.has_length_in_word = version >= 0x0302;
  ruby.needs_context = version <= 0x0302;
  ruby.machine = symbols_variable("ruby_current_vm_ptr");
  if (ruby.needs_context && !find_context()) return false;
  return symbols_function(&ruby.has_lock, "ruby_thread_has_gvl_p") &&
         symbols_function(&ruby.collects, "rb_during_gc") && symbols_function(&ruby.path, "rb_profile_frame_path") &&
         symbols_function(&ruby.method, "rb_profile_frame_method_name") &&
         symbols_function(&ruby.base_label, "rb_profile_frame_base_label") &&
         interpreter_find(&ruby.interpreter, ruby.walk, (const char *const[]){"ruby_vm_destruct", "ruby_stop"});
}

uint32_t ruby_prepare(void) {
  const int *version = symbols_variable("ruby_api_version");
  if (version == NULL || !symbols_function(&ruby.walk, "rb_profile_frames")) return 0;
  uint32_t found = (uint32_t)version[0] << 8 | (uint32_t)version[1];
  if (!find_functions(found)) return found | SNUG_PROFILE_UNREAD;
  __atomic_store_n(&ruby.is_there, true, __ATOMIC_RELEASE);
  return found;
}

/* The bytes of a string, which nobody changes while this thread holds Ruby's lock. False: it is none. */
static bool read_string(ruby_value value, const char **text, size_t *bytes) {
  if ((value & IMMEDIATE_MASK) != 0 || value <= NIL_MAX) return false;
  const uintptr_t *words = (const uintptr_t *)value;
  uintptr_t flags = words[0];
  if ((flags & TYPE_MASK) != TYPE_STRING) return false;
  bool embedded = (flags & FLAG_NOT_EMBEDDED) == 0;
  *bytes = ruby.has_length_in_word || !embedded ? words[2] : flags >> EMBEDDED_LENGTH_SHIFT & EMBEDDED_LENGTH_MASK;
  if (embedded) {
    *text = (const char *)&words[ruby.has_length_in_word ? 3 : 2];
  } else {
    *text = (const char *)words[3];
  }
  return *text != NULL;
}

static uint64_t frame_word(const struct profile_frames *frames, ruby_value frame, int line) {
  const char *label = "?", *path = "";
  size_t label_bytes = 1, path_bytes = 0;
  if (!read_string(ruby.method(frame), &label, &label_bytes)) read_string(ruby.base_label(frame), &label, &label_bytes);
  read_string(ruby.path(frame), &path, &path_bytes);
  uint32_t known_line = line > 0 && path_bytes != 0 ? (uint32_t)line : 0;
  return profile_table_frame(frames, label, label_bytes, path, path_bytes, known_line);
}

void ruby_add_frames(struct profile_frames *frames) {
  ruby_value values[PROFILE_LANGUAGE_MAX];
  int lines[PROFILE_LANGUAGE_MAX];
  if (!ruby_is_there() || !interpreter_can_be_asked(&ruby.interpreter, frames)) return;
  if (!has_context()) {
    frames->tags |= SNUG_PROFILE_RUBY_NO_CONTEXT;
    return;
  }
  if (!ruby.has_lock()) {
    frames->tags |= SNUG_PROFILE_RUBY_NO_LOCK;
    return;
  }
  if (ruby.collects()) {
    frames->tags |= SNUG_PROFILE_RUBY_GC;
    return;
  }
  int count = ruby.walk(0, PROFILE_LANGUAGE_MAX, values, lines);
  if (count <= 0) return;
  frames->tags |= SNUG_PROFILE_RUBY | (count == PROFILE_LANGUAGE_MAX ? SNUG_PROFILE_DEEP : 0);
  for (int i = 0; i < count; i++) frames->language[i] = frame_word(frames, values[i], lines[i]);
  frames->language_count = (size_t)count;
}

const void *ruby_function(void) { return ruby_is_there() ? (const void *)ruby.walk : NULL; }
