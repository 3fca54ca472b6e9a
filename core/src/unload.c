/* unload.c: what libsnug-prefixed.a does before dlclose(3) takes the plug-in away that it was linked into: from then on
 * nobody may call its code. libsnug.so is never unloaded, nor is a program.
 *
 *  W1  The plug-in's own destructors come later, and may allocate and free; so may other threads where this is no
 *      dlclose but the end of the process, which looks the same from here. All goes on as before, without helper
 *      thread, and without a cache for new threads.
 *  W2  It comes before libc forgets the handlers of fork, so that one which is amid a fork still gives our locks back.
 *      Later forks leave us out: what a child of theirs then allocates with us, at the end of the process, may wait for
 *      a lock of a thread that it has not.
 *
 * The heap stays mapped, as others may still hold blocks; only what is reserved and unused goes. */
#include "cache.h"
#include "hooks.h"
#include "janitor.h"
#include "process.h"
#include "ready.h"
#include "rights.h"
#include "sys.h"

/* A signal handler that calls exit(3) may have interrupted one that holds a lock. */
static bool has_begun(void) {
  return __atomic_load_n(&start_state, __ATOMIC_ACQUIRE) == START_DONE && !cache_thread_is_inside() &&
         rights_identity() != IDENTITY_BORROWED;
}

__attribute__((destructor)) static void unload(void) {
  if (!SNUG_PREFIXED || sys_is_in_program() || !has_begun()) return;
  hooks_watch_no_fork();
  rights_start_no_thread();
  cache_slow_path_begins();
  janitor_stop();
  janitor_resume();
  cache_slow_path_ends();
  hooks_watch_no_thread();
  process_release_reservations();
}
