# vm.mk: Debian in virtual machines; see core/tests/vm/run. VM="debian-13 la57" takes some of them, ONLY and SUITES are run's.
VM = debian-13 kernel-6.1 kernel-new la57 cpus-16 arm64 arm64-16k
VM_SUITES = unit api jemalloc stress fuzz
VM_FLAGS = UNIT_VARIANTS=4k

.PHONY: programs-vm test-vm
programs-vm: all
	$(call programs_of,$(VM_SUITES) container,$(VM_FLAGS))
	$(MAKE) build/tests/sandbox/work
	$(if $(filter arm64%,$(VM)),$(MAKE) library $(AARCH64))
	$(if $(filter arm64%,$(VM)),$(call programs_of,$(VM_SUITES),$(VM_FLAGS) $(AARCH64)))
test-vm: build/deps-vm
	$(MAKE) programs-vm VM='$(VM)'
	+core/tests/vm/run $(VM)
