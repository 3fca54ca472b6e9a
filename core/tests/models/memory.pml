/* memory.pml: what processors may do with the stores of threads, for the models here. Included first.
 *
 * A store waits in a buffer of its thread, which alone sees it, until it reaches memory. Of x86-64 (STRONG) the
 * buffers are queues. Else a store may pass another one to a different word, unless it is a release, which waits
 * for all before it; so on 64-bit Arm. Loads happen in the order of the program: all that matter here are acquire
 * loads, or follow one. A thread's read-modify-write with release, and a barrier, wait until its buffer is empty.
 *
 * THREADS, WORDS: how many. A thread stores and loads by STORE, RELEASE, LOAD; words start at 0. */
#define BUFFER 3

typedef buffer {
  byte count;
  byte word[BUFFER];
  byte value[BUFFER];
  bool release[BUFFER]
}

byte memory[WORDS];
buffer buffers[THREADS];

inline put(thread, which, what, is_release) {
  d_step {
    buffers[thread].count < BUFFER;
    buffers[thread].word[buffers[thread].count] = which;
    buffers[thread].value[buffers[thread].count] = what;
    buffers[thread].release[buffers[thread].count] = is_release;
    buffers[thread].count++
  }
}

#define STORE(thread, which, what) put(thread, which, what, false)
#define RELEASE(thread, which, what) put(thread, which, what, true)

inline LOAD(thread, which, result) {
  d_step {
    byte at = 0;
    result = memory[which];
    do
    :: at < buffers[thread].count ->
       if
       :: buffers[thread].word[at] == which -> result = buffers[thread].value[at]
       :: else
       fi;
       at++
    :: else -> break
    od;
    at = 0
  }
}

#define IS_EMPTY(thread) (buffers[thread].count == 0)

inline let_out(thread, place) {
  memory[buffers[thread].word[place]] = buffers[thread].value[place];
  do
  :: place + 1 < buffers[thread].count ->
     buffers[thread].word[place] = buffers[thread].word[place + 1];
     buffers[thread].value[place] = buffers[thread].value[place + 1];
     buffers[thread].release[place] = buffers[thread].release[place + 1];
     place++
  :: else -> break
  od;
  buffers[thread].count--;
  buffers[thread].word[buffers[thread].count] = 0;
  buffers[thread].value[buffers[thread].count] = 0;
  buffers[thread].release[buffers[thread].count] = false;
  place = 0
}

/* Lets the stores of a thread reach memory, at any time. */
proctype processor(byte thread) {
  byte place;
end:
  do
  :: atomic { buffers[thread].count > 0 -> place = 0; let_out(thread, place) }
#ifndef STRONG
  :: atomic { buffers[thread].count > 1 && !buffers[thread].release[1] &&
              buffers[thread].word[1] != buffers[thread].word[0] -> place = 1; let_out(thread, place) }
  :: atomic { buffers[thread].count > 2 && !buffers[thread].release[2] &&
              buffers[thread].word[2] != buffers[thread].word[0] && buffers[thread].word[2] != buffers[thread].word[1] ->
              place = 2; let_out(thread, place) }
#endif
  od
}
