# Real programs under the preloaded library. See core/tests/preload/run.
.PHONY: test-preload test-programs
test-preload: library
	core/tests/preload/run --quick --light --jobs 2

test-programs: library build/deps-programs
	core/tests/preload/run

# The same programs of another release of Debian, in their short form: make test-programs-debian DEBIAN=13
.PHONY: test-programs-debian
test-programs-debian: library build/deps-system
	core/tests/preload/debian $(or $(DEBIAN),13)
