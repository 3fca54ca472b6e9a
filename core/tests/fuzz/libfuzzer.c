/* The libFuzzer target: bytes become instructions (instruction_decode), which the model executes and checks. Linked
 * with the core, so that its branches guide the search. A crash file replays with this same program. */
#include "model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
  enum { STEPS_MAX = 512 };
  static struct instruction list[STEPS_MAX];
  size_t count = 0, used;
  while (count < STEPS_MAX && (used = instruction_decode(bytes, length, &list[count])) > 0) {
    bytes += used;
    length -= used;
    count++;
  }
  model_run(list, count, 8);
  return 0;
}
