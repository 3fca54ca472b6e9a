/* recording_path.c: see recording_path.h. */
#define _GNU_SOURCE
#include "recording_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  ENVIRONMENT_BYTES_MAX = 4 << 20,
  PROGRAMS_PER_PROCESS_MAX = 100,
  SUFFIX_BYTES_MAX = 32, /* ".PID.N" */
};

/* The name that the suffixes are added to, absolute; found once, so that a child writes beside its parent even
 * after chdir. */
static char base_path[RECORDING_PATH_BYTES_MAX - SUFFIX_BYTES_MAX];
static int is_default_name;

/* Copies the value of `name` out of the environment that the program was started with. getenv would not do: the
 * loader allocates before libc has set the environment up. Returns 0 if it is not there. */
static int find_in_environment(const char *name, char *value, size_t value_bytes) {
  char *text =
      mmap(NULL, ENVIRONMENT_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (text == MAP_FAILED) return 0;
  int found = 0;
  size_t length = 0, name_length = strlen(name);
  int descriptor = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
  if (descriptor >= 0) {
    ssize_t got;
    while (length < ENVIRONMENT_BYTES_MAX - 1 &&
           (got = read(descriptor, text + length, ENVIRONMENT_BYTES_MAX - 1 - length)) > 0)
      length += (size_t)got;
    close(descriptor);
  }
  for (const char *entry = text; entry < text + length; entry += strlen(entry) + 1) {
    if (strncmp(entry, name, name_length) == 0 && entry[name_length] == '=' &&
        strlen(entry + name_length + 1) < value_bytes) {
      strcpy(value, entry + name_length + 1);
      found = value[0] != '\0';
      break;
    }
  }
  munmap(text, ENVIRONMENT_BYTES_MAX);
  return found;
}

static int find_base_path(void) {
  char name[sizeof base_path];
  if (!find_in_environment("SNUG_RECORD", name, sizeof name)) {
    strcpy(name, "snug-trace");
    is_default_name = 1;
  }
  char directory[sizeof base_path] = "";
  if (name[0] != '/' && !getcwd(directory, sizeof directory)) return 0;
  int length = snprintf(base_path, sizeof base_path, "%s%s%s", directory, name[0] == '/' ? "" : "/", name);
  if (length < 0 || (size_t)length >= sizeof base_path) {
    base_path[0] = '\0';
    errno = ENAMETOOLONG;
    return 0;
  }
  return 1;
}

int recording_path_create(char *path, size_t path_bytes) {
  snprintf(path, path_bytes, "(SNUG_RECORD)");
  if (!base_path[0] && !find_base_path()) return -1;
  int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  for (int attempt = is_default_name ? 1 : 0; attempt <= PROGRAMS_PER_PROCESS_MAX; attempt++) {
    if (attempt == 0)
      snprintf(path, path_bytes, "%s", base_path);
    else if (attempt == 1)
      snprintf(path, path_bytes, "%s.%d", base_path, (int)getpid());
    else
      snprintf(path, path_bytes, "%s.%d.%d", base_path, (int)getpid(), attempt);
    int descriptor = open(path, flags, 0666);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return -1;
}
