/* sched.h and sys/mman.h show the Linux names only on request. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sys.h"

#include "base.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <ucontext.h>

#include "symbol_table.h"
#include "syscall_raw.h"

/* Values of the kernel's interface that libc's headers do not have everywhere (musl, old kernels' headers). */
enum {
  PRCTL_SET_VMA = 0x53564d41,
  FUTEX_WAIT_SHARED = 0,
  FUTEX_WAIT_PRIVATE = 128,
  FUTEX_WAKE_PRIVATE = 129,
  MEMBARRIER_PRIVATE_EXPEDITED = 8,
  MEMBARRIER_REGISTER_PRIVATE_EXPEDITED = 16,
  WIPE_ON_FORK_ADVICE = 18,
  COLD_ADVICE = 20,
  SYSCALL_PIDFD_OPEN = 434,
  SYSCALL_CLOSE_RANGE = 436,
  SYSCALL_PIDFD_GETFD = 438,
  CLOSE_RANGE_UNSHARE_FLAG = 2,
  ABORT_WAIT_NS = 100000000,
  ABORT_STATUS = 128 + SIGABRT,
};

static long call(long number, long a, long b, long c, long d, long e, long f) {
  return syscall_raw(number, a, b, c, d, e, f);
}

static bool failed(long result) { return result < 0 && result > -4096; }

size_t sys_page_size_bytes(void) {
  unsigned long size = getauxval(AT_PAGESZ);
  return size != 0 ? size : 4096;
}

static void *map_anonymous(void *where, size_t length_bytes, int protection, int flags) {
  long result = call(SYS_mmap, (long)where, (long)length_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return failed(result) ? NULL : (void *)result;
}

/* Sandboxes may refuse the flag, without which it is the same: nobody can write there yet. */
static void *reserve_at(void *where, size_t length_bytes, int flags) {
  void *result = map_anonymous(where, length_bytes, PROT_NONE, flags | MAP_NORESERVE);
  return result != NULL ? result : map_anonymous(where, length_bytes, PROT_NONE, flags);
}

void *sys_reserve(size_t length_bytes) { return reserve_at(NULL, length_bytes, 0); }

bool sys_commit(void *start, size_t length_bytes) {
  return !failed(call(SYS_mprotect, (long)start, (long)length_bytes, PROT_READ | PROT_WRITE, 0, 0, 0));
}

bool sys_decommit(void *start, size_t length_bytes) {
  return !failed(call(SYS_mprotect, (long)start, (long)length_bytes, PROT_NONE, 0, 0, 0));
}

bool sys_make_read_only(void *start, size_t length_bytes) {
  return !failed(call(SYS_mprotect, (long)start, (long)length_bytes, PROT_READ, 0, 0, 0));
}

bool sys_reserve_again(void *start, size_t length_bytes) { return reserve_at(start, length_bytes, MAP_FIXED) != NULL; }

void *sys_map(size_t length_bytes) { return map_anonymous(NULL, length_bytes, PROT_READ | PROT_WRITE, 0); }

/* The address is a hint: sandboxes, and kernels before 4.17, don't know MAP_FIXED_NOREPLACE. */
bool sys_map_at(void *start, size_t length_bytes) {
  void *result = map_anonymous(start, length_bytes, PROT_READ | PROT_WRITE, 0);
  if (result == NULL || result == start) return result != NULL;
  sys_unmap(result, length_bytes);
  return false;
}

bool sys_unmap(void *start, size_t length_bytes) {
  return !failed(call(SYS_munmap, (long)start, (long)length_bytes, 0, 0, 0, 0));
}

void *sys_remap(void *start, size_t old_bytes, size_t new_bytes, bool may_move) {
  long flags = may_move ? MREMAP_MAYMOVE : 0;
  long result = call(SYS_mremap, (long)start, (long)old_bytes, (long)new_bytes, flags, 0, 0);
  return failed(result) ? NULL : (void *)result;
}

/* qemu-user before 7.1 says that it has done what it leaves, as a seccomp filter may. */
static bool purge_has_no_effect; /* written at start */

void sys_try_purge(void *page) {
  volatile char *byte = page;
  *byte = 1;
  purge_has_no_effect = sys_purge(page, sys_page_size_bytes()) && *byte != 0;
}

bool sys_purge(void *start, size_t length_bytes) {
  if (unlikely(purge_has_no_effect)) return false;
  return !failed(call(SYS_madvise, (long)start, (long)length_bytes, MADV_DONTNEED, 0, 0, 0));
}

void sys_huge_pages(void *start, size_t length_bytes) {
  call(SYS_madvise, (long)start, (long)length_bytes, MADV_HUGEPAGE, 0, 0, 0);
}

void sys_set_dumped(void *start, size_t length_bytes, bool dumped) {
  call(SYS_madvise, (long)start, (long)length_bytes, dumped ? MADV_DODUMP : MADV_DONTDUMP, 0, 0, 0);
}

void sys_no_huge_pages(void *start, size_t length_bytes) {
  call(SYS_madvise, (long)start, (long)length_bytes, MADV_NOHUGEPAGE, 0, 0, 0);
}

/* Advice for a part of a huge page, here the page of one byte, concerns no other part: so the kernel breaks the huge
 * page first. */
bool sys_break_huge_page(void *page) { return !failed(call(SYS_madvise, (long)page, 1, COLD_ADVICE, 0, 0, 0)); }

bool sys_find_resident(void *start, size_t length_bytes, unsigned char resident[]) {
  return !failed(call(SYS_mincore, (long)start, (long)length_bytes, (long)resident, 0, 0, 0));
}

bool sys_wipe_on_fork(void *start, size_t length_bytes) {
  return !failed(call(SYS_madvise, (long)start, (long)length_bytes, WIPE_ON_FORK_ADVICE, 0, 0, 0));
}

void sys_name_mapping(void *start, size_t length_bytes, const char *name) {
  call(SYS_prctl, PRCTL_SET_VMA, 0, (long)start, (long)length_bytes, (long)name, 0);
}

void sys_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns) {
  struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
  call(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, expected, timeout_ns != 0 ? (long)&timeout : 0, 0, 0);
}

/* A wait reads the word first, and ends at once where it is another than expected. Most often that is so here: else
 * it ends by its time. */
bool sys_can_read(const void *word) {
  enum { HARDLY_THERE = 0x51f15eed };
  struct timespec at_once = {0, 1};
  long result = call(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, HARDLY_THERE, (long)&at_once, 0, 0);
  return result == -EAGAIN || result == -ETIMEDOUT || result == -EINTR;
}

void sys_sleep(uint64_t duration_ns) {
  uint32_t nobody_wakes = 0;
  sys_futex_wait(&nobody_wakes, 0, duration_ns);
}

void sys_futex_wait_shared(uint32_t *word, uint32_t expected) {
  call(SYS_futex, (long)word, FUTEX_WAIT_SHARED, expected, 0, 0, 0);
}

void sys_futex_wake(uint32_t *word, int count) { call(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, count, 0, 0, 0); }

bool sys_barrier_register(void) {
  return !failed(call(SYS_membarrier, MEMBARRIER_REGISTER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0));
}

bool sys_barrier_all_threads(void) {
  long result = call(SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0);
  if (result == -EPERM && sys_barrier_register()) {
    result = call(SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0);
  }
  return !failed(result);
}

uint32_t sys_thread_id(void) { return (uint32_t)call(SYS_gettid, 0, 0, 0, 0, 0, 0); }

uint32_t sys_process_id(void) { return (uint32_t)call(SYS_getpid, 0, 0, 0, 0, 0, 0); }

bool sys_thread_exists(uint32_t process_id, uint32_t thread_id) {
  return call(SYS_tgkill, process_id, thread_id, 0, 0, 0, 0) != -ESRCH;
}

static const char *started_stack; /* atomic: of the last thread started below, with its length */
static size_t started_stack_bytes;

bool sys_in_started_thread(void) {
  const char *stack = __atomic_load_n(&started_stack, __ATOMIC_ACQUIRE);
  return stack != NULL && (size_t)((const char *)__builtin_frame_address(0) - stack) < started_stack_bytes;
}

bool sys_leave_files(void) {
  return !failed(call(SYSCALL_CLOSE_RANGE, 0, ~0u, CLOSE_RANGE_UNSHARE_FLAG, 0, 0, 0)); /* Linux 5.9 */
}

__attribute__((weak)) const char *gnu_get_libc_version(void);

bool sys_is_glibc(void) { return gnu_get_libc_version != NULL; }

/* By which libc has every thread make a call, as setuid(2): glibc's SIGSETXID, musl's SIGSYNCCALL. */
static uint64_t signal_to_all_threads(void) {
  enum { GLIBC = 33, MUSL = 34 };
  return UINT64_C(1) << ((sys_is_glibc() ? GLIBC : MUSL) - 1);
}

static uint64_t set_blocked(uint64_t mask) {
  uint64_t before = 0;
  call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, (long)&before, sizeof mask, 0, 0);
  return before;
}

uint64_t sys_block_signals(void) { return set_blocked(~signal_to_all_threads()); }

void sys_restore_signals(uint64_t mask) { set_blocked(mask); }

/* What clone3(2) takes, up to Linux 5.4. */
struct thread_description {
  uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_bytes, thread_block;
};

/* libc's pthread_create has made one of the two calls; a sandbox may kill for the other. glibc tries clone3 first since
 * 2.34, and falls back where the kernel, or a sandbox, says that there is none. */
static bool libc_tries_clone3(void) {
  enum { MINOR_WITH_CLONE3 = 34 };
  if (gnu_get_libc_version == NULL) return false;
  const char *version = gnu_get_libc_version();
  return version[0] == '2' && version[1] == '.' && version[2] != '\0' && version[3] != '\0' &&
         (version[2] - '0') * 10 + (version[3] - '0') >= MINOR_WITH_CLONE3;
}

uint32_t sys_start_thread(void (*entry)(void), void *stack, size_t stack_bytes, void *thread_block, uint32_t *alive) {
  unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                        CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  started_stack_bytes = stack_bytes;
  __atomic_store_n(&started_stack, (const char *)stack, __ATOMIC_RELEASE);
  uint64_t before = set_blocked(~UINT64_C(0)); /* the new thread's, too: no handler runs there */
  struct thread_description description = {
      flags, 0, (uintptr_t)alive, (uintptr_t)alive, 0, (uintptr_t)stack, stack_bytes, (uintptr_t)thread_block};
  long result = libc_tries_clone3() ? clone3_raw(&description, sizeof description, entry) : -ENOSYS;
  if (result == -ENOSYS)
    result = clone_raw(flags, (char *)stack + stack_bytes, (int *)alive, (int *)alive, thread_block, entry);
  sys_restore_signals(before);
  return failed(result) ? 0 : (uint32_t)result;
}

void sys_exit_thread(void) {
  for (;;) call(SYS_exit, 0, 0, 0, 0, 0, 0);
}

void sys_cpu_relax(void) { cpu_relax(); }

extern void snug_signal_return(void); /* in the platform's file */

bool sys_fault_action(const struct sys_action *action, struct sys_action *before) {
  return !failed(call(SYS_rt_sigaction, SIGSEGV, (long)action, (long)before, sizeof before->mask, 0, 0));
}

bool sys_is_handler_return(const void *address) { return address == (const void *)snug_signal_return; }

void sys_return_from_handler_here(struct sys_action *action) {
  action->flags |= SYS_ACTION_RETURNS;
  action->return_to = snug_signal_return;
}

bool sys_is_fault(const void *info, const void **address) {
  const siginfo_t *signal = info;
  *address = signal->si_addr;
  return signal->si_signo == SIGSEGV && signal->si_code > 0;
}

const uint64_t *sys_interrupted_registers(const void *context) { return interrupted_registers(context); }

const char *sys_kind_of_access(const void *context) { return kind_of_access(context); }

void sys_die_of_fault(void) {
  for (volatile uintptr_t nowhere = 16;;) (void)*(volatile char *)nowhere;
}

typedef int clock_function(clockid_t, struct timespec *);

/* A function in the object that the kernel maps into every process (vdso(7)); NULL: there is none. It reads clocks
 * without a system call, which a sandbox might not allow, and without libc's clock_gettime, which another library may
 * have taken the place of with code that needs a thread of libc's. */
static void *vdso_find(const char *name) {
  int before = errno;
  uintptr_t header = getauxval(AT_SYSINFO_EHDR);
  errno = before; /* it says so where there is none, under an emulator */
  if (header == 0) return NULL;
  const Elf64_Ehdr *object = (const Elf64_Ehdr *)header;
  const Elf64_Phdr *segments = (const Elf64_Phdr *)(header + object->e_phoff);
  uintptr_t base = header;
  for (size_t i = 0; i < object->e_phnum; i++) {
    if (segments[i].p_type == PT_LOAD) base = header + segments[i].p_offset - segments[i].p_vaddr;
  }
  struct symbol_table table = symbol_table_of(base, segments, object->e_phnum);
  const Elf64_Sym *symbol = symbol_table_find(&table, name);
  return symbol != NULL ? (void *)(base + symbol->st_value) : NULL;
}

static int read_clock_by_call(clockid_t clock, struct timespec *time) {
  return (int)call(SYS_clock_gettime, clock, (long)time, 0, 0, 0, 0);
}

uint64_t sys_coarse_time_ns(void) {
  static clock_function *read_clock; /* atomic */
  clock_function *function = __atomic_load_n(&read_clock, __ATOMIC_RELAXED);
  if (unlikely(function == NULL)) {
    void *found = vdso_find(VDSO_CLOCK_GETTIME);
    function = found != NULL ? (clock_function *)found : read_clock_by_call;
    __atomic_store_n(&read_clock, function, __ATOMIC_RELAXED);
  }
  struct timespec now;
  if (function(CLOCK_MONOTONIC_COARSE, &now) != 0) return 0;
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sys_ticks(void) { return cpu_ticks(); }

uint64_t sys_process_cpu_ns(void) {
  struct timespec used;
  if (read_clock_by_call(CLOCK_PROCESS_CPUTIME_ID, &used) != 0) return 0;
  return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static uint64_t soft_limit(int resource) {
  uint64_t limit[2] = {UINT64_MAX, UINT64_MAX};
  call(SYS_prlimit64, 0, resource, 0, (long)limit, 0, 0);
  return limit[0];
}

uint64_t sys_address_space_limit_bytes(void) { return soft_limit(RLIMIT_AS); }

uint64_t sys_lock_limit_bytes(void) { return soft_limit(RLIMIT_MEMLOCK); }

extern const Elf64_Ehdr __ehdr_start HIDDEN; /* of this object, by the linker */

/* Of 16 bytes that the kernel chose (AT_RANDOM). Libc's secrets are among them, so they are mixed, by steps of
 * splitmix64 (Steele, Lea and Flood, 2014). */
uint64_t sys_start_number(void) {
  uint64_t words[2] = {0, 0};
  const void *random = (const void *)getauxval(AT_RANDOM);
  if (random != NULL) memcpy(words, random, sizeof words);
  uint64_t mixed = (words[0] ^ words[1] >> 32) * UINT64_C(0xbf58476d1ce4e5b9) + words[1];
  mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
  return mixed ^ mixed >> 31;
}

bool sys_is_in_program(void) { return (uintptr_t)&__ehdr_start + __ehdr_start.e_phoff == getauxval(AT_PHDR); }

bool sys_was_loaded(void) { return getauxval(AT_BASE) != 0; }

bool sys_is_secure(void) { return getauxval(AT_SECURE) != 0; }

/* Where libc stands before us in the load order, our constructor comes before its own. glibc's loader then knows where
 * the kernel has put the number of arguments; these, a NULL and the environment follow. musl needs none of it. */
static char **environment(void) {
  if (&environ != NULL && environ != NULL) return environ;
  if (&__libc_stack_end == NULL || __libc_stack_end == NULL) return NULL;
  const uintptr_t *count = __libc_stack_end;
  return (char **)(count + 1 + *count + 1);
}

char *sys_environment(const char *name) {
  size_t length = strlen(name);
  for (char **entry = environment(); entry != NULL && *entry != NULL; entry++) {
    if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  }
  return NULL;
}

long sys_call(long number, long a, long b, long c, long d, long e, long f) { return call(number, a, b, c, d, e, f); }

uint64_t sys_physical_bytes(void) {
  struct sysinfo info;
  if (failed(call(SYS_sysinfo, (long)&info, 0, 0, 0, 0, 0))) return 0;
  return (uint64_t)info.totalram * info.mem_unit;
}

static long open_file(const char *path) {
  return call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
}

size_t sys_read_file(const char *path, char *text, size_t capacity_bytes) {
  long fd = open_file(path);
  if (failed(fd)) return 0;
  size_t length = 0;
  while (length + 1 < capacity_bytes) {
    long got = call(SYS_read, fd, (long)(text + length), (long)(capacity_bytes - 1 - length), 0, 0, 0);
    if (got <= 0) break;
    length += (size_t)got;
  }
  call(SYS_close, fd, 0, 0, 0, 0, 0);
  text[length] = '\0';
  return length;
}

void sys_each_line(const char *path, char *text, size_t capacity_bytes, bool (*line)(const char *line, void *data),
                   void *data) {
  long fd = open_file(path), got;
  if (failed(fd)) return;
  size_t length = 0;
  bool goes_on = true;
  while (goes_on && (got = call(SYS_read, fd, (long)(text + length), (long)(capacity_bytes - length), 0, 0, 0)) > 0) {
    size_t end = length + (size_t)got, begin = 0;
    for (size_t i = length; i < end && goes_on; i++) {
      bool is_cut = begin == 0 && i + 1 == capacity_bytes;
      if (text[i] != '\n' && !is_cut) continue;
      text[i] = '\0';
      goes_on = line(text + begin, data);
      begin = i + 1;
    }
    length = end - begin;
    if (goes_on) memmove(text, text + begin, length);
  }
  call(SYS_close, fd, 0, 0, 0, 0, 0);
}

size_t sys_read_link(const char *path, char *text, size_t capacity_bytes) {
  long length = call(SYS_readlinkat, AT_FDCWD, (long)path, (long)text, (long)(capacity_bytes - 1), 0, 0);
  if (length <= 0) return 0;
  text[length] = '\0';
  return (size_t)length;
}

bool sys_file_exists(const char *path) {
  long fd = open_file(path);
  if (failed(fd)) return false;
  call(SYS_close, fd, 0, 0, 0, 0, 0);
  return true;
}

/* A copy of the process's standard error for a thread that left its files; -1 if there is none. */
static int borrow_stderr(void) {
  long process = call(SYSCALL_PIDFD_OPEN, sys_process_id(), 0, 0, 0, 0, 0);
  long fd = failed(process) ? process : call(SYSCALL_PIDFD_GETFD, process, 2, 0, 0, 0, 0);
  return failed(fd) ? -1 : (int)fd;
}

enum { WRITE_NAPS = 1000 };
#define WRITE_NAP_NS UINT64_C(1000000)

bool sys_write_whole(int fd, const char *text, size_t length_bytes) {
  int naps = 0;
  while (length_bytes != 0) {
    long written = call(SYS_write, fd, (long)text, (long)length_bytes, 0, 0, 0);
    if (written == -EINTR) continue;
    if (written == -EAGAIN && naps++ < WRITE_NAPS) {
      sys_sleep(WRITE_NAP_NS);
      continue;
    }
    if (written == -EBADF && fd == 2 && sys_in_started_thread()) {
      fd = borrow_stderr();
      continue;
    }
    if (written <= 0) return false;
    text += written;
    length_bytes -= (size_t)written;
  }
  return true;
}

void sys_write(int fd, const char *text, size_t length_bytes) { (void)sys_write_whole(fd, text, length_bytes); }

int sys_create_file(const char *path, bool is_new) {
  int flags = O_WRONLY | O_CREAT | (is_new ? O_EXCL : O_TRUNC) | O_CLOEXEC | O_NONBLOCK;
  return (int)call(SYS_openat, AT_FDCWD, (long)path, flags, 0600, 0, 0);
}

bool sys_close_file(int fd) { return !failed(call(SYS_close, fd, 0, 0, 0, 0, 0)); }

bool sys_copy_file(const char *path, int fd) {
  char part[2048];
  long from = open_file(path), got = 0;
  if (failed(from)) return false;
  do {
    got = call(SYS_read, from, (long)part, sizeof part, 0, 0, 0);
  } while (got == -EINTR || (got > 0 && sys_write_whole(fd, part, (size_t)got)));
  sys_close_file((int)from);
  return got == 0;
}

void sys_abort_without_libc(void) {
  call(SYS_kill, sys_process_id(), SIGABRT, 0, 0, 0, 0);
  sys_sleep(ABORT_WAIT_NS);
  for (;;) call(SYS_exit_group, ABORT_STATUS, 0, 0, 0, 0, 0); /* it is blocked or ignored */
}

void sys_abort_unhandled(void) {
  struct sys_action by_default = {SYS_DEFAULT, 0, NULL, 0};
  uint64_t mask = UINT64_C(1) << (SIGABRT - 1);
  call(SYS_rt_sigaction, SIGABRT, (long)&by_default, 0, sizeof by_default.mask, 0, 0);
  call(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&mask, 0, sizeof mask, 0, 0);
  sys_abort_without_libc();
}

/* abort() needs libc's thread state, which a thread started above does not have. */
void sys_abort(void) {
  if (sys_in_started_thread()) sys_abort_without_libc();
  abort();
}
