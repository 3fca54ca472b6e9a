# Real programs under the preloaded library. See core/tests/preload/run.
.PHONY: test-preload test-programs
test-preload: build/libsnug.so
	core/tests/preload/run --quick --jobs 2

test-programs: build/libsnug.so build/deps-programs
	core/tests/preload/run
