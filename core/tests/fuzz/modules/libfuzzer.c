/* libfuzzer.c: libFuzzer's target for the module that the variable FUZZ_MODULE names. Each input has a process of its
 * own here, too, as it would not fail again else: what the child covered is added up in the parent. */
#include "driver.h"

#include <sys/mman.h>

extern uint8_t __start___sancov_cntrs[], __stop___sancov_cntrs[];
static uint8_t *child_counters;

static size_t counters_bytes(void) { return (size_t)(__stop___sancov_cntrs - __start___sancov_cntrs); }

static void hand_counters_over(void) { memcpy(child_counters, __start___sancov_cntrs, counters_bytes()); }

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerInitialize(int *count, char ***arguments) {
  (void)count;
  make_room_for_peers(*arguments);
  start_driver();
  const char *name = getenv("FUZZ_MODULE");
  for (size_t i = 0; name != NULL && fuzz_modules[i] != NULL; i++)
    if (strcmp(fuzz_modules[i]->name, name) == 0) module = fuzz_modules[i];
  child_counters = mmap(NULL, counters_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(module != NULL && child_counters != MAP_FAILED);
  driver_at_end = hand_counters_over;
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
  size_t count = length / sizeof(struct step);
  memcpy(list, bytes, count * sizeof(struct step));
  if (!passes(list, count, false)) {
    report(count);
    abort();
  }
  for (size_t i = 0; i < counters_bytes(); i++) __start___sancov_cntrs[i] |= child_counters[i];
  return 0;
}
