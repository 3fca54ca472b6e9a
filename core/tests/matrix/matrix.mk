# matrix.mk: the one library under every libc; see core/tests/matrix/run and core/tests/matrix/systems.
MATRIX_PROGRAMS = build/tests/startup/probe build/tests/startup/probe_dynamic build/matrix/short_threads \
                  build/matrix/fork_storm build/matrix/own_malloc
MATRIX_MUSL_PROGRAMS = $(addprefix build/musl/tests/,startup/probe startup/probe_dynamic stress/dlopen_snug)

.PHONY: test-matrix
test-matrix: programs-matrix
	core/tests/matrix/run

# On the C library's own allocator: the library is preloaded.
build/matrix/short_threads build/matrix/fork_storm: build/matrix/%: core/tests/stress/%.c $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< -ldl

build/matrix/own_malloc: core/tests/matrix/own_malloc.c
	@mkdir -p $(@D)
	gcc -O2 -g -Wall -Wextra -fno-builtin -pthread -rdynamic -o $@ $<

# After those of the musl suite, if these are asked for, too: they are partly the same.
.PHONY: programs-matrix
programs-matrix: library $(MATRIX_PROGRAMS) build/zig/installed $(filter programs-musl,$(MAKECMDGOALS))
	@mkdir -p build/matrix
	$(MAKE) $(MATRIX_MUSL_PROGRAMS) $(MUSL)
	$(MAKE) $(OLDEST_PROGRAMS) $(OLDEST)
	musl-gcc -O2 -static-pie -pthread -o build/matrix/static_pie_musl core/tests/startup/probe.c

# Programs for the oldest glibc that the library serves: they refer to no version after 2.17, and to libpthread and libdl,
# as programs of that time do. No C++, and the plug-in that is opened and closed is gcc's: zig's never run what atexit was
# told when they are closed, under any allocator.
OLDEST = CC='build/zig/bin/python -m ziglang cc -target x86_64-linux-gnu.2.17' CXX= BUILD=build/glibc-2.17 \
         LIB=$(CURDIR)/build/libsnug.so STATIC=build/libsnug.a PLUGIN=$(CURDIR)/build/tests/stress/plugin.so
OLDEST_PROGRAMS = $(addprefix build/glibc-2.17/,tests/startup/probe tests/startup/probe_dynamic tests/stress/dlopen_snug \
                    preloaded/short_threads preloaded/fork_storm)
build/glibc-2.17/preloaded/%: core/tests/stress/%.c $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< -ldl

build/zig/installed: core/tests/matrix/requirements.txt | build/deps-check
	$(python_tools)

# Whole suites compiled for glibc 2.17, and the programs of other releases in root file systems of their own, which are made
# once; most of an hour. SYSTEMS='debian-11 ubuntu-16.04' takes some of them, PROGRAMS=--light fewer programs.
OLDEST_SUITES = api jemalloc stress fuzz
OLDEST_FLAGS = $(OLDEST) SECONDS=$(SECONDS_ELSEWHERE)
SYSTEMS = debian-11 debian-12 debian-13 ubuntu-16.04 ubuntu-24.04
.PHONY: programs-oldest test-oldest test-systems
programs-oldest: library build/zig/installed build/tests/stress/plugin.so
	$(MAKE) $(OLDEST_PROGRAMS) $(OLDEST)
	$(call programs_of,$(OLDEST_SUITES),$(OLDEST_FLAGS))
test-oldest: programs-oldest
	$(call one_by_one,$(OLDEST_SUITES),$(OLDEST_FLAGS))
test-systems: programs-oldest build/deps-system
	core/tests/matrix/systems $(SYSTEMS) -- $(PROGRAMS)

# What docs/reference/tested-systems.md says, run anew and written: snug's commands under interpreters of today, the hooks
# with servers of today, the suites. An hour; TESTED='debian-sid --only servers' runs a part.
.PHONY: tested
tested: all programs-oldest build/deps-system
	tools/tested/run $(TESTED)
