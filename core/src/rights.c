#include "rights.h"

#include <stdlib.h>

#include "sys.h"
#include "text.h"

enum {
  STATUS_BYTES = 32 * 1024, /* a line of it lists all groups */
  STAT_BYTES = 32,
  UNKNOWN_PHYSICAL_SHIFT = 37, /* 128 GiB */
};

static struct {
  uint32_t had;          /* atomic: bits of enum right */
  bool entered;          /* atomic: a sandbox was entered: nothing comes back */
  bool had_entered;      /* the same before rights_end */
  bool privileged;       /* the process may have privileges to drop */
  bool secure;           /* and has more than who started it */
  bool drops_are_seen;   /* atomic */
  bool starts_no_thread; /* atomic */
  uint32_t filters;      /* inherited */
  uint32_t cpus;         /* allowed, when that could be read last; 0: unknown */
  uint32_t owner_pid;    /* of the memory; 0: unknown */
  bool owner_by_call;    /* that is what getpid said; else what /proc did, which may be mounted for other processes */
  uint32_t *mark;        /* 1, on a page that copies of the process find zero; NULL: the kernel can't, before 4.14 */
} rights;

static char status_text[STATUS_BYTES]; /* one caller at a time: the start, then the purge lock */

/* ---- /proc/self/status ---- */

/* The rest of the line that begins with the name; NULL when there is none. */
static const char *line_of(const char *text, const char *name) {
  size_t length = string_length(name);
  for (const char *line = text; line != NULL && *line != '\0';) {
    if (string_begins(line, name) && line[length] == ':') return line + length + 1;
    line = string_find(line, '\n');
    if (line != NULL) line++;
  }
  return NULL;
}

static uint64_t number_at(const char **at) {
  uint64_t number = 0;
  while (**at == ' ' || **at == '\t') ++*at;
  for (; **at >= '0' && **at <= '9'; ++*at) number = number * 10 + (uint64_t)(**at - '0');
  return number;
}

static uint32_t number_of_line(const char *text, const char *name) {
  const char *at = line_of(text, name);
  return at != NULL ? (uint32_t)number_at(&at) : 0;
}

/* Bits set in a mask written as hexadecimal digits, with commas or without. */
static uint32_t bits_of_mask(const char *at) {
  uint32_t count = 0;
  while (*at == ' ' || *at == '\t') at++;
  for (; *at != '\0' && *at != '\n'; at++) {
    uint32_t digit = *at >= '0' && *at <= '9'   ? (uint32_t)(*at - '0')
                     : *at >= 'a' && *at <= 'f' ? (uint32_t)(*at - 'a' + 10)
                                                : 0;
    count += (uint32_t)__builtin_popcount(digit);
  }
  return count;
}

static bool has_privileges(const char *text) {
  const char *at = line_of(text, "Uid"), *capabilities = line_of(text, "CapPrm");
  if (at == NULL) return true;
  uint64_t real = number_at(&at), effective = number_at(&at), saved = number_at(&at);
  bool any_capability = capabilities == NULL || bits_of_mask(capabilities) != 0;
  return real == 0 || real != effective || real != saved || any_capability;
}

struct rights_status rights_parse_status(const char *text) {
  struct rights_status status = {false, true, 0, 0, 0};
  const char *mask = line_of(text, "Cpus_allowed"); /* gVisor has no such line, and old kernels none of seccomp */
  size_t length = string_length(text);
  bool is_cut = length == 0 || text[length - 1] != '\n';
  if (is_cut || (mask == NULL && line_of(text, "Seccomp") == NULL)) return status;
  status.complete = true; /* both come after the others that we need */
  status.privileged = has_privileges(text);
  status.seccomp = number_of_line(text, "Seccomp"); /* no such line: a kernel without seccomp */
  status.filters = number_of_line(text, "Seccomp_filters");
  if (mask != NULL) status.allowed_cpus = bits_of_mask(mask);
  return status;
}

static struct rights_status read_status(const char *path) {
  status_text[0] = '\0';
  sys_read_file(path, status_text, sizeof status_text);
  return rights_parse_status(status_text);
}

/* ---- rights ---- */

static void add_rights(uint32_t more) { __atomic_fetch_or(&rights.had, more, __ATOMIC_RELAXED); }

bool rights_have(enum right right) { return (__atomic_load_n(&rights.had, __ATOMIC_RELAXED) & right) != 0; }

void rights_drops_are_seen(void) { __atomic_store_n(&rights.drops_are_seen, true, __ATOMIC_RELAXED); }

void rights_start_no_thread(void) { __atomic_store_n(&rights.starts_no_thread, true, __ATOMIC_RELAXED); }

bool rights_may_start_thread(void) {
  if (rights.secure || !rights_have(RIGHT_THREAD)) return false;
  if (__atomic_load_n(&rights.starts_no_thread, __ATOMIC_RELAXED)) return false;
  return !rights.privileged || __atomic_load_n(&rights.drops_are_seen, __ATOMIC_RELAXED);
}

void rights_find(void) {
  rights.mark = sys_map(sys_page_size_bytes());
  if (rights.mark != NULL) sys_try_purge(rights.mark);
  if (rights.mark != NULL && !sys_wipe_on_fork(rights.mark, sys_page_size_bytes())) rights.mark = NULL;
  rights.privileged = true;
  rights.secure = sys_is_secure();
  /* A program that no loader started has not shown that it may open a file. */
  if (!sys_was_loaded()) return (void)rights_own_memory();
  struct rights_status status = read_status("/proc/self/status");
  if (status.complete) add_rights(status.seccomp == 0 ? RIGHT_ALL : RIGHT_FILES);
  rights.privileged = status.privileged;
  rights.filters = status.filters;
  rights.cpus = status.allowed_cpus;
  rights_own_memory();
}

/* Whether nobody in the container added a filter to that of its first process. */
static bool is_filter_of_first_process(void) {
  struct rights_status first = read_status("/proc/1/status");
  return first.complete && rights.filters == 1 && first.filters == 1;
}

static bool is_container(void) {
  if (!rights.secure && sys_environment("KUBERNETES_SERVICE_HOST") != NULL) return true;
  return sys_file_exists("/.dockerenv") || sys_file_exists("/run/.containerenv");
}

void rights_consider_container(void) {
  if (rights_have(RIGHT_OTHERS) || !rights_have(RIGHT_FILES)) return;
  if (!is_container() || !is_filter_of_first_process()) return;
  add_rights(RIGHT_ALL);
  rights_own_memory();
}

void rights_saw_thread(void) {
  if (!__atomic_load_n(&rights.entered, __ATOMIC_RELAXED)) add_rights(RIGHT_THREAD);
}

uint32_t rights_end(void) {
  rights.had_entered = __atomic_exchange_n(&rights.entered, true, __ATOMIC_RELAXED);
  return __atomic_exchange_n(&rights.had, 0, __ATOMIC_RELAXED);
}

void rights_resume(uint32_t had) {
  __atomic_store_n(&rights.entered, rights.had_entered, __ATOMIC_RELAXED);
  __atomic_store_n(&rights.had, had, __ATOMIC_RELAXED);
}

uint32_t rights_allowed_cpus(void) {
  if (!rights_have(RIGHT_FILES)) return 1;
  struct rights_status status = read_status("/proc/self/status");
  if (status.allowed_cpus != 0) rights.cpus = status.allowed_cpus;
  return rights.cpus != 0 ? rights.cpus : 1;
}

uint64_t rights_physical_bytes(void) {
  uint64_t bytes = rights_have(RIGHT_OTHERS) ? sys_physical_bytes() : 0;
  return bytes != 0 ? bytes : UINT64_C(1) << UNKNOWN_PHYSICAL_SHIFT;
}

/* ---- identity ---- */

/* The caller's process, 0 when there is no way to ask. As /proc has it, which is the same from one time to the next. */
static uint32_t own_pid(void) {
  if (rights_have(RIGHT_OTHERS)) return sys_process_id();
  char text[STAT_BYTES];
  if (!rights_have(RIGHT_FILES) || sys_read_file("/proc/self/stat", text, sizeof text) == 0) return 0;
  const char *at = text;
  return (uint32_t)number_at(&at);
}

uint32_t rights_own_memory(void) {
  if (rights.mark != NULL) __atomic_store_n(rights.mark, 1, __ATOMIC_RELAXED);
  rights.owner_by_call = rights_have(RIGHT_OTHERS);
  return rights.owner_pid = own_pid();
}

uint32_t rights_pid(void) { return rights.owner_pid; }

bool rights_is_copy(void) { return rights.mark != NULL && __atomic_load_n(rights.mark, __ATOMIC_RELAXED) == 0; }

enum identity rights_identity(void) {
  if (rights_is_copy()) return IDENTITY_COPIED;
  uint32_t pid = rights.owner_pid != 0 ? own_pid() : 0;
  return pid == 0 || pid == rights.owner_pid ? IDENTITY_OWN : IDENTITY_BORROWED;
}

enum identity rights_identity_at_end(void) {
  enum identity identity = rights_identity();
  if (identity != IDENTITY_OWN || !rights.owner_by_call) return identity;
  return sys_process_id() == rights.owner_pid ? IDENTITY_OWN : IDENTITY_BORROWED;
}

bool rights_claim_copy(void) {
  uint32_t wiped = 0;
  return rights_is_copy() &&
         __atomic_compare_exchange_n(rights.mark, &wiped, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
