# Instruction counts of the fast paths against golden files, and of samples. See core/tests/golden/run and sampling.
.PHONY: test-golden
test-golden: build/libsnug.so
	@status=0; core/tests/golden/run || status=1; core/tests/golden/sampling || status=1; exit $$status
