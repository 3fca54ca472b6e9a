# snug. `make` builds, `make demo` shows, `make test` checks; each installs what it needs. Results are in build/.
#
#   make            build/libsnug.so, build/libsnug.a, build/snug
#   make demo       a multi-threaded Ruby program under glibc, jemalloc and snug; QUICK=1 for a minute's worth
#   make test       everything that must hold, in about half an hour; SECONDS=... lengthens stress and fuzz
#   make test-programs   all real programs under the preloaded library
#   make bench      all servers of bench/workloads under all allocators; hours; QUICK=1 for their short form
#   make check      structure of the sources; make format applies .clang-format
#   make install    into PREFIX (/usr/local), under DESTDIR
CC = gcc
OBJCOPY = objcopy
CARGO ?= cargo
BUILD = build
PREFIX = /usr/local
SECONDS = 15

WARNINGS = -Wall -Wextra -Werror -Wstrict-prototypes
CFLAGS = -O2 -g
CORE_CFLAGS = -std=gnu11 $(CFLAGS) $(WARNINGS) -fPIC -fvisibility=hidden -fno-stack-protector -fno-builtin-malloc
CORE_LDFLAGS = -shared -Wl,-soname,libsnug.so.0 -Wl,-z,now,-z,nodelete,-z,relro
CORE_SOURCES = $(wildcard core/src/*.[ch] core/include/*.h)
CLI_SOURCES = $(shell find cli/src cli/templates cli/Cargo.toml cli/Cargo.lock -type f 2>/dev/null) VERSION

.PHONY: all library tool demo bench bench-peers test check install clean
all: library tool
library: $(BUILD)/libsnug.so $(BUILD)/libsnug.a
tool: build/snug

# Names of packages that are missing are looked up once; the file remembers that all were there.
$(BUILD)/deps-%: tools/install-deps
	@mkdir -p $(@D)
	tools/install-deps $*
	@touch $@

# One unit, one call of the compiler: the way a gem or a wheel builds it, too.
$(BUILD)/libsnug.so: $(CORE_SOURCES) | build/deps-build
	@mkdir -p $(@D)
	$(CC) $(CORE_CFLAGS) $(CORE_LDFLAGS) core/src/snug.c -o $@
	@ln -sf libsnug.so $(BUILD)/libsnug.so.0

# In the archive our own names are local, and clash with none of the program's; core/archive/operators.c says why C++'s
# operators get other names in one member and their own in another.
$(BUILD)/libsnug.a: $(CORE_SOURCES) core/archive/operators.c | build/deps-build
	@mkdir -p $(@D)
	$(CC) $(CORE_CFLAGS) -c core/src/snug.c -o $(BUILD)/snug.o
	$(CC) $(CORE_CFLAGS) -c core/archive/operators.c -o $(BUILD)/operators.o
	@sed -n 's/^\(NEW\|DELETE\)([a-z_]*, "\([A-Za-z0-9_]*\)".*/\2 snug\2/p' core/archive/operators.c >$(BUILD)/operators.names
	$(OBJCOPY) --localize-hidden --redefine-syms=$(BUILD)/operators.names $(BUILD)/snug.o
	@rm -f $@
	$(AR) rcs $@ $(BUILD)/snug.o $(BUILD)/operators.o

build/snug: $(CLI_SOURCES) core/include/snug_counters.h | build/deps-build
	$(CARGO) build --release --locked --manifest-path cli/Cargo.toml --target-dir build/cargo
	@install -m 755 build/cargo/release/snug $@

demo: all build/deps-demo
	bench/demo

# Other allocators, newest releases on crates.io; bench/peers/README.md.
bench-peers: build/deps-build build/deps-bench
	bench/peers/build

bench: all build/deps-bench
	-bench/peers/build
	bench/workloads/celery/setup
	bench/compare $(if $(QUICK),--quick)

# ---- tests: each target prints "N passed, N failed"; the fragments say how to run one alone ----

include core/tests/unit/unit.mk
include core/tests/tests.mk
include core/tests/golden/golden.mk
include core/tests/preload/preload.mk
include bench/traces/traces.mk

MUSL = CC=musl-gcc CXX= BUILD=build/musl
AARCH64 = CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ AR=aarch64-linux-gnu-ar OBJCOPY=aarch64-linux-gnu-objcopy BUILD=build/aarch64 \
          RUN='qemu-aarch64 -L /usr/aarch64-linux-gnu'
CLANG_BUILD = CC=clang-14 CXX=clang++-14 BUILD=build/clang

.PHONY: test-rust test-cli test-bench test-monitoring test-musl test-aarch64 test-clang test-sanitizers
test: all build/deps-test
	+tools/run-tests $(if $(ONLY),$(ONLY),all)

test-cli: all
	SNUG_REQUIRE_LIBRARY=1 SNUG_REQUIRE_CHROMIUM=1 $(CARGO) test --release --locked --manifest-path cli/Cargo.toml --target-dir build/cargo

# With the Rust of Debian 12, which newcomers have, whatever else is installed: crates seldom say which one they need.
DEBIAN_RUST = PATH=/usr/bin:$$PATH /usr/bin/cargo
test-rust:
	@if [ -x /usr/bin/cargo ]; then \
	  $(DEBIAN_RUST) check --locked --all-targets --manifest-path cli/Cargo.toml --target-dir build/cargo-debian && \
	  echo "rust: 1 passed, 0 failed"; \
	else echo "rust: skipped, there is no Rust of Debian's"; fi

test-bench:
	python3 -m unittest discover -s bench/tests -q

test-monitoring: all
	monitoring/tests/test_monitoring.py

# Suites of tests, and what make is told for each. Side by side (-j) only what they need is built: some measure time.
one_by_one = +for suite in $(1); do $(MAKE) test-$$suite $(2) || exit; done

test-musl:
	$(MAKE) library $(MUSL)
	$(MAKE) test-unit $(MUSL) UNIT_VARIANTS=4k
	$(call one_by_one,api misuse stress fuzz startup,$(MUSL) SECONDS=$(SECONDS))

test-aarch64:
	$(MAKE) library $(AARCH64)
	$(MAKE) test-unit $(AARCH64) UNIT_VARIANTS=4k
	$(call one_by_one,api stress fuzz,$(AARCH64) SECONDS=$(SECONDS))

test-clang:
	$(MAKE) library $(CLANG_BUILD)
	$(call one_by_one,api misuse,$(CLANG_BUILD))

test-sanitizers:
	$(MAKE) test-stress-thread test-stress-undefined test-stress-address CC=clang-14 CLANG=clang-14 BUILD=build/sanitizers LIB= SECONDS=$(SECONDS)
	$(MAKE) test-libfuzzer CLANG=clang-14 SECONDS=$(SECONDS)

check: all
	tools/check
	tools/update-options --check

# classes.h is written by a tool, snug.c is a list.
FORMATTED = $(filter-out %/classes.h %/snug.c,$(wildcard core/src/*.[ch] core/include/*.h core/tests/*/*.[ch] core/tests/*/*.cpp))
.PHONY: format
format:
	clang-format-14 -i $(FORMATTED)

install: all
	install -d $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/man/man3
	install -m 644 $(BUILD)/libsnug.so $(DESTDIR)$(PREFIX)/lib/libsnug.so.0
	ln -sf libsnug.so.0 $(DESTDIR)$(PREFIX)/lib/libsnug.so
	install -m 644 $(BUILD)/libsnug.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 build/snug $(DESTDIR)$(PREFIX)/bin/
	install -m 644 core/include/snug.h core/include/snug_counters.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 docs/man/snug.3 $(DESTDIR)$(PREFIX)/share/man/man3/
	build/snug generate man --out $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	build/snug generate completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/snug
	build/snug generate completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_snug
	build/snug generate completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/snug.fish

clean:
	rm -rf build
