# snug. `make` builds, `make demo` shows, `make test` checks. Results are in build/.
#
#   make            build/libsnug.so, build/libsnug.a, build/snug; says which packages are missing
#   make deps       installs those; test, demo, bench and test-programs install what they need by themselves
#   make demo       a multi-threaded Ruby program under glibc, jemalloc and snug; QUICK=1 for a minute's worth
#   make test       what must hold at every change, in minutes; nothing in it judges times
#   make test-all   every suite, in about 50 minutes; SECONDS=... lengthens stress and fuzz
#   make test-programs   all real programs under the preloaded library
#   make test-systems    Debian 11 to 13, Ubuntu 16.04 and 24.04 in roots of their own; suites compiled for glibc 2.17
#   make tested     interpreters and servers of today, on systems of today; writes docs/reference/tested-systems.md
#   make test-jemalloc-users   Ruby --with-jemalloc, a Rust program with jemalloc in it, Redis for musl: built, and run with ours
#   make test-system     a whole Debian with the library in /etc/ld.so.preload, in a container: DEBIAN=12 or 13
#   make test-vm    Debian 13 in virtual machines: units with limits, other kernels, 64-bit Arm; hours; VM="debian-13 la57"
#   make test-kubernetes the policy and the chart of deploy/kubernetes in a real API server, which the first run compiles
#   make test-fleet 40 real servers, half of them under snug, and what snug canary says of them; 8 minutes
#   make test-leaks  leaks planted in 240 programs: is the guilty line named first? Half an hour; LEAK_SEEDS=n
#   make fuzz       readers of what others write, and the library, with changed and random input; SECONDS=n for each
#   make fuzz-core  each module of the core against a model, system calls refused: MINUTES=10, MODULE=slabs; core/tests/fuzz/modules
#   make soak       Rails, Sidekiq and Celery for HOURS=12 (or MINUTES=n, RESUME=DIR) in containers with limits: does anything grow?
#   make bench      all servers of bench/workloads under all allocators; hours; QUICK=1 for their short form
#   make site       the documents as web pages, in build/site
#   make accept     takes what the tool prints on stored data as right, where a test of the crates says it has changed
#   make check      structure and format of the sources; make format applies the format
#   make release    build/release/snug, the tool as it is installed: smaller and faster, and slower to build
#   make dist       packages for Debian, Red Hat, Alpine, in build/dist; make test-dist installs them on clean systems
#   make publish-dry-run   a release but for its credentials: uploads to registries on the loopback, installs from there
#   make install    into PREFIX (/usr/local), under DESTDIR; make uninstall takes it away
#   make install-library   the library alone, which needs no Rust
CC = gcc
OBJCOPY = objcopy
CARGO ?= cargo
CARGO_FLAGS = --locked --target-dir build/cargo
BUILD = build
PREFIX = /usr/local
SECONDS = 15

WARNINGS = -Wall -Wextra -Werror -Wstrict-prototypes
CFLAGS = -O2 -g
CORE_CFLAGS = -std=gnu11 $(CFLAGS) $(WARNINGS) -fPIC -fvisibility=hidden -fno-stack-protector -fno-builtin-malloc \
              -U_FORTIFY_SOURCE
# One library for every libc: it needs none by name, and refers to no version of a symbol (docs/decisions/0025). What is
# always inlined is not there a second time.
CORE_LDFLAGS = -shared -nostdlib -Wl,-soname,libsnug.so.0 -Wl,-z,now,-z,nodelete,-z,relro -ffunction-sections \
               -fdata-sections -Wl,--gc-sections
CORE_LIBS = -lgcc
CORE_SOURCES = $(wildcard core/src/*.[ch] core/shared/*.[ch] core/include/*.h)
SHARED_SOURCES = $(wildcard core/shared/*.c)
CLI_SOURCES = $(shell find crates/*/src crates/*/templates crates/*/Cargo.toml -type f 2>/dev/null) Cargo.toml Cargo.lock VERSION

# Installs the Python packages that the first prerequisite lists, for this project alone, into the folder of the goal.
define python_tools
@rm -rf $(@D)
@/usr/bin/python3 -m venv $(@D)
@$(@D)/bin/pip --quiet --disable-pip-version-check install --requirement $<
@touch $@
endef

.PHONY: all library tool release deps demo bench bench-peers test check format install install-library uninstall clean
# All that is missing is named at once.
all: build/deps-build library tool
library: $(BUILD)/libsnug.so $(BUILD)/libsnug.a $(BUILD)/libsnug-prefixed.a $(BUILD)/jemalloc/libjemalloc.so.2 $(BUILD)/asker.so
tool: build/snug

# Building installs nothing: it ends with the names of what is missing. Only these goals install it.
INSTALLING := $(filter test-rest test-all test-kubernetes test-fleet test-leaks dist test-dist publish-dry-run deps demo test test-programs test-programs-debian test-systems tested test-jemalloc-users test-vm \
                       bench bench-hooks bench-forks bench-peers soak,$(MAKECMDGOALS))

# Packages are looked up once; the file remembers that all were there.
build/deps-%: tools/install-deps
	@mkdir -p $(@D)
	@tools/install-deps $(if $(INSTALLING),,--missing) $*
	@touch $@

deps:
	tools/install-deps build

# One unit, one call of the compiler: the way a gem or a wheel builds it, too.
$(BUILD)/libsnug.so: $(CORE_SOURCES) | build/deps-library
	@mkdir -p $(@D)
	$(CC) $(CORE_CFLAGS) $(CORE_LDFLAGS) core/src/snug.c $(SHARED_SOURCES) $(CORE_LIBS) -o $@
	@ln -sf libsnug.so $(BUILD)/libsnug.so.0

# The same under jemalloc's name, by which the loader takes it for the library that a program was linked with. A file of
# its own rather than a link: programs look for its name among their mappings (docs/decisions/0026).
$(BUILD)/jemalloc/libjemalloc.so.2: $(CORE_SOURCES) | build/deps-library
	@mkdir -p $(@D)
	$(CC) $(CORE_CFLAGS) $(subst libsnug.so.0,$(@F),$(CORE_LDFLAGS)) core/src/snug.c $(SHARED_SOURCES) $(CORE_LIBS) -o $@
	@ln -sf $(@F) $(@D)/libjemalloc.so

# What snug leak and compare --ask-allocator preload beside another allocator; of the core it has what it needs.
$(BUILD)/asker.so: $(CORE_SOURCES) $(wildcard core/asker/*.[ch]) | build/deps-library
	@mkdir -p $(@D)
	$(CC) $(CORE_CFLAGS) $(subst libsnug.so.0,$(@F),$(CORE_LDFLAGS)) core/asker/asker.c $(CORE_LIBS) -o $@

# In the archive our own names are local, and clash with none of the program's; core/archive/operators.c says why C++'s
# operators get other names in one member and their own in another; core/archive/needed.c, what references it adds;
# code_begins.c and code_ends.c, where its code lies.
ARCHIVED = core/archive/code_begins.c core/src/snug.c core/archive/needed.c core/archive/code_ends.c
$(BUILD)/libsnug.a: $(CORE_SOURCES) core/archive/code.h $(ARCHIVED) core/archive/operators.c | build/deps-library
	@mkdir -p $(@D)
	$(CC) $(CORE_CFLAGS) -r -nostdlib $(ARCHIVED) -o $(BUILD)/snug.o
	$(CC) $(CORE_CFLAGS) -c core/archive/operators.c -o $(BUILD)/operators.o
	@sed -n 's/^\(NEW\|DELETE\)([a-z_]*, "\([A-Za-z0-9_]*\)".*/\2 snug\2/p' core/archive/operators.c >$(BUILD)/operators.names
	$(OBJCOPY) --localize-hidden --redefine-syms=$(BUILD)/operators.names $(BUILD)/snug.o
	@rm -f $@
	$(AR) rcs $@ $(BUILD)/snug.o $(BUILD)/operators.o

# For a part of a program, beside the malloc that the program has: every name begins with snug_ (core/archive/prefixed.c).
PREFIXED_SOURCES = core/archive/prefixed.c core/archive/needed.c
$(BUILD)/libsnug-prefixed.a: $(CORE_SOURCES) core/archive/prefixed_names.h $(PREFIXED_SOURCES) | build/deps-library
	@mkdir -p $(@D)
	$(CC) $(CORE_CFLAGS) -ffunction-sections -fdata-sections -r -nostdlib $(PREFIXED_SOURCES) -o $(BUILD)/prefixed.o
	$(OBJCOPY) --wildcard --keep-global-symbol='snug_*' $(BUILD)/prefixed.o
	@rm -f $@
	$(AR) rcs $@ $(BUILD)/prefixed.o

build/snug: $(CLI_SOURCES) core/include/snug_counters.h | build/deps-build
	$(CARGO) build --package snug --profile quick $(CARGO_FLAGS)
	@install -m 755 build/cargo/quick/snug $@

# The same, optimised for size, which takes longer: what `make install` installs.
release: library build/release/snug
build/release/snug: $(CLI_SOURCES) core/include/snug_counters.h | build/deps-build
	$(CARGO) build --package snug --release $(CARGO_FLAGS)
	@install -D -m 755 build/cargo/release/snug $@

demo: all build/deps-demo
	bench/demo

# Other allocators, newest releases on crates.io; bench/peers/README.md.
bench-peers: build/deps-build build/deps-bench
	bench/peers/build

# With the share of CPU time that goes into memory, by perf; PROFILE= where that may not sample the kernel.
PROFILE = --profile
bench: all build/deps-bench
	bench/workloads/celery/setup
	bench/compare --check $(PROFILE)
	-bench/peers/build
	bench/compare $(PROFILE) $(if $(QUICK),--quick)

# The servers with the hooks of the gem and the wheel and without, under snug and under every peer: what comes from the
# hooks, what from the allocator. Twice as long as bench.
bench-hooks: all build/deps-bench
	bench/workloads/celery/setup
	bench/compare --check
	-bench/peers/build
	bench/compare --hooks --idle-seconds 6 $(if $(QUICK),--quick)

# Servers that fork much (Celery, gunicorn, Puma) under what teams run: with nothing, with care by hand, snug as it comes. In parts:
# MINUTES=60 OUT=bench/results/DATE-forks, again and again, adds rounds until each has five. WORKLOADS="..." are all of them.
bench-forks: all build/deps-bench
	bench/workloads/heavy/setup
	bench/compare --check --forks
	bench/compare $(WORKLOADS) --forks --idle-seconds 6 --runs 5 $(if $(QUICK),--quick) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(OUT),--out $(OUT))

# ---- tests: each target prints "N passed, N failed"; the fragments say how to run one alone ----

include core/tests/unit/unit.mk
include core/tests/tests.mk
include core/tests/golden/golden.mk
include core/tests/preload/preload.mk
include core/tests/matrix/matrix.mk
include core/tests/jemalloc_users/users.mk
include core/tests/vm/vm.mk
include bench/traces/traces.mk
include deploy/deploy.mk
include release/release.mk

# The library is the same; its archive and the programs are compiled for musl.
MUSL = CC=musl-gcc CXX= BUILD=build/musl LIB=$(CURDIR)/build/libsnug.so
# The emulator keeps a record of every page of address space that is reserved, of the heap 256 GB by default. Each start
# writes it and each fork copies it, in one to two seconds: unit and api run in 16 GB, but for what is about addresses;
# stress and fuzz as programs do. A thread of the emulator may hold a lock of GLib's slices during a fork: then the
# child waits for it forever (4 at once: 36 of 219 runs of unit/fork-4k; with malloc instead of slices 0 of 160).
AARCH64 = CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ AR=aarch64-linux-gnu-ar OBJCOPY=aarch64-linux-gnu-objcopy BUILD=build/aarch64 \
          G_SLICE=always-malloc RUN='qemu-aarch64 -L /usr/aarch64-linux-gnu' RUN_SMALL='qemu-aarch64 -R 16G -L /usr/aarch64-linux-gnu'
CLANG_BUILD = CC=clang CXX=clang++ BUILD=build/clang

.PHONY: test-rest test-all test-crates programs-crates test-rust test-cli test-bench test-servers test-tools test-guard test-musl test-aarch64 test-clang test-sanitizers
test: all build/deps-test
	+tools/run-tests $(if $(ONLY),$(ONLY),fast)

# What `make test` leaves out, and both.
test-rest: all build/deps-test
	+tools/run-tests rest
test-all: all build/deps-test
	+tools/run-tests all

# What a suite runs is built by programs-SUITE, where there is something to build: tools/run-tests begins with these, side
# by side, and suites that share programs then find them.
.PHONY: programs-cli programs-guard programs-musl programs-aarch64 programs-clang programs-sanitizers
programs-%: library ;

# A file of tests at a time would leave the processor idle: most of them wait for the seconds that they measure. The
# longest come first.
CLI_TEST = $(CARGO) test --workspace --profile quick $(CARGO_FLAGS)
RUN_CLI_TEST = MAKEFLAGS= $(CLI_TEST)
CLI_TESTS := $(filter-out golden,$(patsubst crates/snug/tests/%.rs,%,$(wildcard crates/snug/tests/*.rs)))
CLI_LONGEST = guide leak ask_allocator advise
CLI_SIDE_BY_SIDE = 3
CLI_GROUPS = $(addprefix test-cli-,$(CLI_LONGEST) $(filter-out $(CLI_LONGEST),$(CLI_TESTS)))
programs-cli: all
	$(CLI_TEST) --no-run

# The unit tests of every crate, and what the tool prints on stored data. `make accept` takes what it prints now as right.
CRATE_TESTS = --lib --bins --test golden
programs-crates: all
	$(CLI_TEST) $(CRATE_TESTS) --no-run
test-crates: programs-crates
	env -u UPDATE_EXPECT $(RUN_CLI_TEST) $(CRATE_TESTS) --no-fail-fast $(if $(AGAIN),-- --exact $(AGAIN))
.PHONY: accept
accept: programs-crates
	UPDATE_EXPECT=1 $(RUN_CLI_TEST) $(CRATE_TESTS) --no-fail-fast

# AGAIN names the tests that are to run, of all files; tools/run-tests gives failed ones a second try.
test-cli: programs-cli
	$(if $(AGAIN),$(RUN_CLI_TEST) -- --exact $(AGAIN))
	$(if $(AGAIN),,+$(MAKE) --no-print-directory --keep-going --output-sync=target -j$(CLI_SIDE_BY_SIDE) $(CLI_GROUPS))

.PHONY: $(CLI_GROUPS)
$(CLI_GROUPS): test-cli-%:
	$(RUN_CLI_TEST) --package snug --test $* $(if $(LONG),-- --include-ignored)

# What others write, changed at random: each reader of the tool gets it for so long (test-crates: the same few thousand in
# each run), and the library lists of instructions.
.PHONY: fuzz
fuzz: programs-crates programs-fuzz
	SNUG_FUZZ_SECONDS=$(SECONDS) $(CLI_TEST) --lib --bins -- fuzzed
	+$(MAKE) --no-print-directory test-fuzz

# With the Rust of Debian 12, which newcomers have, whatever else is installed: crates seldom say which one they need.
# Where there is no other, clippy has left there what the crates are made of.
DEBIAN_RUST = PATH=/usr/bin:$$PATH /usr/bin/cargo
DEBIAN_RUST_BUILD = $(if $(filter /usr/bin/cargo,$(shell command -v $(CARGO))),--profile quick --target-dir build/cargo,--target-dir build/cargo-debian)
test-rust:
	@if [ -x /usr/bin/cargo ]; then \
	  $(DEBIAN_RUST) check --locked --workspace --all-targets $(DEBIAN_RUST_BUILD) \
	    --message-format json-render-diagnostics >build/rust-targets.json && \
	  echo "rust: $$(grep -c '"reason":"compiler-artifact".*"manifest_path":"$(CURDIR)/crates/' build/rust-targets.json) passed, 0 failed"; \
	else echo "SKIPPED rust: Debian's is not installed"; echo "rust: 0 passed, 0 failed, 1 skipped"; fi

test-bench: all
	tools/run_unittests.py bench/tests $(AGAIN)

# What the guide shows for Rails, Puma, gunicorn, Celery and Sidekiq, with real applications.
test-servers: all
	tools/run_unittests.py docs/tests $(AGAIN)

# The tools of this folder, and what make itself says and installs.
test-tools: all $(TESTS_BUILD)/startup/refuse_call
	tools/run_unittests.py tools/tests $(AGAIN)

# The site made from the documents, and whether its links and pages hold.
.PHONY: site test-site
site: all build/site-tools/installed
	docs/site/build

test-site: all build/site-tools/installed
	tools/run_unittests.py docs/site/tests $(AGAIN)

build/site-tools/installed: docs/site/requirements.txt | build/deps-check
	$(python_tools)

# Leaks in seeded programs of six kinds, looked for by snug leak and snug profile; bench/leaks/run --help.
LEAK_SEEDS = 40
.PHONY: test-leaks
test-leaks: all build/deps-test
	bench/leaks/run --seeds $(LEAK_SEEDS)

# Under other C libraries and processors the seeded ones run for a third of the time, or 2 seconds: they look for what is
# different there.
SECONDS_ELSEWHERE = $(shell echo $$(($(SECONDS) > 6 ? $(SECONDS) / 3 : 2)))
# Suites of tests, and what make is told for each. They run one after the other: some measure time.
one_by_one = +for suite in $(1); do $(MAKE) test-$$suite $(2) || exit; done
programs_of = +$(MAKE) $(addprefix programs-,$(1)) $(2)

MUSL_SUITES = unit api jemalloc prefixed misuse stress fuzz startup
MUSL_FLAGS = $(MUSL) UNIT_VARIANTS=4k SECONDS=$(SECONDS_ELSEWHERE)
programs-musl: library
	$(MAKE) build/musl/libsnug.a $(MUSL)
	$(call programs_of,$(MUSL_SUITES),$(MUSL_FLAGS))
test-musl: programs-musl
	$(call one_by_one,$(MUSL_SUITES),$(MUSL_FLAGS))

AARCH64_SUITES = unit api prefixed stress fuzz
AARCH64_FLAGS = $(AARCH64) UNIT_VARIANTS=4k SECONDS=$(SECONDS_ELSEWHERE)
programs-aarch64:
	$(MAKE) library $(AARCH64)
	$(call programs_of,$(AARCH64_SUITES),$(AARCH64_FLAGS))
test-aarch64: programs-aarch64
	tools/check-library build/aarch64/libsnug.so
	$(call one_by_one,$(AARCH64_SUITES),$(AARCH64_FLAGS))

# Right programs whose blocks are all guarded: whatever the checks of SNUG=guard:1 say of them is wrong. Short, and
# without what looks at memory that returns, where freed blocks wait.
GUARD_SECONDS = 1
GUARD_SUITES = api stress fuzz
programs-guard: $(addprefix programs-,$(GUARD_SUITES))
test-guard: export SNUG = guard:1
test-guard:
	$(call one_by_one,$(GUARD_SUITES),SECONDS=$(GUARD_SECONDS) API_WITHOUT='idle mappings memory_return')

CLANG_SUITES = api misuse
programs-clang: build/matrix/own_malloc
	$(MAKE) library $(CLANG_BUILD)
	$(call programs_of,$(CLANG_SUITES),$(CLANG_BUILD))
test-clang: programs-clang
	tools/check-library build/clang/libsnug.so
	core/tests/support/run_tests.sh clang 120 "env LD_PRELOAD=$(CURDIR)/build/clang/libsnug.so" "build/matrix/own_malloc --preloaded"
	$(call one_by_one,$(CLANG_SUITES),$(CLANG_BUILD))

SANITIZER_SUITES = stress-thread stress-undefined stress-address libfuzzer
SANITIZER_FLAGS = CC=clang CLANG=clang BUILD=build/sanitizers LIB= SECONDS=$(SECONDS)
programs-sanitizers:
	$(call programs_of,$(SANITIZER_SUITES),$(SANITIZER_FLAGS))
test-sanitizers: programs-sanitizers
	$(call one_by_one,$(SANITIZER_SUITES),$(SANITIZER_FLAGS))

check: build/checkers/installed $(BUILD)/libsnug.so
	tools/check

# Formatters and linters of one version for all, whatever the system has.
build/checkers/installed: tools/checkers.txt | build/deps-check
	$(python_tools)

# classes.h is written by a tool, snug.c is a list.
FORMATTED = $(filter-out %/classes.h %/snug.c,$(shell git ls-files '*.c' '*.h' '*.cpp'))
format: build/checkers/installed
	build/checkers/bin/clang-format -i $(FORMATTED)
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path bindings/crate/Cargo.toml -- --config-path .
	build/checkers/bin/ruff check --fix $(shell git grep -lE '^\#!/usr/bin/(env )?python3$$' -- ':!*.rs') $(shell git ls-files '*.py')

# Rails, Sidekiq and Celery in containers with limits; bench/soak/run --help. RESULTS=DIR begins a soak there, RESUME=DIR
# goes on with it.
HOURS = 12
soak: MINUTES = $(shell echo $$(($(HOURS) * 60)))
.PHONY: soak
soak: all build/deps-bench build/deps-soak
	bench/workloads/celery/setup
	bench/soak/run --minutes $(MINUTES) $(if $(RESUME),--resume $(RESUME)) $(if $(RESULTS),--results $(RESULTS))

# Files that are not written by install(1) are for all users as well, whatever the umask of the one who installs.
install-library: library
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,lib/pkgconfig lib/cmake/snug include share/man/man3)
	$(OBJCOPY) --only-keep-debug $(BUILD)/libsnug.so $(BUILD)/libsnug.so.debug
	$(OBJCOPY) --strip-all --add-gnu-debuglink=$(BUILD)/libsnug.so.debug $(BUILD)/libsnug.so $(BUILD)/libsnug.stripped
	install -m 644 $(BUILD)/libsnug.stripped $(DESTDIR)$(PREFIX)/lib/libsnug.so.0
	install -m 644 $(BUILD)/libsnug.so.debug $(DESTDIR)$(PREFIX)/lib/
	umask 022; for name in snug snug-prefixed; do \
	  sed "s|@PREFIX@|$(PREFIX)|; s|@VERSION@|$$(cat VERSION)|" core/$$name.pc.in >$(DESTDIR)$(PREFIX)/lib/pkgconfig/$$name.pc || exit; \
	done
	install -m 644 core/cmake/snugConfig.cmake $(DESTDIR)$(PREFIX)/lib/cmake/snug/
	umask 022; sed "s|@VERSION@|$$(cat VERSION)|" core/cmake/snugConfigVersion.cmake.in >$(DESTDIR)$(PREFIX)/lib/cmake/snug/snugConfigVersion.cmake
	ln -sf libsnug.so.0 $(DESTDIR)$(PREFIX)/lib/libsnug.so
	install -m 644 $(BUILD)/libsnug.a $(BUILD)/libsnug-prefixed.a $(DESTDIR)$(PREFIX)/lib/
	install -m 644 $(addprefix core/include/,snug.h snug_malloc.h snug_counters.h) $(DESTDIR)$(PREFIX)/include/
	install -m 644 docs/man/snug.3 $(DESTDIR)$(PREFIX)/share/man/man3/
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,lib/snug/pkgconfig include/snug/jemalloc)
	$(OBJCOPY) --strip-all $(BUILD)/jemalloc/libjemalloc.so.2 $(BUILD)/jemalloc/libjemalloc.stripped
	install -m 644 $(BUILD)/jemalloc/libjemalloc.stripped $(DESTDIR)$(PREFIX)/lib/snug/libjemalloc.so.2
	ln -sf libjemalloc.so.2 $(DESTDIR)$(PREFIX)/lib/snug/libjemalloc.so
	install -m 644 core/include/jemalloc/jemalloc.h $(DESTDIR)$(PREFIX)/include/snug/jemalloc/
	umask 022; sed 's|@PREFIX@|$(PREFIX)|' core/include/jemalloc/jemalloc.pc.in >$(DESTDIR)$(PREFIX)/lib/snug/pkgconfig/jemalloc.pc

# TOOL=build/snug installs the one that `make` built, without the wait.
TOOL = build/release/snug
# NATIVE_TOOL writes the pages and completions where TOOL is for another machine.
NATIVE_TOOL = $(TOOL)
install: build/deps-build install-library $(TOOL)
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin share/man/man1)
	install -m 755 $(TOOL) $(DESTDIR)$(PREFIX)/bin/
	$(OBJCOPY) --strip-all $(BUILD)/asker.so $(BUILD)/asker.stripped
	install -m 644 $(BUILD)/asker.stripped $(DESTDIR)$(PREFIX)/lib/snug/asker.so
	umask 022; $(NATIVE_TOOL) generate man --out $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	umask 022; $(NATIVE_TOOL) generate completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/snug
	umask 022; $(NATIVE_TOOL) generate completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_snug
	umask 022; $(NATIVE_TOOL) generate completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/snug.fish

# Folders that others use, too, stay.
INSTALLED = lib/libsnug.so lib/libsnug.so.debug lib/pkgconfig/snug.pc lib/libsnug.so.0 lib/libsnug.a bin/snug include/snug.h include/snug_counters.h \
            lib/libsnug-prefixed.a lib/pkgconfig/snug-prefixed.pc include/snug_malloc.h \
            lib/cmake/snug/snugConfig.cmake lib/cmake/snug/snugConfigVersion.cmake \
            lib/snug/asker.so lib/snug/libjemalloc.so lib/snug/libjemalloc.so.2 lib/snug/pkgconfig/jemalloc.pc include/snug/jemalloc/jemalloc.h \
            share/man/man3/snug.3 share/man/man1/snug.1 share/man/man1/snug-*.1 \
            share/bash-completion/completions/snug share/zsh/site-functions/_snug share/fish/vendor_completions.d/snug.fish
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(INSTALLED))
	@rmdir $(addprefix $(DESTDIR)$(PREFIX)/,lib/snug/pkgconfig lib/snug lib/cmake/snug lib/cmake include/snug/jemalloc include/snug) 2>/dev/null || true

clean:
	rm -rf build
