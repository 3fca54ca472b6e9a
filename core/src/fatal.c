#include "fatal.h"

#include "lock.h"
#include "rights.h"
#include "sys.h"
#include "text.h"

enum { LINE_BYTES = 512 };

static void (*explanation)(void), (*leaving)(void); /* atomic */

void tell_more_by(void (*explain)(void)) { __atomic_store_n(&explanation, explain, __ATOMIC_RELEASE); }

void leave_borrowed_by(void (*leave)(void)) { __atomic_store_n(&leaving, leave, __ATOMIC_RELEASE); }

/* After vfork the locks are those of the parent, whose thread lives on; musl's abort would end that one, and a handler
 * work on its memory. */
static _Noreturn void end_process(void) {
  if (rights_identity_at_end() == IDENTITY_BORROWED) {
    void (*leave)(void) = __atomic_load_n(&leaving, __ATOMIC_ACQUIRE);
    if (leave != NULL) leave();
    sys_abort_unhandled();
  }
  __atomic_store_n(&lock_all_owner, lock_self(), __ATOMIC_RELAXED); /* a handler of SIGABRT may allocate (K3) */
  sys_abort();
}

static struct text fatal_begin(char *line, const char *what) {
  struct text text = text_in(line, LINE_BYTES);
  text_string(&text, "snug: fatal: ");
  text_string(&text, what);
  return text;
}

static void fatal_say(struct text *text, const char *cause) {
  text_string(text, "; usual cause: ");
  text_string(text, cause);
  text_char(text, '\n');
  sys_write(2, text->start, text->length_bytes);
}

static _Noreturn void fatal_end(struct text *text, const char *cause) {
  fatal_say(text, cause);
  void (*explain)(void) = __atomic_load_n(&explanation, __ATOMIC_ACQUIRE);
  if (explain != NULL) explain();
  end_process();
}

/* Who started a program with more rights than his own is not told where anything lies in it. */
static void say_address(struct text *text, const char *before, const void *address) {
  if (sys_is_secure()) return;
  text_string(text, before);
  text_address(text, address);
}

static void at(struct text *text, const void *address) { say_address(text, ": ", address); }

void fatal_double_free(const void *block) {
  char line[LINE_BYTES];
  struct text text = fatal_begin(line, "double free");
  at(&text, block);
  fatal_end(&text, "the block was freed before, and its pointer kept and freed again");
}

void fatal_foreign_pointer(const void *pointer) {
  char line[LINE_BYTES];
  struct text text = fatal_begin(line, "free of a pointer that snug did not allocate");
  at(&text, pointer);
  fatal_end(&text, "a pointer to the stack, to static data, or from another allocator; or a large block freed twice");
}

void fatal_interior_pointer(const void *pointer, const void *block, size_t size_bytes) {
  char line[LINE_BYTES];
  struct text text = fatal_begin(line, "free of a pointer inside a block");
  at(&text, pointer);
  text_string(&text, " in the block of ");
  text_number(&text, size_bytes);
  text_string(&text, " bytes");
  say_address(&text, " at ", block);
  fatal_end(&text, "the pointer was advanced after malloc, or is a member of a larger object");
}

void fatal_wrong_size(const void *block, size_t given_bytes, size_t size_bytes) {
  char line[LINE_BYTES];
  struct text text = fatal_begin(line, "sized free with the wrong size");
  at(&text, block);
  text_string(&text, " freed as ");
  text_number(&text, given_bytes);
  text_string(&text, " bytes, but its block has ");
  text_number(&text, size_bytes);
  fatal_end(&text, "delete through a base class without a virtual destructor, or free_sized with another size");
}

void fatal_overflow(const void *block, size_t size_bytes) {
  char line[LINE_BYTES];
  struct text text = fatal_begin(line, "write beyond the end of a block");
  at(&text, block);
  if (size_bytes != 0) {
    text_string(&text, " of ");
    text_number(&text, size_bytes);
    text_string(&text, " bytes");
  }
  fatal_end(&text, "an index or a length that is too large by one, or a string without room for its NUL");
}

void fatal_underflow(const void *block) {
  char line[LINE_BYTES];
  struct text text = fatal_begin(line, "write before the start of a block");
  at(&text, block);
  fatal_end(&text, "a negative index, or a write far beyond the end of the block before it");
}

void fatal_write_after_free(const void *address, const void *block) {
  char line[LINE_BYTES];
  struct text text = fatal_begin(line, "write to a freed block");
  at(&text, address);
  say_address(&text, " in the block at ", block);
  fatal_end(&text, "a pointer that was kept after free, or a write beyond another block's end");
}

/* The word at the beginning is what was done: "write", say. */
static struct text fault_begin(char *line, const char *access, const char *what, const void *address) {
  struct text text = text_in(line, LINE_BYTES);
  text_string(&text, "snug: fatal: ");
  text_string(&text, access);
  text_string(&text, what);
  at(&text, address);
  return text;
}

static void of_block(struct text *text, const char *words, const void *block, size_t size_bytes) {
  text_string(text, words);
  text_string(text, "the block of ");
  text_number(text, size_bytes);
  text_string(text, " bytes");
  say_address(text, " at ", block);
}

void tell_overrun(const char *access, const void *address, const void *block, size_t size_bytes) {
  char line[LINE_BYTES];
  struct text text = fault_begin(line, access, " beyond the end of a block", address);
  text_string(&text, ", at offset ");
  text_number(&text, (uint64_t)((const char *)address - (const char *)block));
  of_block(&text, " of ", block, size_bytes);
  fatal_say(&text, "an index or a length that is too large, or a string without room for its NUL");
}

void tell_underrun(const char *access, const void *address, const void *block, size_t size_bytes) {
  char line[LINE_BYTES];
  struct text text = fault_begin(line, access, " before the start of a block", address);
  text_string(&text, ", ");
  text_number(&text, (uint64_t)((const char *)block - (const char *)address));
  of_block(&text, " bytes before ", block, size_bytes);
  fatal_say(&text, "a negative index");
}

void tell_use_after_free(const char *access, const void *address, const void *block, size_t size_bytes) {
  char line[LINE_BYTES];
  struct text text = fault_begin(line, access, " after free", address);
  of_block(&text, " in ", block, size_bytes);
  fatal_say(&text, "a pointer that was kept after free");
}

void fatal_corrupted(const char *what, const void *address) {
  char line[LINE_BYTES];
  struct text text = fatal_begin(line, "heap metadata is corrupted");
  at(&text, address);
  text_string(&text, " (");
  text_string(&text, what);
  text_string(&text, ")");
  fatal_end(&text, "a write through a wild pointer into snug's own tables");
}

void fatal_bad_alloc(size_t size_bytes) {
  char line[LINE_BYTES];
  struct text text = fatal_begin(line, "operator new failed: ");
  text_number(&text, size_bytes);
  text_string(&text, " bytes");
  fatal_end(&text, "the system has no memory left, or the size is wrong");
}

void fatal_no_memory(void) {
  char line[LINE_BYTES];
  struct text text = fatal_begin(line, "no memory, and MALLOC_CONF has xmalloc:true");
  fatal_end(&text, "the system has no memory left, or the size is wrong");
}

void fatal_bad_settings(void) {
  char line[LINE_BYTES];
  struct text text = fatal_begin(line, "bad settings, and MALLOC_CONF has abort_conf:true");
  fatal_end(&text, "what the warnings above say");
}

void fatal_assert(const char *condition, const char *file, int line_number) {
  char line[LINE_BYTES];
  struct text text = fatal_begin(line, "assertion failed: ");
  text_string(&text, condition);
  text_string(&text, " at ");
  text_string(&text, file);
  text_char(&text, ':');
  text_number(&text, (uint64_t)line_number);
  fatal_end(&text, "a bug in snug; please report it");
}

void warn_line(const char *message) {
  char line[LINE_BYTES];
  struct text text = text_in(line, sizeof line);
  text_string(&text, "snug: warning: ");
  text_string(&text, message);
  text_char(&text, '\n');
  sys_write(2, text.start, text.length_bytes);
}
