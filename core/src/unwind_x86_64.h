/* unwind_x86_64.h: one step of unwind.c on x86-64, by the call frame information of DWARF 5, section 6.4, as .eh_frame
 * has it (Linux Standard Base, Exception Frames). What it does not know ends the walk. */
#ifndef SNUG_UNWIND_X86_64_H
#define SNUG_UNWIND_X86_64_H

#include "unwind_memory.h"

enum { REGISTER_FP = 6, REGISTER_SP = 7, REGISTER_PC = 16, REGISTERS = 17, EXPRESSION_DEPTH = 16, REMEMBERED = 4 };

struct machine {
  uint64_t pc, sp;
  uint64_t registers[REGISTERS];
  uint32_t known; /* bit n: of register n the value is known */
};

/* Where a program's addresses end, with 57 bits, too: the kernel gives more only to programs that ask for it, by a
 * hint to mmap(2). */
#define ADDRESSES_END (UINT64_C(1) << 47)

#define KEPT_BY_CALLS (1u << 3 | 1u << REGISTER_FP | 1u << REGISTER_SP | 15u << 12)

static ALWAYS_INLINE struct machine machine_here(void) {
  struct machine machine = {.known = KEPT_BY_CALLS};
  uint64_t *r = machine.registers;
  __asm__ volatile("movq %%rbx, %0\n\tmovq %%rbp, %1\n\tmovq %%rsp, %2" : "=m"(r[3]), "=m"(r[6]), "=m"(r[7]));
  __asm__ volatile("movq %%r12, %0\n\tmovq %%r13, %1" : "=m"(r[12]), "=m"(r[13]));
  __asm__ volatile("movq %%r14, %0\n\tmovq %%r15, %1" : "=m"(r[14]), "=m"(r[15]));
  __asm__ volatile("leaq 0(%%rip), %0" : "=r"(machine.pc));
  machine.sp = r[REGISTER_SP];
  return machine;
}

/* Where a signal interrupted, by its registers as the kernel keeps them. */
static inline struct machine machine_interrupted(const uint64_t *saved) {
  static const uint8_t place_of[REGISTERS] = {13, 12, 14, 11, 9, 8, 10, 15, 0,
                                              1,  2,  3,  4,  5, 6, 7,  16}; /* REG_RAX ... */
  struct machine machine = {.known = (1u << REGISTER_PC) - 1};
  for (int i = 0; i < REGISTERS; i++) machine.registers[i] = saved[place_of[i]];
  machine.pc = machine.registers[REGISTER_PC];
  machine.sp = machine.registers[REGISTER_SP];
  return machine;
}

/* ---- reading tables ---- */

struct reader {
  const uint8_t *at, *end;
  bool bad;
};

static inline uint64_t take_bytes(struct reader *reader, size_t count) {
  uint64_t value = 0;
  if ((size_t)(reader->end - reader->at) < count) return reader->bad = true, 0;
  for (size_t i = 0; i < count; i++) value |= (uint64_t)reader->at[i] << 8 * i;
  reader->at += count;
  return value;
}

static inline int64_t take_signed(struct reader *reader, size_t count) {
  uint64_t value = take_bytes(reader, count);
  return (int64_t)(value << (64 - 8 * count)) >> (64 - 8 * count);
}

static inline uint64_t take_leb(struct reader *reader, bool is_signed) {
  uint64_t value = 0, byte;
  unsigned shift = 0;
  do {
    byte = take_bytes(reader, 1);
    if (shift < 64) value |= (byte & 0x7f) << shift;
    shift += 7;
  } while ((byte & 0x80) != 0);
  if (is_signed && shift < 64 && (byte & 0x40) != 0) value |= ~UINT64_C(0) << shift;
  return value;
}

static inline uint64_t take_uleb(struct reader *reader) { return take_leb(reader, false); }
static inline int64_t take_sleb(struct reader *reader) { return (int64_t)take_leb(reader, true); }

/* A pointer as DW_EH_PE_ values encode it. */
static inline uint64_t take_pointer(struct reader *reader, uint8_t encoding) {
  uint64_t place = (uintptr_t)reader->at, value;
  switch (encoding & 0x0f) {
    case 0x00:
    case 0x04:
    case 0x0c: value = take_bytes(reader, 8); break;
    case 0x02: value = take_bytes(reader, 2); break;
    case 0x03: value = take_bytes(reader, 4); break;
    case 0x0a: value = (uint64_t)take_signed(reader, 2); break;
    case 0x0b: value = (uint64_t)take_signed(reader, 4); break;
    default: return reader->bad = true, 0;
  }
  switch (encoding & 0xf0) {
    case 0x00: return value;
    case 0x10: return value + place;
    default: return reader->bad = true, 0;
  }
}

/* ---- rules: where a frame keeps what its caller had in a register ---- */

enum rule_kind { RULE_SAME, RULE_UNKNOWN, RULE_AT, RULE_IS, RULE_REGISTER, RULE_AT_EXPRESSION, RULE_IS_EXPRESSION };

struct rule {
  int64_t value; /* offset to the frame's address, number of a register, or address of an expression */
  uint8_t kind;
};

struct rules {
  struct rule of[REGISTERS];
  uint64_t frame_register;
  int64_t frame_offset;
  const uint8_t *frame_expression; /* with its length in front; NULL: register and offset */
};

struct description {
  struct reader initial, own; /* instructions */
  uint64_t start, code_unit;
  int64_t data_unit;
  bool is_signal;
};

static inline bool parse_common(const uint8_t *entry, struct description *description, uint8_t *encoding,
                                bool *augmented) {
  struct reader reader = {entry, entry + 4, false};
  uint64_t length = take_bytes(&reader, 4);
  if (length == 0 || length >= 0xfffffff0) return false;
  reader.end = reader.at + length;
  if (take_bytes(&reader, 4) != 0) return false;
  uint64_t version = take_bytes(&reader, 1);
  const char *letters = (const char *)reader.at;
  while (take_bytes(&reader, 1) != 0 && !reader.bad) {
  }
  description->code_unit = take_uleb(&reader);
  description->data_unit = take_sleb(&reader);
  uint64_t return_register = version == 1 ? take_bytes(&reader, 1) : take_uleb(&reader);
  *encoding = 0;
  *augmented = letters[0] == 'z';
  if ((version != 1 && version != 3) || return_register != REGISTER_PC) return false;
  if (!*augmented) return letters[0] == '\0' && (description->initial = reader, !reader.bad);
  uint64_t bytes = take_uleb(&reader);
  const uint8_t *instructions = reader.at + bytes;
  for (const char *letter = letters + 1; *letter != '\0'; letter++) {
    if (*letter == 'R') *encoding = (uint8_t)take_bytes(&reader, 1);
    if (*letter == 'L') take_bytes(&reader, 1);
    if (*letter == 'P') take_pointer(&reader, (uint8_t)(take_bytes(&reader, 1) & 0x7f));
    if (*letter == 'S') description->is_signal = true;
  }
  if (reader.bad || instructions > reader.end) return false;
  reader.at = instructions;
  description->initial = reader;
  return true;
}

/* The description of the function that holds pc: a search in the sorted table of the header, then the entry itself. */
static inline bool find_description(uint64_t pc, struct description *description) {
  const uint8_t *header = unwind_tables(pc);
  if (header == NULL || header[0] != 1 || header[2] != 0x03 || header[3] != 0x3b) return false;
  struct reader head = {header + 4, header + 16, false};
  take_pointer(&head, header[1]);
  uint64_t count = take_bytes(&head, 4), low = 0, high = count;
  const int32_t *rows = (const int32_t *)(const void *)head.at;
  if (head.bad || count == 0) return false;
  while (low < high) {
    uint64_t middle = (low + high) / 2;
    if ((uintptr_t)header + (uint64_t)(int64_t)rows[2 * middle] <= pc) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0) return false;
  const uint8_t *entry = header + rows[2 * (low - 1) + 1];
  struct reader reader = {entry, entry + 4, false};
  uint64_t length = take_bytes(&reader, 4);
  if (length == 0 || length >= 0xfffffff0) return false;
  reader.end = reader.at + length;
  const uint8_t *common = reader.at;
  common -= take_bytes(&reader, 4);
  uint8_t encoding;
  bool augmented;
  if (common == reader.at - 4 || !parse_common(common, description, &encoding, &augmented)) return false;
  description->start = take_pointer(&reader, encoding);
  uint64_t bytes = take_pointer(&reader, encoding & 0x0f);
  if (augmented) {
    uint64_t skip = take_uleb(&reader);
    reader.at += skip;
  }
  description->own = reader;
  return !reader.bad && reader.at <= reader.end && pc - description->start < bytes;
}

static inline void set_rule(struct rules *rules, uint64_t number, enum rule_kind kind, int64_t value) {
  if (number < REGISTERS) rules->of[number] = (struct rule){value, (uint8_t)kind};
}

static inline const uint8_t *take_expression(struct reader *reader) {
  const uint8_t *start = reader->at;
  uint64_t bytes = take_uleb(reader);
  if ((uint64_t)(reader->end - reader->at) < bytes) return reader->bad = true, start;
  reader->at += bytes;
  return start;
}

/* One instruction with its operands, those of the frame's address. False: another. */
static inline bool follow_frame_instruction(uint8_t code, struct reader *reader, int64_t unit, struct rules *rules) {
  switch (code) {
    case 0x0c: /* def_cfa */
      rules->frame_register = take_uleb(reader);
      rules->frame_offset = (int64_t)take_uleb(reader);
      break;
    case 0x12: /* def_cfa_sf */
      rules->frame_register = take_uleb(reader);
      rules->frame_offset = take_sleb(reader) * unit;
      break;
    case 0x0d: rules->frame_register = take_uleb(reader); break;
    case 0x0e: rules->frame_offset = (int64_t)take_uleb(reader); break;
    case 0x13: rules->frame_offset = take_sleb(reader) * unit; break;
    case 0x0f: rules->frame_expression = take_expression(reader); return true;
    default: return false;
  }
  rules->frame_expression = NULL;
  return true;
}

/* The same of those of one register. */
static inline bool follow_register_instruction(uint8_t code, struct reader *reader, int64_t unit, struct rules *rules,
                                               const struct rules *initial) {
  if (code != 0x05 && code != 0x06 && code != 0x07 && code != 0x08 && code != 0x09 && code != 0x10 && code != 0x11 &&
      code != 0x14 && code != 0x15 && code != 0x16)
    return false;
  uint64_t number = take_uleb(reader);
  switch (code) {
    case 0x05: set_rule(rules, number, RULE_AT, (int64_t)take_uleb(reader) * unit); break;
    case 0x06:
      if (number < REGISTERS) rules->of[number] = initial->of[number];
      break;
    case 0x07: set_rule(rules, number, RULE_UNKNOWN, 0); break;
    case 0x08: set_rule(rules, number, RULE_SAME, 0); break;
    case 0x09: set_rule(rules, number, RULE_REGISTER, (int64_t)take_uleb(reader)); break;
    case 0x10: set_rule(rules, number, RULE_AT_EXPRESSION, (int64_t)(uintptr_t)take_expression(reader)); break;
    case 0x11: set_rule(rules, number, RULE_AT, take_sleb(reader) * unit); break;
    case 0x14: set_rule(rules, number, RULE_IS, (int64_t)take_uleb(reader) * unit); break;
    case 0x15: set_rule(rules, number, RULE_IS, take_sleb(reader) * unit); break;
    default: set_rule(rules, number, RULE_IS_EXPRESSION, (int64_t)(uintptr_t)take_expression(reader)); break;
  }
  return true;
}

/* Follows instructions as far as they hold for an offset into the function. */
static inline bool follow_all(struct reader reader, const struct description *description, uint64_t offset,
                              struct rules *rules) {
  struct rules initial = *rules, remembered[REMEMBERED];
  uint64_t at = 0;
  size_t depth = 0;
  while (reader.at < reader.end && !reader.bad) {
    uint8_t code = (uint8_t)take_bytes(&reader, 1), low = code & 0x3f;
    uint64_t advance = 0;
    switch (code & 0xc0) {
      case 0x40: advance = low; break;
      case 0x80: set_rule(rules, low, RULE_AT, (int64_t)take_uleb(&reader) * description->data_unit); continue;
      case 0xc0:
        if (low < REGISTERS) rules->of[low] = initial.of[low];
        continue;
      default: break;
    }
    if ((code & 0xc0) == 0) {
      if (code == 0x00) continue;
      if (follow_frame_instruction(code, &reader, description->data_unit, rules)) continue;
      if (follow_register_instruction(code, &reader, description->data_unit, rules, &initial)) continue;
      if (code == 0x2e) { /* size of arguments on the stack */
        take_uleb(&reader);
        continue;
      }
      if (code == 0x0a && depth < REMEMBERED) {
        remembered[depth++] = *rules;
        continue;
      }
      if (code == 0x0b && depth > 0) {
        *rules = remembered[--depth];
        continue;
      }
      if (code < 0x02 || code > 0x04) return false;
      advance = take_bytes(&reader, (size_t)1 << (code - 2));
    }
    at += advance * description->code_unit;
    if (at > offset) return true;
  }
  return !reader.bad;
}

/* ---- expressions ---- */

struct stack_machine {
  uint64_t values[EXPRESSION_DEPTH];
  size_t depth;
  bool bad;
};

static inline void push_value(struct stack_machine *stack, uint64_t value) {
  if (stack->depth == EXPRESSION_DEPTH) {
    stack->bad = true;
  } else {
    stack->values[stack->depth++] = value;
  }
}

static inline uint64_t pop_value(struct stack_machine *stack) {
  if (stack->depth == 0) return stack->bad = true, 0;
  return stack->values[--stack->depth];
}

/* Operations with two operands. */
static inline bool operate(uint8_t code, struct stack_machine *stack) {
  if (code != 0x1a && code != 0x1c && code != 0x21 && code != 0x22 && code != 0x24 && code != 0x25 &&
      (code < 0x29 || code > 0x2e))
    return false;
  uint64_t b = pop_value(stack), a = pop_value(stack);
  int64_t sa = (int64_t)a, sb = (int64_t)b;
  switch (code) {
    case 0x1a: push_value(stack, a & b); break;
    case 0x1c: push_value(stack, a - b); break;
    case 0x21: push_value(stack, a | b); break;
    case 0x22: push_value(stack, a + b); break;
    case 0x24: push_value(stack, b < 64 ? a << b : 0); break;
    case 0x25: push_value(stack, b < 64 ? a >> b : 0); break;
    case 0x29: push_value(stack, sa == sb); break;
    case 0x2a: push_value(stack, sa >= sb); break;
    case 0x2b: push_value(stack, sa > sb); break;
    case 0x2c: push_value(stack, sa <= sb); break;
    case 0x2d: push_value(stack, sa < sb); break;
    default: push_value(stack, sa != sb); break;
  }
  return true;
}

/* The value of an expression, which begins with its length; start: what lies on its stack at first. */
static inline bool evaluate(const uint8_t *expression, const uint64_t *start, const struct machine *machine,
                            struct stack_memory *memory, uint64_t *result) {
  struct reader reader = {expression, expression + 10, false};
  uint64_t bytes = take_uleb(&reader);
  reader.end = reader.at + bytes;
  struct stack_machine stack = {.depth = 0};
  if (start != NULL) push_value(&stack, *start);
  while (reader.at < reader.end && !reader.bad && !stack.bad) {
    uint8_t code = (uint8_t)take_bytes(&reader, 1);
    if (code >= 0x30 && code <= 0x4f) {
      push_value(&stack, code - 0x30u);
    } else if (code >= 0x70 && code <= 0x8f) {
      int64_t offset = take_sleb(&reader);
      unsigned number = code - 0x70u;
      if (number != REGISTER_PC && (number >= REGISTERS || (machine->known >> number & 1) == 0)) return false;
      push_value(&stack, (number == REGISTER_PC ? machine->pc : machine->registers[number]) + (uint64_t)offset);
    } else if (code == 0x06) {
      uint64_t word;
      if (!read_word(memory, pop_value(&stack), &word)) return false;
      push_value(&stack, word);
    } else if (code == 0x08 || code == 0x0a || code == 0x0c) {
      push_value(&stack, take_bytes(&reader, (size_t)1 << (code - 0x08) / 2));
    } else if (code == 0x09 || code == 0x0b || code == 0x0d) {
      push_value(&stack, (uint64_t)take_signed(&reader, (size_t)1 << (code - 0x09) / 2));
    } else if (code == 0x23) {
      push_value(&stack, pop_value(&stack) + take_uleb(&reader));
    } else if (code != 0x96 && !operate(code, &stack)) {
      return false;
    }
  }
  *result = pop_value(&stack);
  return !reader.bad && !stack.bad;
}

/* ---- one step ---- */

/* What the caller had in a register. False: not known. */
static inline bool restore(const struct rule *rule, unsigned number, uint64_t frame, const struct machine *machine,
                           struct stack_memory *memory, uint64_t *value) {
  const uint8_t *expression = (const uint8_t *)(uintptr_t)rule->value;
  uint64_t address;
  switch (rule->kind) {
    case RULE_SAME: return *value = machine->registers[number], machine->known >> number & 1;
    case RULE_AT: return read_word(memory, frame + (uint64_t)rule->value, value);
    case RULE_IS: return *value = frame + (uint64_t)rule->value, true;
    case RULE_REGISTER:
      if (rule->value >= REGISTERS) return false;
      return *value = machine->registers[rule->value], machine->known >> rule->value & 1;
    case RULE_AT_EXPRESSION:
      return evaluate(expression, &frame, machine, memory, &address) && read_word(memory, address, value);
    case RULE_IS_EXPRESSION: return evaluate(expression, &frame, machine, memory, value);
    default: return false;
  }
}

/* By the tables. *has_tables: there are some for this place. A return address that is unknown is the outermost's: 0. */
static inline bool step_by_tables(struct machine *machine, struct stack_memory *memory, bool *is_signal,
                                  bool *has_tables) {
  uint64_t pc = *is_signal || machine->pc == 0 ? machine->pc : machine->pc - 1, frame;
  struct description description = {.is_signal = false};
  struct rules rules = {.frame_register = REGISTERS};
  *has_tables = find_description(pc, &description);
  if (!*has_tables) return false;
  for (unsigned i = 0; i < REGISTERS; i++) rules.of[i].kind = i == REGISTER_PC ? RULE_UNKNOWN : RULE_SAME;
  if (!follow_all(description.initial, &description, UINT64_MAX, &rules)) return false;
  if (!follow_all(description.own, &description, pc - description.start, &rules)) return false;
  if (rules.frame_expression != NULL) {
    if (!evaluate(rules.frame_expression, NULL, machine, memory, &frame)) return false;
  } else {
    if (rules.frame_register >= REGISTERS || (machine->known >> rules.frame_register & 1) == 0) return false;
    frame = machine->registers[rules.frame_register] + (uint64_t)rules.frame_offset;
  }
  struct machine caller = {.sp = frame};
  for (unsigned i = 0; i < REGISTERS; i++) {
    if (restore(&rules.of[i], i, frame, machine, memory, &caller.registers[i])) caller.known |= 1u << i;
  }
  if (rules.of[REGISTER_SP].kind == RULE_SAME) caller.registers[REGISTER_SP] = frame;
  caller.known |= 1u << REGISTER_SP;
  caller.sp = caller.registers[REGISTER_SP];
  bool is_outermost = rules.of[REGISTER_PC].kind == RULE_UNKNOWN;
  if (!is_outermost && (caller.known >> REGISTER_PC & 1) == 0) return false;
  caller.pc = is_outermost ? 0 : caller.registers[REGISTER_PC];
  *is_signal = description.is_signal;
  *machine = caller;
  return true;
}

static inline bool machine_step(struct machine *machine, struct stack_memory *memory, bool *is_signal) {
  bool has_tables;
  if (step_by_tables(machine, memory, is_signal, &has_tables)) return true;
  if (has_tables || (machine->known >> REGISTER_FP & 1) == 0) return false;
  *is_signal = false;
  uint64_t *fp = &machine->registers[REGISTER_FP];
  if (!step_by_frame_pointer(&machine->pc, &machine->sp, fp, memory)) return false;
  machine->registers[REGISTER_SP] = machine->sp;
  machine->known = 1u << REGISTER_FP | 1u << REGISTER_SP;
  return true;
}

#endif
