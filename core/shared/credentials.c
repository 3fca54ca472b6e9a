/* credentials.c: setuid(2) and its relatives, in the shared library only.
 *
 * The kernel changes the ids of one thread; libc makes that the whole process, by a signal to each of its threads.
 * The janitor is not one of them: it ends first (process.h). Only libc's functions can do this, so the call is passed
 * on to them; a program linked with the archive has them already, and there the janitor never starts with privileges
 * (rights.h). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sys/types.h>

#include "../src/process.h"
#include "../src/rights.h"
#include "../src/symbols.h"
#include "../src/sys.h"

enum { GROUPS_MAX = 65536 }; /* the kernel's NGROUPS_MAX */

/* name, parameters, arguments */
#define ALL_CALLS(CALL)                                                                 \
  CALL(setuid, (uid_t user), (user))                                                    \
  CALL(seteuid, (uid_t effective), (effective))                                         \
  CALL(setreuid, (uid_t real, uid_t effective), (real, effective))                      \
  CALL(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved)) \
  CALL(setgid, (gid_t group), (group))                                                  \
  CALL(setegid, (gid_t effective), (effective))                                         \
  CALL(setregid, (gid_t real, gid_t effective), (real, effective))                      \
  CALL(setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved)) \
  CALL(setgroups, (size_t count, const gid_t *groups), (count, groups))

#define DEFINE(name, parameters, arguments)                  \
  static int(*next_##name) parameters;                       \
  EXPORT int credentials_##name parameters __asm__(#name);   \
  int credentials_##name parameters {                        \
    enum process_way way = process_make_way(WAY_PRIVILEGES); \
    int result = -1;                                         \
    if (next_##name == NULL) find_next();                    \
    if (next_##name != NULL) {                               \
      result = next_##name arguments;                        \
    } else {                                                 \
      errno = ENOSYS;                                        \
    }                                                        \
    process_close_way(way, result == 0);                     \
    return result;                                           \
  }

#define FIND(name, parameters, arguments) *(void **)&next_##name = symbols_next(#name);

static void find_next(void);
ALL_CALLS(DEFINE)

static int (*list_groups)(const char *user, gid_t group, gid_t *groups, int *count);

static void find_next(void) {
  ALL_CALLS(FIND)
  symbols_function(&list_groups, "getgrouplist");
}

/* libc's own looks the groups up before it sets them: in files, or over the network. A fork would wait so long for the
 * janitor, so here it is stopped for the second half alone. */
EXPORT int credentials_initgroups(const char *user, gid_t group) __asm__("initgroups");
int credentials_initgroups(const char *user, gid_t group) {
  if (list_groups == NULL) find_next();
  gid_t *groups = list_groups != NULL ? sys_map(GROUPS_MAX * sizeof(gid_t)) : NULL;
  if (groups == NULL) {
    errno = list_groups != NULL ? ENOMEM : ENOSYS;
    return -1;
  }
  int count = GROUPS_MAX;
  int result = list_groups(user, group, groups, &count);
  if (count > GROUPS_MAX) result = count = GROUPS_MAX; /* libc's takes as many as the kernel does, too */
  if (result >= 0) result = credentials_setgroups((size_t)count, groups);
  sys_unmap(groups, GROUPS_MAX * sizeof(gid_t));
  return result;
}

/* Now rather than at the first call, which may come in the child of a fork, where the loader's lock can't be had. Opened
 * late the library is not where the program's calls go to. */
__attribute__((constructor)) static void begin(void) {
  process_pass_on_to_libraries();
  find_next();
  if (symbols_first("setuid") == (void *)credentials_setuid) rights_drops_are_seen();
}
