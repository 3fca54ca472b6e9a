/* janitor.pml: how the janitor begins, leaves, is stopped and is started again (janitor.c: J1; fork.c). Can two
 * run, or one run while a process forks? Does anyone wait for ever? Can memory be left that nobody will look at?
 *
 * A thread frees memory FREES times, and starts the janitor if that does not watch. Another stops it as calls that
 * change ids do (STOPS times), a third forks (FORKS times), which only tries, and gives up at any time. With
 * HANDLER a signal handler forks at any instant of the first thread, which may have any lock (K4): it skips what
 * it cannot have. The janitor looks once in a while, and gives back under the heap's lock. What it gives back is
 * one word.
 *
 * Each of these leaves out what the real one has, and must fail: WITHOUT_FENCE_OF_JANITOR (in stays_after_all),
 * WITHOUT_FENCE_OF_PROGRAM (in janitor_watches), WITHOUT_LAST_LOOK (stays_after_all), WITHOUT_INTERRUPTED (who
 * finds the lock taken says nothing), WITHOUT_SECOND_LOOK (who gives the lock does not ask whether another found
 * it taken), CLEARS_LATE (that others found the lock taken is forgotten after the start, not before), WITHOUT_WAIT
 * (janitor_stop does not wait for the end). */
#ifndef FREES
#define FREES 2
#endif
#ifndef STOPS
#define STOPS 1
#endif
#ifndef FORKS
#define FORKS 1
#endif

#define DIRTY 0
#define STATE 1 /* enum janitor_state */
#define ALIVE 2
#define STOP 3
#define INTERRUPTED 4
#define MUST_END 5
#define HEAP_LOCK 6
#define WORDS 7

#define WATCHES 0
#define LEAVES 1
#define AWAITED 2

#define FREEING 0
#define STOPPING 1
#define FORKING 2
#define JANITOR 3
#define HANDLES 0 /* on the stack of the thread that it stops */
#define THREADS 4

#include "memory.pml"

#define NOBODY 255
byte janitor_lock = NOBODY;
bool begins;
bool runs;    /* the thread has instructions left */
bool is_forking;
bool handler_runs;
byte running; /* threads and handlers */

inline take(lock, thread) { atomic { lock == NOBODY -> lock = thread } }
inline give(lock, thread) { atomic { IS_EMPTY(thread) -> lock = NOBODY } }

/* Loads that follow in the program may come before it is given, as on 64-bit Arm. */
inline take_heap() { atomic { !memory[HEAP_LOCK] -> memory[HEAP_LOCK] = true } }
inline give_heap(thread) { RELEASE(thread, HEAP_LOCK, false) }

inline fence(thread) { IS_EMPTY(thread) }

inline compare_exchange(thread, which, from, to, done) {
  atomic {
    IS_EMPTY(thread);
    if
    :: memory[which] == from -> memory[which] = to; done = true
    :: else -> done = false
    fi
  }
}

/* ---- the janitor ---- */

inline is_told_to_end(told) {
  atomic { LOAD(JANITOR, STOP, value); told = value };
  atomic { LOAD(JANITOR, MUST_END, value); told = told || value; value = 0 }
}

inline is_needed(needed) {
  is_told_to_end(told);
  if
  :: told -> needed = false
  :: else -> atomic { LOAD(JANITOR, DIRTY, value); needed = value; value = 0 }
  fi;
  told = false
}

/* A purge stops when it is told to. */
inline watch_once() {
  is_told_to_end(told);
  if
  :: told
  :: else ->
     take_heap();
     is_told_to_end(told);
     if
     :: told
     :: else -> assert(!is_forking); STORE(JANITOR, DIRTY, 0)
     fi;
     give_heap(JANITOR)
  fi;
  told = false
}

proctype janitor() {
  byte value;
  bool told, needed;
end:
  do
  :: atomic { begins -> begins = false; assert(!runs); runs = true };
     do
     :: watch_once();
        is_needed(needed);
        if
        :: needed
        :: else ->
#ifdef WITHOUT_LAST_LOOK
           break
#else
           STORE(JANITOR, STATE, LEAVES);
#ifndef WITHOUT_FENCE_OF_JANITOR
           fence(JANITOR);
#endif
           is_needed(needed);
           if :: needed -> compare_exchange(JANITOR, STATE, LEAVES, WATCHES, needed) :: else fi;
           if :: needed :: else -> break fi
#endif
        fi;
        needed = false
     od;
     atomic { IS_EMPTY(JANITOR) -> runs = false; memory[ALIVE] = false } /* the kernel */
  od
}

/* ---- who starts it ---- */

#ifdef WITHOUT_FENCE_OF_PROGRAM
#define fence_of_program(thread) skip
#else
#define fence_of_program(thread) fence(thread)
#endif

/* take_turn */
inline take_turn(thread) {
  atomic { if :: janitor_lock == NOBODY -> janitor_lock = thread; has = true :: else -> has = false fi };
#ifndef WITHOUT_INTERRUPTED
  if
  :: has
  :: else ->
     STORE(thread, INTERRUPTED, true);
     fence(thread);
     atomic { if :: janitor_lock == NOBODY -> janitor_lock = thread; has = true :: else fi }
  fi
#endif
}

/* start_unless_one_runs */
inline start_unless_one_runs(thread) {
  LOAD(thread, ALIVE, value);
  if
  :: value ->
     compare_exchange(thread, STATE, LEAVES, AWAITED, leaves);
     if :: leaves -> memory[ALIVE] == 0; value = 0 :: else -> LOAD(thread, ALIVE, value) fi
  :: else
  fi;
  if
  :: !value ->
     STORE(thread, STATE, WATCHES);
     STORE(thread, MUST_END, false);
#ifndef CLEARS_LATE
     STORE(thread, INTERRUPTED, false);
#endif
     atomic { IS_EMPTY(thread) -> assert(!runs && !begins); memory[ALIVE] = true; begins = true };
#ifdef CLEARS_LATE
     STORE(thread, INTERRUPTED, false)
#endif
  :: else
  fi;
  atomic { leaves = false; value = 0 }
}

inline start_if_there_is_none(thread) {
  do
  :: LOAD(thread, ALIVE, value);
     if
     :: value -> fence_of_program(thread); atomic { LOAD(thread, STATE, value); watches = (value == WATCHES) }
     :: else -> watches = false
     fi;
     if
     :: watches -> break
     :: else
     fi;
     take_turn(thread);
     if :: has :: else -> break fi;
     start_unless_one_runs(thread);
     give(janitor_lock, thread);
     has = false;
#ifdef WITHOUT_SECOND_LOOK
     break;
#endif
     fence(thread);
     atomic { LOAD(thread, INTERRUPTED, value); if :: value :: else -> break fi }
  od;
  atomic { value = 0; watches = false }
}

/* janitor_start_again */
inline start_again(thread) {
  fence(thread);
  LOAD(thread, INTERRUPTED, value);
  if
  :: value -> LOAD(thread, DIRTY, value); if :: value -> start_if_there_is_none(thread) :: else fi
  :: else
  fi;
  value = 0
}

proctype freeing() provided (!handler_runs) {
  byte value, left = FREES;
  bool watches, leaves, has;
  do
  :: left > 0 ->
     take_heap();
     STORE(FREEING, DIRTY, 1);
     give_heap(FREEING);
     start_if_there_is_none(FREEING);
     left--
  :: else -> break
  od;
  running--
}

/* ---- who stops it ---- */

inline ask_to_end(thread) {
  atomic { LOAD(thread, ALIVE, value); if :: value -> STORE(thread, INTERRUPTED, true) :: else fi; value = 0 };
  STORE(thread, STOP, 1)
}

/* janitor_resume */
inline resume(thread) {
  STORE(thread, STOP, 0);
  give(janitor_lock, thread)
}

#ifdef WITHOUT_WAIT
#define wait_until_it_ends(thread) skip
#else
#define wait_until_it_ends(thread) memory[ALIVE] == 0
#endif

proctype stopping() {
  byte value, left = STOPS;
  bool watches, leaves, has;
  do
  :: left > 0 ->
     take(janitor_lock, STOPPING);
     ask_to_end(STOPPING);
     wait_until_it_ends(STOPPING);
     assert(!runs);
     resume(STOPPING);
     start_again(STOPPING);
     left--
  :: else -> break
  od;
  running--
}

/* try_to_lock_all, until it has all; the handlers of parents */
proctype forking() {
  byte value, left = FORKS;
  bool watches, leaves, has;
  do
  :: left > 0 ->
     take(janitor_lock, FORKING);
     ask_to_end(FORKING);
     if
     :: wait_until_it_ends(FORKING);
        if
        :: take_heap();
           atomic { is_forking = true; assert(!runs) };
           atomic { is_forking = false; left-- };
           give_heap(FORKING);
           has = true
        :: skip
        fi
     :: skip /* it gives up, and begins again */
     fi;
     resume(FORKING);
     if :: has -> has = false; start_again(FORKING) :: else fi
  :: else -> break
  od;
  running--
}

/* K4 */
proctype handler() {
  byte value;
  bool has;
  handler_runs = true;
  atomic { if :: janitor_lock == NOBODY -> janitor_lock = HANDLES; has = true :: skip fi };
  if
  :: has ->
     ask_to_end(HANDLES);
     if
     :: wait_until_it_ends(HANDLES)
     :: STORE(HANDLES, MUST_END, true)
     fi;
     resume(HANDLES)
  :: else -> STORE(HANDLES, MUST_END, true)
  fi;
  atomic { handler_runs = false; running-- }
}

init {
  atomic {
    running = 3;
    run processor(FREEING);
    run freeing();
    run processor(STOPPING);
    run stopping();
    run processor(FORKING);
    run forking();
    run processor(JANITOR);
    run janitor();
#ifdef HANDLER
    running++;
    run handler()
#endif
  }
  atomic {
    timeout; /* nothing is left to do */
    assert(running == 0);
    assert(janitor_lock == NOBODY && !memory[HEAP_LOCK]);
#ifdef HANDLER
    assert(!memory[ALIVE]) /* it does not start one again: the slow path that it interrupted may, or the next one */
#else
    assert(!memory[ALIVE] && !memory[DIRTY])
#endif
  }
}
