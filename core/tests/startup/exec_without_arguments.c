/* exec_without_arguments PROGRAM PRELOAD: runs it with an environment that holds LD_PRELOAD alone, and with argc 0
 * where the kernel allows it (since 5.18 it passes one empty string). A library must not look at argv[0]. */
#include "../support/test.h"

int main(int argc, char **argv) {
  REQUIRE(argc == 3);
  char variable[4096];
  snprintf(variable, sizeof variable, "LD_PRELOAD=%s", argv[2]);
  char *const no_arguments[] = {NULL};
  char *const environment[] = {variable, NULL};
  execve(argv[1], no_arguments, environment);
  test_print(2, "cannot run %s: %s\n", argv[1], strerror(errno));
  return 127;
}
