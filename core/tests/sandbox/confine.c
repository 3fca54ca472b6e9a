/* confine: runs a program in a sandbox that it inherits, as those of systemd and of containers are.
 *
 *   confine RULES -- PROGRAM ARGS      RULES: rules.h
 *
 * CONFINE_PRELOAD in the environment becomes the program's LD_PRELOAD: confine itself has none, so that the filter
 * is not yet in force when anything of the preloaded library runs. */
#include "rules.h"

int main(int argc, char **argv) {
  if (argc < 4 || strcmp(argv[2], "--") != 0) {
    test_print(2, "usage: confine RULES -- PROGRAM ARGS\n");
    return 2;
  }
  const char *preload = getenv("CONFINE_PRELOAD");
  if (preload != NULL) setenv("LD_PRELOAD", preload, 1);
  rules_read(argv[1]);
  rules_apply("syscall");
  execv(argv[3], argv + 3);
  return 127;
}
