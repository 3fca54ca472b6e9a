# Instruction counts of the fast paths against golden files. See core/tests/golden/run.
.PHONY: test-golden
test-golden: build/libsnug.so
	core/tests/golden/run
