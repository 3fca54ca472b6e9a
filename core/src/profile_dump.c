#include "profile_dump.h"

#include <errno.h>
#include <string.h>

#include "cache.h"
#include "control.h"
#include "counters.h"
#include "fatal.h"
#include "malloc_conf.h"
#include "profile_table.h"
#include "purge.h"
#include "rights.h"
#include "sys.h"
#include "text.h"

enum {
  DUMP_NAME_BYTES = MALLOC_CONF_PREFIX_BYTES + 64,
  DUMP_BUFFER_BYTES = 2048,
  DUMP_PIECE_BYTES = 160,
  BLOCK_PARTS = 1024,
  LEAST_BLOCK_BYTES = 16,
  NO_FRAMES = 1,    /* the address that stands for a stack without any */
  NAMES_MAX = 1000, /* that are tried, where others are taken */
};

/* A file on its way out. */
struct profile_file {
  int fd;
  bool good;
  size_t length_bytes;
  char bytes[DUMP_BUFFER_BYTES];
};

static void flush_file(struct profile_file *file) {
  file->good = file->good && sys_write_whole(file->fd, file->bytes, file->length_bytes);
  file->length_bytes = 0;
}

static void put_piece(struct profile_file *file, const struct text *piece) {
  if (file->length_bytes + piece->length_bytes > sizeof file->bytes) flush_file(file);
  memcpy(file->bytes + file->length_bytes, piece->start, piece->length_bytes);
  file->length_bytes += piece->length_bytes;
}

static void put_string(struct profile_file *file, const char *string) {
  char buffer[DUMP_PIECE_BYTES];
  struct text piece = text_in(buffer, sizeof buffer);
  text_string(&piece, string);
  put_piece(file, &piece);
}

static void put_frame(struct profile_file *file, uint64_t address) {
  char buffer[DUMP_PIECE_BYTES];
  struct text piece = text_in(buffer, sizeof buffer);
  text_char(&piece, ' ');
  text_address(&piece, (const void *)(uintptr_t)address);
  put_piece(file, &piece);
}

/* ---- stacks ---- */

struct counts {
  uint64_t live_blocks, live_bytes, allocated_blocks, allocated_bytes;
};

static uint64_t at_least(uint64_t bytes, uint64_t blocks) {
  return bytes > blocks * LEAST_BLOCK_BYTES ? bytes : blocks * LEAST_BLOCK_BYTES;
}

static struct counts counts_of(const struct snug_profile_stack *stack) {
  struct counts counts = {.live_blocks = (stack->live_blocks + BLOCK_PARTS / 2) / BLOCK_PARTS,
                          .allocated_blocks = (stack->allocated_blocks + BLOCK_PARTS / 2) / BLOCK_PARTS};
  counts.live_bytes = at_least(stack->live_bytes, counts.live_blocks);
  counts.allocated_bytes = at_least(stack->allocated_bytes, counts.allocated_blocks);
  return counts;
}

/* Counts of the process or of a stack, all its threads together. */
static void put_counts(struct profile_file *file, const struct counts *counts) {
  char buffer[DUMP_PIECE_BYTES];
  struct text piece = text_in(buffer, sizeof buffer);
  text_string(&piece, "  t*: ");
  text_number(&piece, counts->live_blocks);
  text_string(&piece, ": ");
  text_number(&piece, counts->live_bytes);
  text_string(&piece, " [");
  text_number(&piece, counts->allocated_blocks);
  text_string(&piece, ": ");
  text_number(&piece, counts->allocated_bytes);
  text_string(&piece, "]\n");
  put_piece(file, &piece);
}

/* Innermost first, without our own. Those above the first are return addresses, of which readers take one away to be
 * in the call; the first is taken as it is. */
static void put_frames(struct profile_file *file, const uint64_t *frames, size_t count) {
  size_t first = 0;
  if (profile_dump_is_own_code != NULL) {
    while (first < count && profile_dump_is_own_code((uintptr_t)frames[first])) first++;
  }
  put_string(file, "@");
  if (first == count) put_frame(file, NO_FRAMES);
  for (size_t i = first; i < count; i++) put_frame(file, i == first ? frames[i] : frames[i] + 1);
  put_string(file, "\n");
}

static struct counts add_up(const char *stacks, size_t used_bytes) {
  struct counts sum = {0, 0, 0, 0};
  const struct snug_profile_stack *stack;
  for (size_t at = 8; at < used_bytes; at += profile_stack_bytes(stack)) {
    stack = (const struct snug_profile_stack *)(stacks + at);
    struct counts counts = counts_of(stack);
    sum.live_blocks += counts.live_blocks;
    sum.live_bytes += counts.live_bytes;
    sum.allocated_blocks += counts.allocated_blocks;
    sum.allocated_bytes += counts.allocated_bytes;
  }
  return sum;
}

static void put_stacks(struct profile_file *file, const char *stacks, size_t used_bytes) {
  const struct snug_profile_stack *stack;
  for (size_t at = 8; at < used_bytes; at += profile_stack_bytes(stack)) {
    stack = (const struct snug_profile_stack *)(stacks + at);
    struct counts counts = counts_of(stack);
    if (counts.allocated_blocks == 0 && counts.live_blocks == 0) continue;
    put_frames(file, (const uint64_t *)(stack + 1), stack->native_frames);
    put_counts(file, &counts);
  }
}

/* ---- files ---- */

static bool write_profile(struct profile_file *file) {
  size_t used_bytes, mapped_bytes;
  char *stacks = profile_table_copy_stacks(&used_bytes, &mapped_bytes);
  if (stacks == NULL) return false;
  struct counts sum = add_up(stacks, used_bytes);
  put_string(file, "heap_v2/1\n");
  put_counts(file, &sum);
  put_stacks(file, stacks, used_bytes);
  sys_unmap(stacks, mapped_bytes);
  put_string(file, "\nMAPPED_LIBRARIES:\n");
  flush_file(file);
  return file->good && sys_copy_file("/proc/self/maps", file->fd);
}

/* As jemalloc calls them: PREFIX.PID.NUMBER.f.heap at the end, PREFIX.PID.NUMBER.mNUMBER.heap when asked for. Whoever
 * may write to the folder can guess that, and make a link of it to a file of the program's: so no file that is there is
 * opened, and the next number is tried. Below 0: none can be had, as when the prefix is empty. */
static int create_next(char name[DUMP_NAME_BYTES], bool at_exit) {
  static uint64_t files, files_asked_for;
  uint64_t asked_for = files_asked_for;
  int fd = -EEXIST;
  if (malloc_conf_settings.prof_prefix[0] == '\0') return -ENOENT;
  if (!at_exit) files_asked_for++;
  for (int i = 0; i < NAMES_MAX && fd == -EEXIST; i++) {
    struct text text = text_in(name, DUMP_NAME_BYTES);
    text_string(&text, malloc_conf_settings.prof_prefix);
    text_char(&text, '.');
    text_number(&text, rights_pid());
    text_char(&text, '.');
    text_number(&text, files++);
    text_string(&text, at_exit ? ".f" : ".m");
    if (!at_exit) text_number(&text, asked_for);
    text_string(&text, ".heap");
    fd = sys_create_file(name, true);
  }
  return fd;
}

/* To the path, or to a file of the next name if that is NULL. The purge lock is held. */
static bool write_locked(const char *path, bool at_exit, char name[DUMP_NAME_BYTES]) {
  struct profile_file file = {.good = true};
  if (!rights_have(RIGHT_FILES) || rights_identity() != IDENTITY_OWN) return false;
  /* The kernel reads the path, whatever it is (K2). */
  file.fd = path != NULL ? sys_create_file(path, false) : create_next(name, at_exit);
  if (file.fd < 0) return false;
  bool written = write_profile(&file);
  return sys_close_file(file.fd) && written;
}

static bool write_named(const char *path, bool at_exit, char name[DUMP_NAME_BYTES]) {
  bool amid = cache_thread_is_inside();
  name[0] = '\0';
  cache_slow_path_begins();
  bool locked = !amid && control_take_lock(), written = false;
  if (locked) {
    written = write_locked(path, at_exit, name);
    purge_unlock();
  }
  cache_slow_path_ends();
  return written;
}

bool profile_dump(const char *path) {
  char name[DUMP_NAME_BYTES];
  return write_named(path, false, name);
}

void profile_dump_at_exit(void) {
  char name[DUMP_NAME_BYTES], message[DUMP_NAME_BYTES + 64];
  bool is_wanted = profile_head != NULL && malloc_conf_settings.prof_prefix[0] != '\0';
  if (!is_wanted || write_named(NULL, true, name)) return;
  struct text text = text_in(message, sizeof message);
  text_string(&text, "the profile for prof_final:true could not be written: ");
  text_string(&text, name);
  warn_line(message);
}
