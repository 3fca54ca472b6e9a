# sandbox.mk: builds and runs the tests in sandboxes and of privileges; included by tests.mk, whose variables it uses.
#
#   make test-sandbox                        all of it
#   core/tests/sandbox/run --help            a part of it

SANDBOX := $(TESTS_BUILD)/sandbox
SANDBOX_PROGRAMS := $(call test_names,sandbox)
SANDBOX_HEADERS := $(TEST_HEADERS) $(SANDBOX)/syscall_names.h

$(SANDBOX)/syscall_names.h:
	@mkdir -p $(@D)
	@echo '#include <asm/unistd.h>' | $(CC) -E -dM - | \
	  sed -n 's/^#define __NR_\([a-z0-9_]*\) .*/  {"\1", __NR_\1},/p' | sort | \
	  { echo 'static const struct { const char *name; long number; } syscall_names[] = {'; cat; echo '};'; } >$@

# On the C library's own allocator, so that they can serve as the measure: the library is preloaded where it is tested.
$(SANDBOX_PROGRAMS): $(SANDBOX)/%: $(TESTS)/sandbox/%.c $(SANDBOX_HEADERS)
	@mkdir -p $(@D)
	$(TEST_CC) -I$(SANDBOX) -o $@ $< -ldl

# A library with a function of each name that ours takes from others, each with a thread-local variable.
$(SANDBOX)/interposer.so: $(TESTS)/support/make_interposer.py $(LIB)
	@mkdir -p $(@D)
	$(TESTS)/support/make_interposer.py $(LIB) >$(@:.so=.c)
	$(TEST_CC) -fPIC -shared -ftls-model=global-dynamic -o $@ $(@:.so=.c) -ldl

.PHONY: test-sandbox programs-sandbox
programs-sandbox: $(SANDBOX_PROGRAMS) $(SANDBOX)/interposer.so $(LIB)
test-sandbox: programs-sandbox
	@$(TESTS)/sandbox/run --programs $(abspath $(SANDBOX)) --library $(abspath $(LIB))

# A whole Debian, 12 or 13, with the library in /etc/ld.so.preload: some minutes, and a network. Not part of `make test`.
.PHONY: test-system
test-system: $(LIB) $(SANDBOX)/work
	@tools/install-deps system
	DEBIAN=$(or $(DEBIAN),12) $(TESTS)/system/run $(abspath $(LIB)) $(abspath $(SANDBOX)/work) $(if $(CONTROL),--control)
