# matrix.mk: the one library under every libc; see core/tests/matrix/run.
MATRIX_PROGRAMS = build/tests/startup/probe build/tests/startup/probe_dynamic build/matrix/short_threads build/matrix/fork_storm

.PHONY: test-matrix
test-matrix: programs-matrix
	core/tests/matrix/run

# On the C library's own allocator: the library is preloaded.
build/matrix/short_threads build/matrix/fork_storm: build/matrix/%: core/tests/stress/%.c $(TEST_HEADERS)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< -ldl

# After those of the musl suite, if these are asked for, too: they are partly the same.
.PHONY: programs-matrix
programs-matrix: library $(MATRIX_PROGRAMS) $(filter programs-musl,$(MAKECMDGOALS))
	@mkdir -p build/matrix
	$(MAKE) $(addprefix build/musl/tests/startup/,probe probe_dynamic) $(MUSL)
	musl-gcc -O2 -static-pie -pthread -o build/matrix/static_pie_musl core/tests/startup/probe.c
