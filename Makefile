# snug: make, make test, make demo. Everything ends up in build/; what is missing on the machine, tools/install-deps installs.
CC ?= gcc
BUILD ?= build
VERSION := $(shell cat VERSION)
CARGO ?= cargo
SECONDS ?= 5

WARNINGS = -Wall -Wextra -Werror -Wstrict-prototypes
CFLAGS ?= -O2 -g
CORE_CFLAGS = -std=gnu11 $(CFLAGS) $(WARNINGS) -fPIC -fvisibility=hidden -fno-stack-protector -fno-builtin-malloc -ftls-model=initial-exec
CORE_LDFLAGS = -shared -Wl,-soname,libsnug.so.0 -Wl,-z,now,-z,nodelete,-z,relro -Wl,--hash-style=gnu
CORE_SOURCES = $(wildcard core/src/*.[ch] core/include/*.h)

.PHONY: all library tool test check demo bench test-programs clean deps-build deps-demo deps-test install
all: library tool

library: $(BUILD)/libsnug.so $(BUILD)/libsnug.a
tool: $(BUILD)/snug

$(BUILD):
	@mkdir -p $@

# One unit, one call of the compiler: the way gem and wheel build it, too.
$(BUILD)/libsnug.so: $(CORE_SOURCES) VERSION | $(BUILD)
	$(CC) $(CORE_CFLAGS) $(CORE_LDFLAGS) core/src/snug.c -o $@
	@ln -sf libsnug.so $(BUILD)/libsnug.so.0

$(BUILD)/snug.o: $(CORE_SOURCES) VERSION | $(BUILD)
	$(CC) $(CORE_CFLAGS) -c core/src/snug.c -o $@

$(BUILD)/libsnug.a: $(BUILD)/snug.o
	@rm -f $@
	$(AR) rcs $@ $<
