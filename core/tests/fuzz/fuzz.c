/* fuzz: random instruction lists against malloc, and the smallest list that still fails.
 *
 *   fuzz [--seed N] [--steps N] [--seconds N] [--output FILE]    lists from successive seeds until the time is over
 *   fuzz FILE...                                                 runs the lists in the files, in this process
 *   fuzz --self-test                                             breaks a block on purpose and must find it
 *
 * Each list runs in a process of its own. When it fails or hangs, instructions are left out and numbers made smaller
 * for as long as it still fails; the result is written to the output file and printed.
 */
#include "model.h"

#include "../support/test.h"

enum { HANG_S = 60, CHECK_INTERVAL = 16, SHRINK_S = 120 };

static struct instruction list[INSTRUCTIONS_MAX], candidate[INSTRUCTIONS_MAX];

static struct {
  uint64_t seed;
  size_t steps;
  double seconds;
  const char *output;
} options = {0, 3000, 10, "fuzz-failure.txt"};

/* Runs a list in a forked process. Returns true if it passed. Quiet runs keep their message to themselves. */
static bool passes(const struct instruction *instructions, size_t count, size_t check_interval, bool quiet) {
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (quiet) {
      int nowhere = open("/dev/null", O_WRONLY);
      if (nowhere >= 0) dup2(nowhere, 2);
    }
    alarm(HANG_S);
    model_run(instructions, count, check_interval);
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) REQUIRE(errno == EINTR);
  if (!quiet && WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT)
    test_print(2, "fuzz: killed by signal %d%s\n", WTERMSIG(status), WTERMSIG(status) == SIGALRM ? ": it hung" : "");
  return status == 0;
}

static size_t generate(uint64_t seed, size_t count) {
  struct instruction_source source = {.random = seed};
  for (size_t i = 0; i < count; i++) list[i] = instruction_generate(&source);
  return count;
}

/* Leaves out pieces, from halves down to single instructions, as long as the rest still fails. */
static size_t shrink_by_leaving_out(size_t count, double end_s) {
  for (size_t piece = count / 2; piece > 0 && now_s() < end_s; piece /= 2) {
    for (size_t from = 0; from < count && now_s() < end_s;) {
      size_t left_out = from + piece <= count ? piece : count - from;
      memcpy(candidate, list, from * sizeof list[0]);
      memcpy(candidate + from, list + from + left_out, (count - from - left_out) * sizeof list[0]);
      if (passes(candidate, count - left_out, 1, true)) {
        from += piece;
      } else {
        count -= left_out;
        memcpy(list, candidate, count * sizeof list[0]);
      }
    }
  }
  return count;
}

/* Makes each number as small as halving allows. Alignments stay powers of two that way. */
static void shrink_numbers(size_t count, double end_s) {
  for (size_t i = 0; i < count; i++) {
    for (int operand = 0; operand < 3; operand++) {
      while (now_s() < end_s) {
        struct instruction before = list[i];
        uint64_t *numbers[] = {&list[i].a, &list[i].b, &list[i].c};
        if (*numbers[operand] <= 1) break;
        *numbers[operand] /= 2;
        char line[128];
        struct instruction again;
        instruction_print(&list[i], line, sizeof line);
        if (!instruction_parse(line, &again) || passes(list, count, 1, true)) {
          list[i] = before;
          break;
        }
      }
    }
  }
}

static void write_list(size_t count, uint64_t seed) {
  FILE *file = fopen(options.output, "w");
  if (file == NULL) {
    test_print(2, "fuzz: cannot write %s: %s\n", options.output, strerror(errno));
    return;
  }
  fprintf(file, "# seed %llu, %zu steps, made smaller\n", (unsigned long long)seed, options.steps);
  for (size_t i = 0; i < count; i++) {
    char line[128];
    instruction_print(&list[i], line, sizeof line);
    fprintf(file, "%s\n", line);
    if (i < 40) test_print(2, "  %s\n", line);
  }
  fclose(file);
}

static size_t report(uint64_t seed, size_t count) {
  test_print(2, "fuzz: the list of seed %llu (%zu steps) fails; making it smaller\n", (unsigned long long)seed, count);
  double end_s = now_s() + SHRINK_S;
  if (passes(list, count, 1, true)) {
    test_print(2, "fuzz: but it passes when checked after every step, or now and then: kept whole\n");
  } else {
    count = shrink_by_leaving_out(count, end_s);
    shrink_numbers(count, end_s);
    count = shrink_by_leaving_out(count, end_s);
    passes(list, count, 1, false); /* for its message */
  }
  write_list(count, seed);
  test_print(2, "fuzz: %zu instructions in %s; again: fuzz %s, or fuzz --seed %llu --steps %zu\n", count,
             options.output, options.output, (unsigned long long)seed, options.steps);
  return count;
}

static int fuzz(void) {
  double end_s = now_s() + options.seconds;
  uint64_t seed = options.seed, lists = 0;
  do {
    size_t count = generate(seed, options.steps);
    if (!passes(list, count, CHECK_INTERVAL, false)) {
      report(seed, count);
      test_print(1, "not ok fuzz (seed %llu)\n", (unsigned long long)seed);
      return 1;
    }
    seed++;
    lists++;
  } while (now_s() < end_s);
  test_print(1, "ok fuzz (%llu lists of %zu steps, seeds %llu to %llu)\n", (unsigned long long)lists, options.steps,
             (unsigned long long)options.seed, (unsigned long long)seed - 1);
  return 0;
}

/* A spoiled block must be found, and the list shrink to its allocation and its spoiling. */
static int self_test(void) {
  size_t count = generate(4711, 400);
  list[200] = (struct instruction){'m', 17, 1000, 0};
  list[201] = (struct instruction){'!', 17, 0, 0};
  options.output = "/dev/null";
  if (passes(list, count, CHECK_INTERVAL, true)) {
    test_print(1, "not ok self_test: a spoiled block went unnoticed\n");
    return 1;
  }
  size_t left = report(4711, count);
  bool small = left == 2 && list[0].operation == 'm' && list[1].operation == '!';
  test_print(1, "%s self_test: the spoiled block was found, %zu instructions left\n", small ? "ok" : "not ok", left);
  return !small;
}

static int usage(void) {
  test_print(2, "usage: fuzz [--seed N] [--steps N] [--seconds N] [--output FILE] | fuzz FILE... | fuzz --self-test\n");
  return 2;
}

int main(int argc, char **argv) {
  options.seed = (uint64_t)(now_s() * 1e6);
  int i = 1;
  for (; i < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
    if (strcmp(argv[i], "--self-test") == 0) return self_test();
    if (i + 1 == argc) return usage();
    if (strcmp(argv[i], "--seed") == 0)
      options.seed = strtoull(argv[i + 1], NULL, 0);
    else if (strcmp(argv[i], "--steps") == 0)
      options.steps = strtoul(argv[i + 1], NULL, 0);
    else if (strcmp(argv[i], "--seconds") == 0)
      options.seconds = strtod(argv[i + 1], NULL);
    else if (strcmp(argv[i], "--output") == 0)
      options.output = argv[i + 1];
    else
      return usage();
  }
  if (options.steps < 1 || options.steps > INSTRUCTIONS_MAX) return usage();
  if (i == argc) return fuzz();
  for (; i < argc; i++) {
    size_t count = instructions_read(argv[i], list, INSTRUCTIONS_MAX);
    model_run(list, count, 1);
    const char *name = strrchr(argv[i], '/');
    test_print(1, "ok %s (%zu instructions)\n", name ? name + 1 : argv[i], count);
  }
  return 0;
}
