# prefixed.mk: builds and runs the tests of libsnug-prefixed.a; included by tests.mk, whose variables it uses.
#
#   make test-prefixed
#
# Its functions under the names of malloc pass the api and stress suites, too, but for what it leaves to the program's own
# malloc: mallinfo and the like (extras), calls that pass through libsnug.so (process), memory that returns from a thread (idle).
PREFIXED ?= $(BUILD)/libsnug-prefixed.a
PREFIXED_BUILD := $(TESTS_BUILD)/prefixed
# Emulated, those that need no hundreds of threads or forks.
RENAMED_PROGRAMS = $(foreach name,aligned calloc malloc_free realloc $(if $(RUN),,limits mappings threads),api/$(name)) \
                   $(foreach name,exchange signals $(if $(RUN),,short_threads fork_storm),stress/$(name))
PREFIXED_ARGUMENTS = --seconds 1

$(PREFIXED_BUILD)/api/%: $(TESTS)/api/%.c $(TEST_HEADERS) $(PREFIXED)
	@mkdir -p $(@D)
	$(TEST_CC) -include $(TESTS)/../archive/prefixed_names.h -o $@ $< $(PREFIXED) -ldl

$(PREFIXED_BUILD)/stress/%: $(TESTS)/stress/%.c $(TEST_HEADERS) $(PREFIXED)
	@mkdir -p $(@D)
	$(TEST_CC) -include $(TESTS)/../archive/prefixed_names.h -o $@ $< $(PREFIXED) -ldl

$(PREFIXED_BUILD)/beside: $(TESTS)/prefixed/beside.c $(TEST_HEADERS) $(PREFIXED)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< $(PREFIXED)

$(PREFIXED_BUILD)/beside_static: $(TESTS)/prefixed/beside.c $(TEST_HEADERS) $(PREFIXED)
	@mkdir -p $(@D)
	$(TEST_CC) -static -Wl,--gc-sections -o $@ $< $(PREFIXED)

$(PREFIXED_BUILD)/plugins: $(TESTS)/prefixed/plugins.c $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< -ldl

$(PREFIXED_BUILD)/unloaded: $(TESTS)/prefixed/unloaded.c $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< -ldl

$(PREFIXED_BUILD)/%.so: $(TESTS)/prefixed/plugin.c $(TEST_HEADERS) $(PREFIXED)
	@mkdir -p $(@D)
	$(TEST_CC) -fPIC -shared -o $@ $< $(PREFIXED)

PREFIXED_PLUGINS = $(addprefix $(PREFIXED_BUILD)/,plugins one.so two.so)
.PHONY: test-prefixed programs-prefixed
programs-prefixed: $(addprefix $(PREFIXED_BUILD)/,$(RENAMED_PROGRAMS) beside beside_static unloaded) $(PREFIXED_PLUGINS)
test-prefixed: programs-prefixed
	@status=0; \
	$(RUN_TESTS) prefixed/names $(TEST_TIMEOUT_S) "" \
	  "$(TESTS)/support/check_names --only snug_ $(PREFIXED) $(INCLUDE)/snug.h $(INCLUDE)/snug_malloc.h" || status=1; \
	$(RUN_TESTS) prefixed $(TEST_TIMEOUT_S) "$(RUN_SMALL)" $(addprefix $(PREFIXED_BUILD)/,beside beside_static) \
	  "$(abspath $(PREFIXED_PLUGINS))" "$(abspath $(PREFIXED_BUILD)/unloaded $(PREFIXED_BUILD)/one.so)" || status=1; \
	$(if $(RUN),,$(RUN_TESTS) prefixed/preloaded $(TEST_TIMEOUT_S) "env LD_PRELOAD=$(abspath $(LIB))" $(PREFIXED_BUILD)/beside || status=1;) \
	$(RUN_TESTS) prefixed/renamed $(STRESS_TIMEOUT_S) "$(RUN_SMALL)" \
	  $(foreach program,$(RENAMED_PROGRAMS),"$(PREFIXED_BUILD)/$(program) $(if $(filter stress/%,$(program)),$(PREFIXED_ARGUMENTS))") || status=1; \
	exit $$status
