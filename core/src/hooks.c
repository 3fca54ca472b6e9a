#include "hooks.h"

#include <pthread.h>

#include "symbols.h"
#include "sys.h"

#pragma weak pthread_atfork
__attribute__((weak)) int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                                            void *library);

/* The handle of the object this is linked into, by which libc knows whose handlers are whose. Objects without
 * crtbegin.o have none, such as libsnug.so, which stays for good. */
extern void *__dso_handle __attribute__((weak)) HIDDEN;

#define NAP_NS UINT64_C(1000000)
enum { WATCH_NOBODY, WATCH_BEGINS, WATCH_ALL, WATCH_OVER, NAPS_MAX = 1000 };

static struct {
  uint32_t state;  /* atomic */
  uint32_t ending; /* atomic: threads */
  bool has_seen_one;
  pthread_key_t key;
  void (*ends)(void *);
  int (*set)(pthread_key_t, const void *);
} thread_watch;

static void thread_ends_here(void *thread) {
  __atomic_fetch_add(&thread_watch.ending, 1, __ATOMIC_ACQUIRE);
  thread_watch.ends(thread);
  __atomic_fetch_sub(&thread_watch.ending, 1, __ATOMIC_RELEASE);
}

static bool begin_to_watch(int (*create)(pthread_key_t *, void (*)(void *)), int (*set)(pthread_key_t, const void *)) {
  if (create == NULL || set == NULL || create(&thread_watch.key, thread_ends_here) != 0) return false;
  thread_watch.set = set;
  __atomic_store_n(&thread_watch.state, WATCH_ALL, __ATOMIC_RELEASE);
  return true;
}

bool hooks_watch_threads(void (*ends)(void *)) {
  thread_watch.ends = ends;
  return begin_to_watch(pthread_key_create, pthread_setspecific) || pthread_key_create == NULL;
}

/* Before glibc 2.34: a library that was opened late has brought libpthread along. */
static void watch_late(void) {
  uint32_t nobody = WATCH_NOBODY;
  if (!__atomic_compare_exchange_n(&thread_watch.state, &nobody, WATCH_BEGINS, false, __ATOMIC_ACQUIRE,
                                   __ATOMIC_RELAXED))
    return;
  int (*create)(pthread_key_t *, void (*)(void *)), (*set)(pthread_key_t, const void *);
  *(void **)&create = symbols_next("pthread_key_create");
  *(void **)&set = symbols_next("pthread_setspecific");
  if (!begin_to_watch(create, set)) __atomic_store_n(&thread_watch.state, WATCH_NOBODY, __ATOMIC_RELEASE);
}

/* The first thread needs nobody to watch it where libpthread is missing: it ends with the process. */
bool hooks_thread_begins(void *thread) {
  bool is_first = !__atomic_exchange_n(&thread_watch.has_seen_one, true, __ATOMIC_RELAXED);
  if (!is_first && unlikely(__atomic_load_n(&thread_watch.state, __ATOMIC_ACQUIRE) != WATCH_ALL)) watch_late();
  uint32_t state = __atomic_load_n(&thread_watch.state, __ATOMIC_ACQUIRE);
  if (state == WATCH_OVER) return false;
  return state != WATCH_ALL || thread_watch.set(thread_watch.key, thread) == 0;
}

static void nap_while(const uint32_t *count) {
  for (int i = 0; i < NAPS_MAX && __atomic_load_n(count, __ATOMIC_SEQ_CST) != 0; i++) sys_sleep(NAP_NS);
}

void hooks_watch_no_thread(void) {
  int (*delete_key)(pthread_key_t) = pthread_key_delete;
  if (delete_key == NULL) *(void **)&delete_key = symbols_next("pthread_key_delete");
  uint32_t state = __atomic_exchange_n(&thread_watch.state, WATCH_OVER, __ATOMIC_ACQ_REL);
  if (state == WATCH_ALL && delete_key != NULL) delete_key(thread_watch.key);
  nap_while(&thread_watch.ending);
}

/* glibc before 2.34 has pthread_atfork in its static part only. */
static void at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
  if (__register_atfork != NULL) {
    __register_atfork(prepare, parent, child, &__dso_handle != NULL ? __dso_handle : NULL);
  } else if (pthread_atfork != NULL) {
    pthread_atfork(prepare, parent, child);
  }
}

/* ---- forks beside dlclose ---- */

/* glibc calls handlers with no lock held, and may forget those of a library between the first call and the last. */
static struct {
  uint32_t forks; /* atomic: between the first call of their handlers and the last */
  bool over;      /* atomic */
  void (*prepare)(void), (*parent)(void), (*child)(void);
} fork_watch;

static __thread uint32_t forks_of_thread FIXED_TLS; /* a handler may fork amid a fork */

static void fork_begins(void) {
  __atomic_fetch_add(&fork_watch.forks, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&fork_watch.over, __ATOMIC_SEQ_CST)) {
    __atomic_fetch_sub(&fork_watch.forks, 1, __ATOMIC_RELEASE);
    return;
  }
  forks_of_thread++;
  fork_watch.prepare();
}

static void fork_ends(void) {
  if (forks_of_thread == 0) return;
  forks_of_thread--;
  fork_watch.parent();
  __atomic_fetch_sub(&fork_watch.forks, 1, __ATOMIC_RELEASE);
}

static void fork_ends_in_child(void) {
  __atomic_store_n(&fork_watch.forks, forks_of_thread, __ATOMIC_RELAXED); /* nobody else's */
  if (forks_of_thread == 0) return;
  forks_of_thread--;
  fork_watch.child();
  __atomic_fetch_sub(&fork_watch.forks, 1, __ATOMIC_RELEASE);
}

void hooks_watch_no_fork(void) {
  __atomic_store_n(&fork_watch.over, true, __ATOMIC_SEQ_CST);
  nap_while(&fork_watch.forks);
}

void hooks_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
  if (!SNUG_PREFIXED) return at_fork(prepare, parent, child);
  fork_watch.prepare = prepare;
  fork_watch.parent = parent;
  fork_watch.child = child;
  at_fork(fork_begins, fork_ends, fork_ends_in_child);
}
