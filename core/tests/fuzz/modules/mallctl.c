/* mallctl.c: jemalloc's tree of names, by every name, by broken ones and by MIBs, with values of every length; and its
 * settings, as lists of what may stand there. Nothing is written beyond the room that the caller says, a MIB says what
 * its name says, and no list leaves a setting out of its range. */
#include "world.h"

#include "../../../src/mallctl.h"
#include "../../../src/malloc_conf.h"
#include "../../../src/malloc_conf_keys.h"
#include "../../../src/options.h"

#include <sys/syscall.h>

enum { ROOM = 64, CANARY = 0x5a, TEXT_BYTES = 4096 };

enum mallctl_operation {
  CTL_READ,
  CTL_WRITE,
  CTL_BOTH,
  CTL_ACT,
  CTL_BROKEN_NAME,
  CTL_MIB,
  CTL_BROKEN_MIB,
  CTL_MALLOC,
  CTL_FREE,
  CTL_CONF_PAIR,
  CTL_CONF_BYTES,
  CTL_CONF_READ,
};

static const char *const mallctl_operations[] = {
    "read", "write", "both", "act", "broken_name", "mib", "broken_mib", "malloc", "free", "pair", "bytes", "conf", NULL,
};

static size_t rows;
static char conf[TEXT_BYTES];
static size_t conf_bytes;
static void *blocks[256];

/* Messages for people are read by nobody here; what is fatal is. */
static bool answer(long number, long a, long b, long *result) {
  if (number != SYS_write || a != 2 || strstr((const char *)b, "fatal") != NULL) return false;
  *result = (long)strlen((const char *)b);
  return true;
}

static void hear(void *context, const char *text) {
  (void)context;
  if (strlen(text) > 4096) fuzz_fail("a message has no end");
}

/* The name of a row, with an arena's number for #. */
static bool name_from(unsigned a, unsigned b, char *name, size_t capacity) {
  const char *row;
  enum mallctl_type type;
  bool of_arena;
  if (!mallctl_row((a + b / 256 * 7) % rows, &row, &type, &of_arena)) fuzz_fail("a row is missing");
  if (strncmp(row, "prof.dump", 9) == 0) return false; /* writes files */
  static const char *const numbers[] = {"0", "1", "2", "4096", "4097", "63", "99999999999", ""};
  const char *hash = strchr(row, '#');
  if (hash == NULL)
    snprintf(name, capacity, "%s", row);
  else
    snprintf(name, capacity, "%.*s%s%s", (int)(hash - row), row, numbers[b % COUNT_OF(numbers)], hash + 1);
  return true;
}

static void check_result(const char *name, int result) {
  static const int results[] = {0, EINVAL, ENOENT, EPERM, EFAULT, EAGAIN};
  for (size_t i = 0; i < COUNT_OF(results); i++)
    if (results[i] == result) return;
  fuzz_fail("mallctl of %s says %d", name, result);
}

static void check_room(const char *name, const unsigned char *room, size_t said_bytes, size_t got_bytes) {
  if (got_bytes > said_bytes) fuzz_fail("%s: %zu bytes of %zu", name, got_bytes, said_bytes);
  for (size_t i = got_bytes; i < ROOM; i++)
    if (room[i] != CANARY) fuzz_fail("%s writes beyond its %zu bytes", name, said_bytes);
}

static const size_t lengths[] = {8, 4, 1, 0, 7, 16, 33, 8};

/* By its name and by its MIB. */
static void call(unsigned operation, const char *name, unsigned b) {
  unsigned char room[ROOM], value[ROOM];
  size_t mib[MALLCTL_PARTS_MAX + 3], parts = MALLCTL_PARTS_MAX + 3;
  size_t old_bytes = lengths[b % 8], said = old_bytes, new_bytes = lengths[b / 8 % 8];
  uint64_t number = b / 64 % 3 == 0 ? b / 192 : b / 192 % 2;
  bool reads = operation == CTL_READ || operation == CTL_BOTH, writes = operation == CTL_WRITE || operation == CTL_BOTH;
  memset(room, CANARY, ROOM);
  memset(value, 0, ROOM);
  memcpy(value, &number, sizeof number);
  int found = mallctlnametomib(name, mib, &parts);
  int result = operation == CTL_MIB && found == 0 ? mallctlbymib(mib, parts, room, &old_bytes, NULL, 0)
                                                  : mallctl(name, reads ? room : NULL, reads ? &old_bytes : NULL,
                                                            writes ? value : NULL, writes ? new_bytes : 0);
  check_result(name, result);
  bool has_room = reads || (operation == CTL_MIB && found == 0);
  check_room(name, room, has_room ? said : 0, has_room && result != ENOENT ? old_bytes : 0);
  if (operation == CTL_MIB && result == ENOENT && found == 0 && strncmp(name, "prof.", 5) != 0)
    fuzz_fail("%s has a MIB and no value", name);
}

static void call_broken(unsigned a, unsigned b) {
  char name[160];
  if (!name_from(a, b, name, sizeof name)) return;
  size_t length = strlen(name), at = length != 0 ? b % length : 0;
  switch (b / 16 % 6) {
    case 0: name[at] = '\0'; break;
    case 1: name[at] = '.'; break;
    case 2: name[at] ^= (char)(1 + a % 127); break;
    case 3: memmove(name + at, name + at + 1, length - at); break;
    case 4: memcpy(name + length, ".0.1.2.3.4.5", 13); break;
    default: memset(name, '.', sizeof name - 1), name[sizeof name - 1] = '\0';
  }
  if (strncmp(name, "prof.dump", 9) == 0) return;
  call(CTL_READ, name, b);
}

static void call_broken_mib(unsigned a, unsigned b) {
  unsigned char room[ROOM];
  size_t mib[8], old_bytes = lengths[b % 8], said = old_bytes;
  for (size_t i = 0; i < COUNT_OF(mib); i++) mib[i] = (a >> i & 1) != 0 ? (size_t)b * (i + 1) : b >> i & 15;
  memset(room, CANARY, ROOM);
  int result = mallctlbymib(mib, a % 8, room, &old_bytes, NULL, 0);
  check_result("a MIB", result);
  check_room("a MIB", room, said, result != ENOENT ? old_bytes : 0);
}

/* ---- lists of settings ---- */

static void append(const char *text) {
  size_t length = strlen(text);
  if (conf_bytes + length + 1 > TEXT_BYTES) return;
  memcpy(conf + conf_bytes, text, length + 1);
  conf_bytes += length;
}

static void append_pair(unsigned a, unsigned b) {
  static const char *const values[] = {"true",
                                       "false",
                                       "0",
                                       "1",
                                       "-1",
                                       "19",
                                       "63",
                                       "64",
                                       "99999999999999999999",
                                       "always",
                                       "never",
                                       "default",
                                       "",
                                       "/tmp/a_prefix_that_is_longer_than_any_word_of_a_list_may_be/and/goes/on/and/on",
                                       "0:1",
                                       "percpu"};
  const char *key = conf_keys[(a + b / 256) % CONF_KEY_COUNT].name;
  if (strcmp(key, "abort_conf") == 0) return; /* ends the process, as it should */
  append(key);
  append(b % 31 == 0 ? "" : ":");
  append(values[b / 16 % COUNT_OF(values)]);
  if (b % 29 == 0)
    for (int i = 0; i < 60; i++) append("long prefix ");
  append(b % 37 == 0 ? ",," : ",");
}

static void append_bytes(unsigned a, unsigned b) {
  char bytes[3] = {(char)(a != 0 ? a : 1), (char)(b % 255 + 1), '\0'};
  append(bytes);
}

static void read_conf(unsigned b) {
  if (strstr(conf, "abort_conf") == NULL) {
    if (b % 2 == 0)
      malloc_conf = conf, malloc_conf_read(false), malloc_conf = NULL;
    else
      setenv("SNUG", conf, 1), options_read();
  }
  const struct malloc_conf_settings *settings = &malloc_conf_settings;
  bool good = options.arenas_max <= 64 && options.purge_cpu_percent <= 100 && options.thp <= 2 &&
              options.background <= 1 && options.profile <= 1u << 30 && options.guard <= 1 &&
              options.guard_samples <= 4096 && options.stats_print <= 1 && options.verbose <= 1 &&
              strnlen(settings->stats_letters, MALLOC_CONF_LETTERS_BYTES) < MALLOC_CONF_LETTERS_BYTES &&
              strnlen(settings->prof_prefix, MALLOC_CONF_PREFIX_BYTES) < MALLOC_CONF_PREFIX_BYTES;
  if (!good) fuzz_fail("a setting is out of its range after: %s", conf);
  options.background = options.guard = options.verbose = options.stats_print = 0;
  malloc_conf_settings.xmalloc = malloc_conf_settings.abort_conf = false;
  conf_bytes = 0;
  conf[0] = '\0';
}

/* ---- the module ---- */

static void mallctl_begin(void) {
  const char *name;
  enum mallctl_type type;
  bool of_arena;
  begin_core();
  while (mallctl_row(rows, &name, &type, &of_arena)) rows++;
  module_answers = answer;
  malloc_message = hear;
}

static void mallctl_step(unsigned operation, unsigned a, unsigned b) {
  char name[160];
  uint64_t refused = refused_calls;
  switch ((enum mallctl_operation)operation) {
    case CTL_READ:
    case CTL_WRITE:
    case CTL_BOTH:
    case CTL_ACT:
    case CTL_MIB:
      if (name_from(a, b, name, sizeof name)) call(operation, name, b);
      break;
    case CTL_BROKEN_NAME: return call_broken(a, b);
    case CTL_BROKEN_MIB: return call_broken_mib(a, b);
    case CTL_MALLOC:
      own_allocator.free(blocks[a]);
      blocks[a] = own_allocator.malloc(size_from(b) % MIB);
      if (blocks[a] == NULL && refused == refused_calls) fuzz_fail("no memory");
      break;
    case CTL_FREE:
      own_allocator.free(blocks[a]);
      blocks[a] = NULL;
      break;
    case CTL_CONF_PAIR: return append_pair(a, b);
    case CTL_CONF_BYTES: return append_bytes(a, b);
    case CTL_CONF_READ: return read_conf(b);
  }
  options.background = 0; /* no thread comes of it */
}

static void mallctl_check(void) { snug_check(); }

static void mallctl_end(void) {
  for (size_t i = 0; i < COUNT_OF(blocks); i++) own_allocator.free(blocks[i]);
  snug_check();
}

static void mallctl_spoil(void) {
  unsigned char room[ROOM];
  memset(room, CANARY, ROOM);
  room[8] = 0;
  check_room("a spoiled name", room, 8, 8);
}

const struct fuzz_module mallctl_module = {"mallctl",     mallctl_operations, mallctl_begin, mallctl_step,
                                           mallctl_check, mallctl_end,        mallctl_spoil};
