/* message.h: why a file or a request was refused, in one line for the user. */
#ifndef SNUG_TRACES_MESSAGE_H
#define SNUG_TRACES_MESSAGE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

enum { MESSAGE_BYTES = 512 };

/* Fills `message` (MESSAGE_BYTES of room) and returns false, so that a check can `return refuse(...)`. */
__attribute__((format(printf, 2, 3))) static inline bool refuse(char *message, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, MESSAGE_BYTES, format, arguments);
  va_end(arguments);
  return false;
}

#endif
