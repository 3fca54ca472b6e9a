/* main.c: fuzzes the modules of the core, each by itself.
 *
 *   modules [--module NAME] [--seed N] [--steps N] [--seconds N] [--inputs N] [--output FILE]
 *   modules FILE...            runs the lists in the files: lines of an operation and two numbers, after `module NAME`
 *   modules --self-test yes    spoils something after a list, which each module must find
 *   modules --list yes         their names
 *
 * Without --module each has its share of the time. A list that fails is made smaller and written to FILE.
 */
#include "driver.h"

enum { PHASE_STEPS = 400 };

static struct {
  const char *module;
  uint64_t seed, steps, inputs;
  double seconds;
} options = {NULL, 1, 10000, UINT64_MAX, 10};

/* ---- lists ---- */

/* Phases of a few operations, slots and sizes, so that what fills up also empties. */
static void generate(uint64_t seed, size_t count) {
  enum { MENU = 12, FAVOURITES = 6 };
  uint64_t random = seed;
  unsigned operations = operation_count();
  bool refuses = random_below(&random, 4) != 0;
  for (size_t i = 0; i < count;) {
    uint8_t menu[MENU];
    uint16_t favourites[FAVOURITES];
    for (int k = 0; k < MENU; k++) menu[k] = (uint8_t)random_below(&random, operations);
    for (int k = 0; k < FAVOURITES; k++) favourites[k] = (uint16_t)random_next(&random);
    unsigned slots = random_below(&random, 3) == 0 ? 8 : 256, wild = (unsigned)random_below(&random, 100);
    size_t end = i + 1 + random_below(&random, PHASE_STEPS);
    for (; i < end && i < count; i++) {
      uint16_t any = (uint16_t)random_next(&random);
      uint8_t operation = menu[random_below(&random, MENU)];
      if (refuses && random_below(&random, 100) == 0) operation = (uint8_t)operations;
      if (random_below(&random, 100) >= wild) any = favourites[any % FAVOURITES];
      list[i] = (struct step){operation, (uint8_t)random_below(&random, slots), any};
    }
  }
}

static const struct fuzz_module *module_named(const char *name) {
  for (size_t i = 0; fuzz_modules[i] != NULL; i++)
    if (strcmp(fuzz_modules[i]->name, name) == 0) return fuzz_modules[i];
  test_print(2, "fuzz: there is no module %s\n", name);
  exit(2);
}

static struct step parse(const char *line, const char *path) {
  char name[64];
  unsigned a, b, operation = 0, count = operation_count();
  if (sscanf(line, "%63s %u %u", name, &a, &b) != 3 || a > UINT8_MAX || b > UINT16_MAX) operation = count + 1;
  while (operation < count && strcmp(module->operations[operation], name) != 0) operation++;
  if (operation > count || (operation == count && strcmp(name, "refuse") != 0)) {
    test_print(2, "%s: no step of %s: %s", path, module->name, line);
    exit(2);
  }
  return (struct step){(uint8_t)operation, (uint8_t)a, (uint16_t)b};
}

static size_t read_list(const char *path) {
  FILE *file = fopen(path, "r");
  char line[256], name[64];
  size_t count = 0;
  if (file == NULL) {
    test_print(2, "cannot read %s: %s\n", path, strerror(errno));
    exit(2);
  }
  while (fgets(line, sizeof line, file) != NULL) {
    if (line[0] == '#' || line[0] == '\n') continue;
    if (sscanf(line, "module %63s", name) == 1) {
      module = module_named(name);
    } else {
      REQUIRE(module != NULL && count < STEPS_MAX);
      list[count++] = parse(line, path);
    }
  }
  fclose(file);
  return count;
}

/* ---- the program ---- */

static int fuzz_module(double end_s) {
  struct fuzz_counts before = *fuzz_counts;
  uint64_t inputs = 0;
  for (uint64_t seed = options.seed; inputs < options.inputs && now_s() < end_s; seed++, inputs++) {
    generate(seed, options.steps);
    if (!passes(list, options.steps, false)) {
      test_print(2, "fuzz: seed %llu\n", (unsigned long long)seed);
      report(options.steps);
      test_print(1, "not ok %s (seed %llu)\n", module->name, (unsigned long long)seed);
      return 1;
    }
  }
  test_print(1, "ok %s (%llu operations, %llu calls refused, %llu operations failed of that; seeds %llu to %llu)\n",
             module->name, (unsigned long long)(fuzz_counts->operations - before.operations),
             (unsigned long long)(fuzz_counts->refused - before.refused),
             (unsigned long long)(fuzz_counts->failed - before.failed), (unsigned long long)options.seed,
             (unsigned long long)(options.seed + inputs - 1));
  return 0;
}

static int fuzz_all(void) {
  int status = 0;
  size_t count = 0;
  while (fuzz_modules[count] != NULL) count++;
  double seconds = options.module != NULL ? options.seconds : options.seconds / (double)count;
  for (size_t i = 0; i < count; i++) {
    module = options.module != NULL ? module_named(options.module) : fuzz_modules[i];
    status |= fuzz_module(now_s() + seconds);
    if (options.module != NULL) break;
  }
  return status;
}

/* What is spoiled at the end of a list must be found. */
static int self_test(void) {
  int status = 0;
  driver_spoils = true;
  for (size_t i = 0; fuzz_modules[i] != NULL; i++) {
    module = fuzz_modules[i];
    generate(options.seed, 300);
    bool unseen = passes(list, 300, true);
    test_print(1, "%s self_test_of_%s\n", unseen ? "not ok" : "ok", module->name);
    status |= unseen;
  }
  return status;
}

static int list_modules(void) {
  for (size_t i = 0; fuzz_modules[i] != NULL; i++) test_print(1, "%s\n", fuzz_modules[i]->name);
  return 0;
}

static int usage(void) {
  test_print(2,
             "usage: modules [--module NAME] [--seed N] [--steps N] [--seconds N] [--inputs N] [--output FILE] | "
             "modules FILE...\n");
  return 2;
}

int main(int argc, char **argv) {
  int i = 1, status = 0;
  bool self_tests = false;
  for (; i < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
    const char *name = argv[i] + 2, *value = argv[i + 1];
    if (value == NULL) return usage();
    if (strcmp(name, "module") == 0)
      options.module = value;
    else if (strcmp(name, "list") == 0)
      return list_modules();
    else if (strcmp(name, "self-test") == 0)
      self_tests = true;
    else if (strcmp(name, "seed") == 0)
      options.seed = strtoull(value, NULL, 0);
    else if (strcmp(name, "steps") == 0)
      options.steps = strtoull(value, NULL, 0);
    else if (strcmp(name, "inputs") == 0)
      options.inputs = strtoull(value, NULL, 0);
    else if (strcmp(name, "seconds") == 0)
      options.seconds = strtod(value, NULL);
    else if (strcmp(name, "output") == 0)
      driver_output = value;
    else
      return usage();
  }
  if (options.steps < 1 || options.steps > STEPS_MAX) return usage();
  make_room_for_peers(argv);
  start_driver();
  if (self_tests) return self_test();
  if (i == argc) return fuzz_all();
  for (; i < argc; i++) {
    size_t count = read_list(argv[i]);
    bool passed = passes(list, count, false);
    const char *name = strrchr(argv[i], '/');
    test_print(1, "%s %s (%zu steps)\n", passed ? "ok" : "not ok", name != NULL ? name + 1 : argv[i], count);
    status |= !passed;
  }
  return status;
}
