/* Unit tests of memory.c: against loops over single bytes, at all short lengths, at all alignments, and overlapping. */
#include "../../src/sys.c"
#include "above_sys.h"
#include "unit.h"

enum { ROOM = 1024, LONGEST = 300, ALIGNMENTS = 17 };

static unsigned char expected[ROOM], found[ROOM];

static void number_both(void) {
  for (size_t i = 0; i < ROOM; i++) expected[i] = found[i] = (unsigned char)(i * 7 + i / 251);
}

static bool both_are_equal(void) {
  for (size_t i = 0; i < ROOM; i++) {
    if (expected[i] != found[i]) return false;
  }
  return true;
}

TEST(memset_fills_its_bytes_and_no_others) {
  size_t wrong = 0;
  for (size_t length = 0; length <= LONGEST; length++) {
    for (size_t at = 0; at < ALIGNMENTS; at++) {
      number_both();
      for (size_t i = 0; i < length; i++) expected[at + i] = 0xa5;
      wrong += memset(found + at, 0x7a5, length) != found + at || !both_are_equal();
    }
  }
  CHECK_THAT(wrong == 0, "%zu of its calls were wrong", wrong);
}

static void move_by_bytes(unsigned char *to, const unsigned char *from, size_t length) {
  static unsigned char between[ROOM];
  for (size_t i = 0; i < length; i++) between[i] = from[i];
  for (size_t i = 0; i < length; i++) to[i] = between[i];
}

TEST(memmove_copies_whatever_overlaps) {
  size_t wrong = 0;
  for (size_t length = 0; length <= LONGEST; length++) {
    for (size_t from = 200; from <= 200 + ALIGNMENTS; from += 4) {
      for (size_t to = from - 150; to <= from + 150; to += length < 70 ? 1 : 7) {
        number_both();
        move_by_bytes(expected + to, expected + from, length);
        wrong += memmove(found + to, found + from, length) != found + to || !both_are_equal();
      }
    }
  }
  CHECK_THAT(wrong == 0, "%zu of its calls were wrong", wrong);
}

TEST(memcpy_copies_its_bytes_and_no_others) {
  size_t wrong = 0;
  for (size_t length = 0; length <= LONGEST; length++) {
    for (size_t at = 0; at < ALIGNMENTS; at++) {
      number_both();
      move_by_bytes(expected + 600 + at, expected + 2 * at, length);
      wrong += memcpy(found + 600 + at, found + 2 * at, length) != found + 600 + at || !both_are_equal();
    }
  }
  CHECK_THAT(wrong == 0, "%zu of its calls were wrong", wrong);
}

TEST(memcmp_compares_bytes_without_a_sign) {
  size_t wrong = 0;
  for (size_t length = 1; length <= LONGEST; length++) {
    number_both();
    wrong += memcmp(expected, found, length) != 0;
    for (size_t at = 0; at < length; at += 1 + at / 8) {
      expected[at] = 0x80;
      found[at] = 0x7f;
      wrong += memcmp(expected, found, length) <= 0 || memcmp(found, expected, length) >= 0 ||
               memcmp(expected, found, at) != 0;
      expected[at] = found[at];
    }
  }
  CHECK_THAT(wrong == 0, "%zu lengths were wrong", wrong);
}

TEST(strings) {
  CHECK(strlen("") == 0 && strlen("four") == 4);
  CHECK(strcmp("a", "a") == 0 && strcmp("a", "ab") < 0 && strcmp("b", "ab") > 0 && strcmp("\x80", "\x7f") > 0);
  CHECK(strncmp("abc", "abd", 2) == 0 && strncmp("abc", "abd", 3) < 0 && strncmp("a", "a\0b", 3) == 0 &&
        strncmp("a", "b", 0) == 0);
  const char *text = "name:value";
  CHECK(strchr(text, ':') == text + 4 && strchr(text, '\0') == text + 10 && strchr(text, '!') == NULL);
  CHECK(strcspn(text, ",:") == 4 && strcspn(text, "!") == 10 && strcspn("", "!") == 0);
  CHECK(strstr(text, "val") == text + 5 && strstr(text, "") == text && strstr(text, "values") == NULL);
}
