#include "hooks.h"

#include <pthread.h>

#include "symbols.h"

#pragma weak pthread_atfork
__attribute__((weak)) int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                                            void *library);

enum { WATCH_NOBODY, WATCH_BEGINS, WATCH_ALL };

static struct {
  uint32_t state; /* atomic */
  bool has_seen_one;
  pthread_key_t key;
  void (*ends)(void *);
  int (*set)(pthread_key_t, const void *);
} thread_watch;

static bool begin_to_watch(int (*create)(pthread_key_t *, void (*)(void *)), int (*set)(pthread_key_t, const void *)) {
  if (create == NULL || set == NULL || create(&thread_watch.key, thread_watch.ends) != 0) return false;
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
  return __atomic_load_n(&thread_watch.state, __ATOMIC_ACQUIRE) != WATCH_ALL ||
         thread_watch.set(thread_watch.key, thread) == 0;
}

/* glibc before 2.34 has pthread_atfork in its static part only. */
void hooks_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
  if (__register_atfork != NULL) {
    __register_atfork(prepare, parent, child, NULL);
  } else if (pthread_atfork != NULL) {
    pthread_atfork(prepare, parent, child);
  }
}
