/* instruction.h: the language of the fuzzer, one printable instruction per line.
 *
 * It does not know how instructions are executed (model.h). A list is text, so that a failure can be read, cut down by
 * hand and kept as a test:
 *
 *   m SLOT SIZE           malloc                          t              malloc_trim(0)
 *   c SLOT COUNT SIZE     calloc                          p              snug_purge
 *   r SLOT SIZE           realloc                         w MS           wait
 *   R SLOT COUNT SIZE     reallocarray                    k N            fork; the child runs the next N instructions,
 *   a SLOT ALIGN SIZE     posix_memalign                                 frees all and ends; then the parent goes on
 *   A SLOT ALIGN SIZE     aligned_alloc                   T N            go on in thread N (started if need be)
 *   M SLOT ALIGN SIZE     memalign                        X N            thread N ends; its blocks stay
 *   f SLOT                free                            x SLOT SIZE    a size that must fail; the slot stays
 *   s SLOT                the sized free that fits        ! SLOT         break: spoils a byte, as a bug of the
 *   u SLOT                fill the usable size                           allocator would (never generated)
 *
 * Instructions about an empty slot (f, s, u, !) do nothing; the allocating ones free what the slot held, except r and
 * R, which resize it. Lines that begin with # are comments.
 */
#ifndef SNUG_FUZZ_INSTRUCTION_H
#define SNUG_FUZZ_INSTRUCTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FUZZ_SLOTS = 256, FUZZ_THREADS = 8, INSTRUCTIONS_MAX = 1 << 20 };

struct instruction {
  char operation;
  uint64_t a, b, c; /* as many as the operation takes */
};

/* Writes one line without its end into text; returns its length. */
size_t instruction_print(const struct instruction *instruction, char *text, size_t capacity);

/* Reads one line. Returns false if it is none of the above or a number is out of range. */
bool instruction_parse(const char *text, struct instruction *instruction);

/* Reads a file into list; returns how many. Ends the program with a message if it can't. */
size_t instructions_read(const char *path, struct instruction *list, size_t capacity);

/* The next instruction of a seeded random list. Sizes keep to phases, so that slabs fill and empty. */
struct instruction_source {
  uint64_t random;
  unsigned phase_left;
  unsigned slots, small_percent;
  uint64_t favourite_bytes;
};
struct instruction instruction_generate(struct instruction_source *source);

/* Decodes instructions from arbitrary bytes, for libFuzzer. Returns the bytes used, 0 at the end. */
size_t instruction_decode(const uint8_t *bytes, size_t length, struct instruction *instruction);

#endif
