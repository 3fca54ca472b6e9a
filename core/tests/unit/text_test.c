/* text_test.c: short texts against snprintf, and cut where they do not fit. */
#include "../../src/text.h"
#include "unit.h"

static char buffer[64];

TEST(numbers_as_snprintf_writes_them) {
  uint64_t random = 1;
  const uint64_t ends[] = {0, 1, 9, 10, 99, 100, UINT32_MAX, UINT64_MAX, UINT64_MAX - 1};
  for (int i = 0; i < 10000; i++) {
    uint64_t number = i < (int)COUNT_OF(ends) ? ends[i] : random_next(&random) >> random_below(&random, 64);
    char expected[64];
    snprintf(expected, sizeof expected, "%llu", (unsigned long long)number);
    struct text text = text_in(buffer, sizeof buffer);
    text_number(&text, number);
    CHECK_THAT(strcmp(buffer, expected) == 0 && text.length_bytes == strlen(expected), "%s for %s", buffer, expected);
  }
}

TEST(addresses_in_hexadecimal_without_leading_zeros) {
  uint64_t random = 2;
  for (int i = 0; i < 10000; i++) {
    uintptr_t address = i == 0   ? 0
                        : i == 1 ? UINTPTR_MAX
                                 : (uintptr_t)(random_next(&random) >> random_below(&random, 64));
    char expected[64];
    snprintf(expected, sizeof expected, "0x%llx", (unsigned long long)address);
    struct text text = text_in(buffer, sizeof buffer);
    text_address(&text, (const void *)address);
    CHECK_THAT(strcmp(buffer, expected) == 0, "%s for %s", buffer, expected);
  }
}

TEST(what_does_not_fit_is_cut_and_terminated) {
  for (size_t capacity = 1; capacity <= 24; capacity++) {
    memset(buffer, '#', sizeof buffer);
    struct text text = text_in(buffer, capacity);
    text_string(&text, "snug: ");
    text_number(&text, 1234567890);
    text_char(&text, '!');
    size_t expected = strlen("snug: 1234567890!") < capacity - 1 ? strlen("snug: 1234567890!") : capacity - 1;
    CHECK_THAT(strncmp(buffer, "snug: 1234567890!", expected) == 0 && buffer[expected] == '\0', "capacity %zu",
               capacity);
    CHECK(text.length_bytes == expected && text.length_bytes < capacity);
    for (size_t i = capacity; i < sizeof buffer; i++)
      CHECK_THAT(buffer[i] == '#', "capacity %zu, byte %zu", capacity, i);
  }
}
