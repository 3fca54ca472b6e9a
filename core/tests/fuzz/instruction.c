#include "instruction.h"

#include "../support/test.h"

struct operation {
  char name;
  unsigned char operands;
  bool slot_first;
};

static const struct operation operations[] = {
    {'m', 2, true},  {'c', 3, true},  {'r', 2, true},  {'R', 3, true},  {'a', 3, true},  {'A', 3, true},
    {'M', 3, true},  {'f', 1, true},  {'s', 1, true},  {'u', 1, true},  {'t', 0, false}, {'p', 0, false},
    {'w', 1, false}, {'k', 1, false}, {'T', 1, false}, {'X', 1, false}, {'x', 2, true},  {'!', 1, true},
};

static const struct operation *operation_of(char name) {
  for (size_t i = 0; i < COUNT_OF(operations); i++)
    if (operations[i].name == name) return &operations[i];
  return NULL;
}

size_t instruction_print(const struct instruction *instruction, char *text, size_t capacity) {
  const struct operation *operation = operation_of(instruction->operation);
  const uint64_t operands[] = {instruction->a, instruction->b, instruction->c};
  size_t length = (size_t)snprintf(text, capacity, "%c", instruction->operation);
  for (unsigned i = 0; i < operation->operands && length < capacity; i++)
    length += (size_t)snprintf(text + length, capacity - length, " %llu", (unsigned long long)operands[i]);
  return length;
}

static bool in_range(const struct instruction *instruction, const struct operation *operation) {
  if (operation->slot_first && instruction->a >= FUZZ_SLOTS) return false;
  switch (instruction->operation) {
    case 'a':
    case 'A':
    case 'M': return instruction->b != 0 && (instruction->b & (instruction->b - 1)) == 0 && instruction->b <= GIB;
    case 'T':
    case 'X': return instruction->a < FUZZ_THREADS;
    default: return true;
  }
}

bool instruction_parse(const char *text, struct instruction *instruction) {
  *instruction = (struct instruction){text[0], 0, 0, 0};
  const struct operation *operation = operation_of(text[0]);
  if (operation == NULL) return false;
  uint64_t *operands[] = {&instruction->a, &instruction->b, &instruction->c};
  const char *cursor = text + 1;
  for (unsigned i = 0; i < operation->operands; i++) {
    char *end;
    *operands[i] = strtoull(cursor, &end, 0);
    if (end == cursor) return false;
    cursor = end;
  }
  while (*cursor == ' ' || *cursor == '\n' || *cursor == '\r') cursor++;
  return *cursor == 0 && in_range(instruction, operation);
}

size_t instructions_read(const char *path, struct instruction *list, size_t capacity) {
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    test_print(2, "cannot read %s: %s\n", path, strerror(errno));
    exit(2);
  }
  char line[256];
  size_t count = 0, line_number = 0;
  while (fgets(line, sizeof line, file) != NULL) {
    line_number++;
    if (line[0] == '#' || line[0] == '\n') continue;
    if (count == capacity || !instruction_parse(line, &list[count++])) {
      test_print(2, "%s:%zu: no instruction, or a number out of range: %s", path, line_number, line);
      exit(2);
    }
  }
  fclose(file);
  return count;
}

/* Sizes at random, but with weight on boundaries: 2^k and a step to either side. */
static uint64_t odd_size(uint64_t *random, unsigned bits) {
  uint64_t power = (uint64_t)1 << random_below(random, bits);
  switch (random_below(random, 6)) {
    case 0: return power;
    case 1: return power - 1;
    case 2: return power + 1;
    case 3: return power + 16;
    default: return power + random_below(random, power);
  }
}

static uint64_t generated_size(struct instruction_source *source) {
  uint64_t kind = random_below(&source->random, 100);
  if (kind < source->small_percent) return source->favourite_bytes + random_below(&source->random, 16);
  if (kind < 90) return odd_size(&source->random, 13);
  if (kind < 99) return odd_size(&source->random, 19);
  return odd_size(&source->random, 23);
}

/* In one phase few sizes and few slots are used, in the next others. */
static void begin_phase(struct instruction_source *source) {
  uint64_t *random = &source->random;
  source->phase_left = 1 + (unsigned)random_below(random, 400);
  source->slots = random_below(random, 3) == 0 ? 8 : FUZZ_SLOTS;
  source->small_percent = (unsigned)random_below(random, 90);
  source->favourite_bytes = odd_size(random, 15);
}

struct instruction instruction_generate(struct instruction_source *source) {
  if (source->phase_left == 0) begin_phase(source);
  source->phase_left--;
  uint64_t *random = &source->random;
  struct instruction made = {'f', random_below(random, source->slots), 0, 0};
  uint64_t kind = random_below(random, 1000);
  if (kind < 300) {
    made.operation = 'm';
    made.b = generated_size(source);
  } else if (kind < 550) {
    made.operation = random_below(random, 4) == 0 ? 's' : 'f';
  } else if (kind < 750) {
    made.operation = 'r';
    made.b = random_below(random, 50) == 0 ? 0 : generated_size(source);
  } else if (kind < 830) {
    made.operation = random_below(random, 3) == 0 ? 'R' : 'c';
    made.b = 1 + random_below(random, 8);
    made.c = generated_size(source) / made.b;
  } else if (kind < 910) {
    made.operation = "aAM"[random_below(random, 3)];
    made.b = (uint64_t)1 << random_below(random, random_below(random, 30) == 0 ? 25 : 14);
    if (made.b < sizeof(void *)) made.b = sizeof(void *);
    made.c = generated_size(source);
  } else if (kind < 940) {
    made.operation = 'u';
  } else if (kind < 985) {
    made.operation = random_below(random, 6) == 0 ? 'X' : 'T';
    made.a = random_below(random, FUZZ_THREADS);
  } else if (kind < 990) {
    made.operation = 'x';
    made.b = UINT64_MAX - odd_size(random, 63);
  } else if (kind < 996) {
    made.operation = "tp"[random_below(random, 2)];
  } else if (kind < 999) {
    made.operation = 'k';
    made.a = random_below(random, 100);
  } else {
    made.operation = 'w';
    made.a = random_below(random, 20) == 0 ? 350 : random_below(random, 5);
  }
  return made;
}

/* Eight bytes make one instruction: operation, slot, and numbers whose sizes spread over all magnitudes. */
size_t instruction_decode(const uint8_t *bytes, size_t length, struct instruction *instruction) {
  static const char choice[] = "mmmmmmffffffrrrrccRaAMssuutpTTXx";
  if (length < 8) return 0;
  struct instruction made = {choice[bytes[0] % (sizeof choice - 1)], bytes[1], 0, 0};
  uint64_t mantissa = (uint64_t)bytes[2] << 8 | bytes[3];
  uint64_t size = mantissa >> 12 == 0 ? mantissa : mantissa << bytes[4] % 9; /* up to 16 MiB */
  switch (made.operation) {
    case 'c':
    case 'R':
      made.b = 1 + bytes[5] % 16;
      made.c = size / made.b;
      break;
    case 'a':
    case 'A':
    case 'M':
      made.b = sizeof(void *) << bytes[5] % 20;
      made.c = size;
      break;
    case 'T':
    case 'X': made.a = bytes[1] % FUZZ_THREADS; break;
    case 'x': made.b = UINT64_MAX - size; break;
    default: made.b = size;
  }
  *instruction = made;
  return 8;
}
