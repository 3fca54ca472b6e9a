# tests.mk: builds and runs the black-box tests of the core. Included by the top-level Makefile, or used alone:
#
#   make -f core/tests/tests.mk test-api                                        against $(BUILD)/libsnug.so
#   make -f core/tests/tests.mk test-api LIB= STATIC= BUILD=build/glibc         against the C library's own malloc
#   make ... CC=musl-gcc CXX= BUILD=build/musl                                  under musl (no C++ there)
#   make ... CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ BUILD=build/aarch64 \
#            RUN='qemu-aarch64 -L /usr/aarch64-linux-gnu'                       under an emulator
#
# Each target prints "N passed, N failed" last; `make programs-api` only builds what test-api runs.
BUILD ?= build
LIB ?= $(BUILD)/libsnug.so
STATIC ?= $(BUILD)/libsnug.a
RUN ?=
RUN_SMALL ?= $(RUN)
SECONDS ?= 10
SEED ?=
CLANG ?= clang
TEST_HOSTCC ?= gcc
TEST_TIMEOUT_S ?= 300

comma := ,

TESTS := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
TESTS_BUILD := $(BUILD)/tests
TEST_FLAGS := -O2 -g -Wall -Wextra -Werror -fno-builtin -pthread
TEST_CC = $(CC) -std=gnu11 $(TEST_FLAGS) $(CFLAGS)
TEST_CXX = $(CXX) -std=gnu++17 -fsized-deallocation $(TEST_FLAGS) $(CFLAGS)
# The library by its path, found again at run time wherever the program is started from.
TEST_LIBS = $(if $(LIB),-Wl$(comma)--no-as-needed $(LIB) -Wl$(comma)-rpath$(comma)$(abspath $(dir $(LIB)))) -ldl
TEST_EMULATED = $(if $(RUN),TEST_EMULATED=1)

INCLUDE := $(TESTS)/../include
TEST_HEADERS := $(wildcard $(TESTS)/*/*.h) $(INCLUDE)/snug.h $(INCLUDE)/jemalloc/jemalloc.h
test_names = $(patsubst $(TESTS)/%.c,$(TESTS_BUILD)/%,$(wildcard $(TESTS)/$(1)/*.c))
test_names_cxx = $(if $(CXX),$(patsubst $(TESTS)/%.cpp,$(TESTS_BUILD)/%,$(wildcard $(TESTS)/$(1)/*.cpp)))
RUN_TESTS = $(TEST_EMULATED) $(TESTS)/support/run_tests.sh

$(TESTS_BUILD)/%: $(TESTS)/%.c $(TEST_HEADERS) $(LIB)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< $(TEST_LIBS)

$(TESTS_BUILD)/%: $(TESTS)/%.cpp $(TEST_HEADERS) $(LIB)
	@mkdir -p $(@D)
	$(TEST_CXX) -o $@ $< $(TEST_LIBS)

# ---- api ----

API_WITHOUT ?=
API_TESTS = $(filter-out $(addprefix %/,$(API_WITHOUT)),$(call test_names,api) $(call test_names_cxx,api))

# All that give malloc to a program, the second file under jemalloc's name beside the first.
GIVING_MALLOC = $(if $(LIB),$(LIB) $(dir $(LIB))jemalloc/libjemalloc.so.2 $(STATIC))

.PHONY: test-api programs-api
programs-api: $(API_TESTS) $(GIVING_MALLOC)
test-api: programs-api
	@status=0; $(RUN_TESTS) api $(TEST_TIMEOUT_S) "$(RUN_SMALL)" $(API_TESTS) || status=1; \
	$(if $(LIB),$(RUN_TESTS) api/names $(TEST_TIMEOUT_S) "" $(foreach library,$(GIVING_MALLOC),\
	  "$(TESTS)/support/check_names $(library) $(INCLUDE)/snug.h $(INCLUDE)/jemalloc/jemalloc.h") || status=1;) \
	exit $$status

# ---- jemalloc ----

.PHONY: test-jemalloc programs-jemalloc
programs-jemalloc: $(call test_names,jemalloc)
test-jemalloc: programs-jemalloc
	@$(RUN_TESTS) jemalloc $(TEST_TIMEOUT_S) "$(RUN)" $(call test_names,jemalloc)

# ---- misuse ----

MISUSE_TESTS = $(filter-out %/corrupted_metadata,$(call test_names,misuse)) $(call test_names_cxx,misuse)

.PHONY: test-misuse programs-misuse
programs-misuse: $(MISUSE_TESTS) $(TESTS_BUILD)/misuse/corrupted_metadata $(TESTS_BUILD)/misuse/mistakes
test-misuse: programs-misuse
	@status=0; $(TESTS)/misuse/run_misuse.sh "$(RUN)" $(MISUSE_TESTS) || status=1; \
	$(RUN_TESTS) misuse/metadata $(TEST_TIMEOUT_S) "$(RUN)" $(TESTS_BUILD)/misuse/corrupted_metadata || status=1; \
	$(TESTS)/misuse/collection/run --program $(TESTS_BUILD)/misuse/mistakes --lib $(LIB) || status=1; exit $$status

# Without the library, which `run` preloads, as it does other allocators.
$(TESTS_BUILD)/misuse/mistakes: $(TESTS)/misuse/collection/mistakes.c
	@mkdir -p $(@D)
	$(TEST_CC) -Wno-free-nonheap-object -o $@ $< -ldl

# ---- stress ----

# qemu-user 7.2 starts no thread in a child of a process with threads, hence without the janitor for what forks beside
# threads. It also keeps a record of every page of reserved address space, which each fork would copy, hence the limit.
FORKING_STRESS := fork_storm scribbled_counters
STRESS_PROGRAMS := exchange $(if $(RUN),,$(FORKING_STRESS) profile_storm signal_forks signal_mallocs thread_storm) short_threads idle_threads idle_phases signals exit_handlers
EMULATED_STORM = ulimit -v 16000000; SNUG=background:0
STRESS_ARGUMENTS = --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))
STRESS_TIMEOUT_S = $(shell echo $$(($(SECONDS) * 2 + 120)))

$(TESTS_BUILD)/stress/plugin.so: $(TESTS)/stress/plugin.c
	@mkdir -p $(@D)
	$(TEST_CC) -fPIC -shared -o $@ $<

PLUGIN ?= $(TESTS_BUILD)/stress/plugin.so

# Runs on the C library's own allocator and opens ours.
$(TESTS_BUILD)/stress/dlopen_snug: $(TESTS)/stress/dlopen_snug.c $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< -ldl

.PHONY: test-stress programs-stress
programs-stress: $(addprefix $(TESTS_BUILD)/stress/,$(STRESS_PROGRAMS) $(FORKING_STRESS) dlopen_loop dlopen_snug) $(PLUGIN) \
                 $(call test_names_cxx,stress)
test-stress: programs-stress
	@status=0; $(RUN_TESTS) stress $(STRESS_TIMEOUT_S) "$(RUN)" \
	  $(foreach program,$(STRESS_PROGRAMS),"$(TESTS_BUILD)/stress/$(program) $(STRESS_ARGUMENTS)") \
	  "$(TESTS_BUILD)/stress/dlopen_loop $(STRESS_ARGUMENTS) --path $(abspath $(PLUGIN))" \
	  $(if $(LIB),"$(TESTS_BUILD)/stress/dlopen_snug $(STRESS_ARGUMENTS) --path $(abspath $(LIB))") \
	  $(foreach program,$(call test_names_cxx,stress),"$(program) $(STRESS_ARGUMENTS)") || status=1; \
	$(if $(RUN),($(EMULATED_STORM) $(RUN_TESTS) stress/emulated $(STRESS_TIMEOUT_S) "$(RUN)" \
	  $(foreach program,$(FORKING_STRESS),"$(TESTS_BUILD)/stress/$(program) $(STRESS_ARGUMENTS)")) || status=1;) exit $$status

# With the core compiled into the program under a sanitizer. The runtimes of ASan and TSan call malloc and setrlimit
# before they are ready, and so must not get ours: the core's entry points get other names there, and the test programs
# call those. TSan needs clang, as gcc's refuses fences, and knows no threads after a fork. Neither knows the janitor,
# which has no libc thread state.
SANITIZED_STRESS := exchange short_threads idle_threads signals
RENAMED := malloc calloc realloc free posix_memalign aligned_alloc memalign malloc_usable_size reallocarray malloc_trim \
           setrlimit setrlimit64 prlimit prlimit64 mlockall unshare setns capset prctl syscall

# $(1): sanitizer, $(2): compiler, $(3): names to change, $(4): further flags of the test programs
define sanitized_stress
.PHONY: test-stress-$(1) programs-stress-$(1)
programs-stress-$(1): $(foreach program,$(SANITIZED_STRESS),$(TESTS_BUILD)/$(1)/$(program))
test-stress-$(1): programs-stress-$(1)
	@$(if $(3),SNUG=background:0) $$(RUN_TESTS) stress-$(1) $$(STRESS_TIMEOUT_S) "$$(RUN)" \
	  $$(foreach program,$$(SANITIZED_STRESS),"$$(TESTS_BUILD)/$(1)/$$(program) $$(STRESS_ARGUMENTS)")

$(TESTS_BUILD)/$(1)/core.o: $(TESTS)/../src/snug.c $(wildcard $(TESTS)/../src/*)
	@mkdir -p $$(@D)
	$(2) -std=gnu11 $$(TEST_FLAGS) $$(CFLAGS) -fsanitize=$(1) -fno-sanitize-recover=all -c -o $$@ $$<
	$(if $(3),objcopy $(foreach name,$(3),--redefine-sym $(name)=tested_$(name)) $$@)

$(TESTS_BUILD)/$(1)/%: $(TESTS)/stress/%.c $(TESTS_BUILD)/$(1)/core.o $(TEST_HEADERS)
	$(2) -std=gnu11 $$(TEST_FLAGS) $$(CFLAGS) -fsanitize=$(1) -fno-sanitize-recover=all \
	  $(foreach name,$(3),-D$(name)=tested_$(name)) $(4) -o $$@ $$< $(TESTS_BUILD)/$(1)/core.o -ldl
endef
$(eval $(call sanitized_stress,undefined,$$(CC),,))
$(eval $(call sanitized_stress,address,$$(CC),$(RENAMED),))
$(eval $(call sanitized_stress,thread,$$(CLANG),$(RENAMED),-DDESTRUCTOR_ROUNDS=1))

# ---- fuzz ----

# Emulated without the janitor: a forked child would start one (EMULATED_STORM above).

FUZZ_SOURCES := $(addprefix $(TESTS)/fuzz/,instruction.c model.c)

$(TESTS_BUILD)/fuzz/fuzz: $(TESTS)/fuzz/fuzz.c $(FUZZ_SOURCES) $(TEST_HEADERS) $(LIB)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< $(FUZZ_SOURCES) $(TEST_LIBS)

.PHONY: test-fuzz programs-fuzz
programs-fuzz: $(TESTS_BUILD)/fuzz/fuzz
test-fuzz: programs-fuzz
	@$(if $(RUN),SNUG=background:0) $(RUN_TESTS) fuzz $(STRESS_TIMEOUT_S) "$(RUN)" "$(TESTS_BUILD)/fuzz/fuzz --self-test" \
	  $(foreach list,$(wildcard $(TESTS)/fuzz/lists/*.txt),"$(TESTS_BUILD)/fuzz/fuzz $(list)") \
	  "$(TESTS_BUILD)/fuzz/fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) --output $(TESTS_BUILD)/fuzz/failure.txt"

# Every order of the few threads of a model, in Spin. LONG=1: within larger bounds.
.PHONY: test-models
test-models:
	@LONG=$(LONG) $(TESTS)/models/run

# libFuzzer with the core linked in, so that its branches guide the search. It keeps its finds in corpus/.
# libFuzzer brings memcmp and its like, too, and watches what they compare.
$(TESTS_BUILD)/fuzz/libfuzzer: $(TESTS)/fuzz/libfuzzer.c $(FUZZ_SOURCES) $(wildcard $(TESTS)/../src/*) $(TEST_HEADERS)
	@mkdir -p $(@D)/corpus
	$(CLANG) -std=gnu11 $(TEST_FLAGS) -fsanitize=fuzzer,undefined -fno-sanitize-recover=undefined -o $@ $< $(FUZZ_SOURCES) \
	  $(TESTS)/../src/snug.c -Wl,--allow-multiple-definition -ldl

.PHONY: test-libfuzzer programs-libfuzzer
programs-libfuzzer: $(TESTS_BUILD)/fuzz/libfuzzer
test-libfuzzer: programs-libfuzzer
	@$(TESTS)/fuzz/run_libfuzzer.sh $(TESTS_BUILD)/fuzz/libfuzzer $(TESTS_BUILD)/fuzz $(SECONDS)

# ---- fuzz-core ----

# Modules of the core, each by itself with system calls refused, and all of its interface beside the C library's malloc
# and jemalloc (fuzz/modules/README.md). Names of malloc are changed as for the sanitizers.

MODULES := $(TESTS)/fuzz/modules
MODULES_SOURCES := $(filter-out %/core.c %/main.c %/libfuzzer.c,$(wildcard $(MODULES)/*.c))
MODULES_RENAMED = $(foreach name,$(RENAMED) valloc pvalloc,--redefine-sym $(name)=tested_$(name))
MODULES_CORE := $(TESTS)/../src/snug.c $(wildcard $(TESTS)/../src/* $(INCLUDE)/* $(INCLUDE)/*/* $(MODULES)/*.h)
MODULES_RUN = env -u SNUG -u MALLOC_CONF $(TESTS_BUILD)/fuzz/modules/modules
MODULES_LIMITS = $(if $(MODULE),--module $(MODULE)) --output $(TESTS_BUILD)/fuzz/failure.txt

# $(1): folder, $(2): compiler, $(3): flags for the core, $(4): the program, with flags to link it, $(5): libraries
define fuzzed_modules
$(TESTS_BUILD)/fuzz/$(1)/core.o: $(MODULES)/core.c $(MODULES_CORE)
	@mkdir -p $$(@D)
	@sed '/include "sys.c"/d' $(TESTS)/../src/snug.c >$$(@D)/sources_above_sys.h
	$(2) -std=gnu11 $$(TEST_FLAGS) -O1 -g1 $(3) -iquote $$(@D) -iquote $(TESTS)/../src -c -o $$@ $$<
	objcopy $$(MODULES_RENAMED) $$@

$(TESTS_BUILD)/fuzz/$(1)/modules: $(TESTS_BUILD)/fuzz/$(1)/core.o $(MODULES_SOURCES) $(TEST_HEADERS)
	$(2) -std=gnu11 $$(TEST_FLAGS) -O1 -g1 -o $$@ $(4) $(MODULES_SOURCES) $$< $(5) -ldl
endef
$(eval $(call fuzzed_modules,modules,$$(TEST_HOSTCC),,$(MODULES)/main.c))
$(eval $(call fuzzed_modules,coverage,$$(TEST_HOSTCC),--coverage,$(MODULES)/main.c -Wl$$(comma)-u$$(comma)__gcov_dump,-lgcov))
$(eval $(call fuzzed_modules,guided,$$(CLANG),-fsanitize=fuzzer-no-link,$(TESTS_BUILD)/fuzz/guided/libfuzzer.o -fsanitize=fuzzer -Wl$$(comma)--allow-multiple-definition))

# By itself: clang names the counters of what it instruments as libfuzzer.c does, and gives way to a name that is there.
$(TESTS_BUILD)/fuzz/guided/modules: $(TESTS_BUILD)/fuzz/guided/libfuzzer.o
$(TESTS_BUILD)/fuzz/guided/libfuzzer.o: $(MODULES)/libfuzzer.c $(wildcard $(MODULES)/*.h)
	@mkdir -p $(@D)
	$(CLANG) -std=gnu11 $(TEST_FLAGS) -c -o $@ $<

.PHONY: test-fuzz-core programs-fuzz-core fuzz-core fuzz-core-guided fuzz-core-coverage
programs-fuzz-core: $(TESTS_BUILD)/fuzz/modules/modules
test-fuzz-core: programs-fuzz-core
	@$(RUN_TESTS) fuzz-core $(TEST_TIMEOUT_S) "" "$(MODULES_RUN) $(wildcard $(MODULES)/lists/*.txt)" "$(MODULES_RUN) --self-test yes" \
	  "$(MODULES_RUN) --inputs 4 --seconds $(TEST_TIMEOUT_S) $(MODULES_LIMITS)"

fuzz-core: programs-fuzz-core
	$(MODULES_RUN) --seconds $$(($(or $(MINUTES),10) * 60)) --seed $(or $(SEED),$(shell date +%s)) $(MODULES_LIMITS)

# One module, by what its inputs cover of the core.
fuzz-core-guided: $(TESTS_BUILD)/fuzz/guided/modules
	@mkdir -p $(TESTS_BUILD)/fuzz/guided/$(MODULE)
	env -u SNUG -u MALLOC_CONF FUZZ_MODULE=$(MODULE) $< -max_total_time=$$(($(or $(MINUTES),10) * 60)) -max_len=16384 \
	  -len_control=0 -print_final_stats=1 -artifact_prefix=$(TESTS_BUILD)/fuzz/ $(TESTS_BUILD)/fuzz/guided/$(MODULE)

fuzz-core-coverage: $(TESTS_BUILD)/fuzz/coverage/modules
	@$(MODULES)/coverage $< $(MODULE)

# ---- startup ----

STARTUP_TOOLS := $(addprefix $(TESTS_BUILD)/startup/,refuse_call exec_without_arguments footprint)
$(TESTS_BUILD)/startup/footprint: TEST_LINK := -static

$(STARTUP_TOOLS) $(TESTS_BUILD)/failure/fail_each: $(TESTS_BUILD)/%: $(TESTS)/%.c $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(TEST_HOSTCC) -std=gnu11 $(TEST_FLAGS) $(TEST_LINK) -o $@ $<

$(TESTS_BUILD)/startup/probe_dynamic: $(TESTS)/startup/probe.c $(TEST_HEADERS) $(LIB)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< $(TEST_LIBS)

$(TESTS_BUILD)/startup/probe_static_library: $(TESTS)/startup/probe.c $(TEST_HEADERS) $(STATIC)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< $(STATIC)

$(TESTS_BUILD)/startup/probe_static_executable: $(TESTS)/startup/probe.c $(TEST_HEADERS) $(STATIC)
	@mkdir -p $(@D)
	$(TEST_CC) -static -o $@ $< $(STATIC)

$(TESTS_BUILD)/startup/static_new: $(TESTS)/startup/static_new.cpp $(STATIC)
	@mkdir -p $(@D)
	$(TEST_CXX) -static -o $@ $< $(STATIC)

# To be preloaded into: on the C library's own allocator.
$(TESTS_BUILD)/startup/probe $(TESTS_BUILD)/startup/locked_memory: $(TESTS_BUILD)/%: $(TESTS)/%.c $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $<

$(TESTS_BUILD)/startup/early_library.so: $(TESTS)/startup/early_library.c
	@mkdir -p $(@D)
	$(TEST_CC) -fPIC -shared -o $@ $<

$(TESTS_BUILD)/startup/deepbind_library.so: $(TESTS)/startup/deepbind_library.c
	@mkdir -p $(@D)
	$(TEST_CC) -fPIC -shared -o $@ $<

$(TESTS_BUILD)/startup/deepbind: $(TESTS)/startup/deepbind.c $(TESTS_BUILD)/startup/deepbind_library.so
	@mkdir -p $(@D)
	$(TEST_CC) -Wl,--enable-new-dtags,-rpath,'$$ORIGIN' -o $@ $<

$(TESTS_BUILD)/startup/interposed: $(TESTS)/startup/interposed.cpp $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(TEST_CXX) -o $@ $< -ldl

# A library with a function of each name that ours takes from others, or has and passes on.
$(TESTS_BUILD)/startup/interposer.so: $(TESTS)/support/make_interposer.py $(LIB)
	@mkdir -p $(@D)
	$(TESTS)/support/make_interposer.py $(LIB) --shared >$(@:.so=.c)
	$(TEST_CC) -fPIC -shared -o $@ $(@:.so=.c) -ldl

# Of the C library of this machine, which is asked for its names.
INTERPOSED = $(if $(LIB),$(if $(RUN)$(findstring musl,$(CC)),,$(addprefix $(TESTS_BUILD)/startup/,interposed interposer.so)))

.PHONY: test-startup programs-startup
programs-startup: $(STARTUP_TOOLS) \
                  $(addprefix $(TESTS_BUILD)/,$(addprefix startup/,probe probe_dynamic probe_static_library \
                    probe_static_executable locked_memory early_library.so) \
                    stress/exchange stress/idle_threads stress/fork_storm failure/workload) \
                  $(if $(findstring musl,$(CC)),,$(addprefix $(TESTS_BUILD)/startup/,static_new deepbind)) $(INTERPOSED)
test-startup: programs-startup
	@status=0; $(TESTS)/startup/run_startup.sh $(abspath $(TESTS_BUILD)) "$(if $(LIB),$(abspath $(LIB)))" "$(RUN)" \
	  $(if $(findstring musl,$(CC)),musl,system) || status=1; \
	$(if $(INTERPOSED),$(TESTS)/startup/run_interposed --programs $(abspath $(TESTS_BUILD)/startup) \
	  --library $(abspath $(LIB)) || status=1;) exit $$status

# ---- failure ----

$(TESTS_BUILD)/failure/workload_static: $(TESTS)/failure/workload.c $(TEST_HEADERS) $(STATIC)
	@mkdir -p $(@D)
	$(TEST_CC) -static -o $@ $< $(STATIC)

FAIL_EACH = $(TESTS_BUILD)/failure/fail_each
WORKLOAD = -- $(TESTS_BUILD)/failure/workload
WORKLOAD_STATIC = -- $(TESTS_BUILD)/failure/workload_static

# From the start only single calls fail: without any memory glibc's own static start-up ends in SIGSEGV.
.PHONY: test-failure programs-failure
programs-failure: $(FAIL_EACH) $(TESTS_BUILD)/failure/workload $(TESTS_BUILD)/failure/workload_static
test-failure: programs-failure
	@if [ -n "$(RUN)" ]; then echo "failure: left out: the emulator's own calls would fail"; exit 0; fi; \
	$(RUN_TESTS) failure 3000 "" \
	  "$(FAIL_EACH) --name mmap --call mmap --errno ENOMEM --limit 80 $(WORKLOAD) --recovers" \
	  "$(FAIL_EACH) --name mmap_forever --call mmap --errno ENOMEM --forever --limit 40 $(WORKLOAD)" \
	  "$(FAIL_EACH) --name mprotect --call mprotect --errno ENOMEM --limit 80 $(WORKLOAD) --recovers" \
	  "$(FAIL_EACH) --name mprotect_forever --call mprotect --errno ENOMEM --forever --limit 40 $(WORKLOAD)" \
	  "$(FAIL_EACH) --name munmap --call munmap --errno ENOMEM --limit 80 $(WORKLOAD) --recovers" \
	  "$(FAIL_EACH) --name munmap_forever --call munmap --errno ENOMEM --forever --limit 40 $(WORKLOAD)" \
	  "$(FAIL_EACH) --name mremap --call mremap --errno ENOMEM --limit 80 $(WORKLOAD) --recovers" \
	  "$(FAIL_EACH) --name mremap_forever --call mremap --errno ENOSYS --forever --limit 5 $(WORKLOAD)" \
	  "$(FAIL_EACH) --name madvise --call madvise --errno EINVAL --limit 60 $(WORKLOAD) --recovers" \
	  "$(FAIL_EACH) --name madvise_forever --call madvise --errno EINVAL --forever --limit 4 $(WORKLOAD) --pause" \
	  "$(FAIL_EACH) --name membarrier --call membarrier --errno EPERM --limit 20 $(WORKLOAD) --pause" \
	  "$(FAIL_EACH) --name clone --call clone --errno EAGAIN --limit 20 $(WORKLOAD) --pause" \
	  "$(FAIL_EACH) --name clone_forever --call clone --errno EAGAIN --forever --limit 4 $(WORKLOAD) --pause" \
	  "$(FAIL_EACH) --name commit_forever --call commit --errno ENOMEM --forever --limit 60 $(WORKLOAD)" \
	  "$(FAIL_EACH) --name mmap_from_start --call mmap --errno ENOMEM --from-start --limit 60 $(WORKLOAD_STATIC)" \
	  "$(FAIL_EACH) --name mprotect_from_start --call mprotect --errno ENOMEM --from-start --limit 60 $(WORKLOAD_STATIC)" \
	  "$(FAIL_EACH) --name mprotect_from_start_forever --call mprotect --errno ENOMEM --from-start --forever --limit 20 $(WORKLOAD_STATIC)"

.PHONY: test-black-box
test-black-box: test-api test-misuse test-stress test-fuzz test-startup test-failure

# ---- container ----

CONTAINER = $(TESTS_BUILD)/container/churn $(TESTS_BUILD)/container/steady

$(CONTAINER): $(TESTS_BUILD)/container/%: $(TESTS)/container/%.c $(TESTS)/container/filled.h
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $<

.PHONY: test-container programs-container
programs-container: $(CONTAINER) $(LIB)
test-container: programs-container
	@$(TESTS)/container/run_container.sh $(abspath $(CONTAINER)) $(abspath $(LIB))

include $(TESTS)/sandbox/sandbox.mk
include $(TESTS)/prefixed/prefixed.mk
