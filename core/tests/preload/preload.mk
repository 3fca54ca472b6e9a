# Real programs under the preloaded library. See core/tests/preload/run.
.PHONY: test-preload test-programs
test-preload: build/libsnug.so
	core/tests/preload/run --quick --light --jobs 2

test-programs: build/libsnug.so build/deps-programs
	core/tests/preload/run

# The same programs of another release of Debian, in their short form: make test-programs-debian DEBIAN=13
.PHONY: test-programs-debian
test-programs-debian: build/libsnug.so
	core/tests/preload/debian $(or $(DEBIAN),13)
