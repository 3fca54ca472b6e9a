# unit.mk: builds and runs the unit tests of the core. Included by the top-level Makefile, or used alone:
#
#   make -f core/tests/unit/unit.mk test-unit
#   make ... CC=musl-gcc BUILD=build/musl                                                   under musl
#   make ... CC=aarch64-linux-gnu-gcc BUILD=build/aarch64 RUN='qemu-aarch64 -L /usr/aarch64-linux-gnu'
#   make ... UNIT_VARIANTS=4k UNIT_ONLY=pages                                               one of them
#
# Each program is compiled twice, with and without SNUG_DEBUG, and linked once per size of the system's pages. With it
# less is optimised, which is sooner done; a failed check needs line numbers only, a debugger UNIT_DEBUG_INFO=-g.
# Prints "N passed, N failed" last. `make programs-unit` only builds.
BUILD ?= build
RUN ?=
TEST_TIMEOUT_S ?= 300

UNIT := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
UNIT_BUILD := $(BUILD)/tests/unit
UNIT_ONLY ?= $(patsubst $(UNIT)/%_test.c,%,$(wildcard $(UNIT)/*_test.c))
UNIT_DEBUG_INFO ?= -g1
UNIT_VARIANTS ?= 4k 16k 64k 4k-debug 64k-debug
UNIT_CC = $(CC) -std=gnu11 -O2 -g -Wall -Wextra -Werror -fno-builtin -pthread -iquote $(UNIT_BUILD) -iquote $(UNIT)/../../src $(CFLAGS)
UNIT_SOURCES := $(wildcard $(UNIT)/*.h $(UNIT)/../support/*.h $(UNIT)/../../src/*.[ch] $(UNIT)/../../include/*.h)
UNIT_PROGRAMS = $(foreach name,$(UNIT_ONLY),$(foreach variant,$(UNIT_VARIANTS),$(UNIT_BUILD)/$(name)-$(variant)))
# RUN with little address space, if the emulator is slow with much (../../../Makefile); not for what is about address space.
RUN_SMALL ?= $(RUN)
UNIT_OF_ADDRESS_SPACE = $(if $(RUN),$(filter $(foreach name,map memory start sys,$(UNIT_BUILD)/$(name)-%),$(UNIT_PROGRAMS)))

$(UNIT_BUILD)/sources_above_sys.h: $(UNIT)/../../src/snug.c
	@mkdir -p $(@D)
	sed '/include "sys.c"/d' $< > $@

$(UNIT_BUILD)/%.o: $(UNIT)/%_test.c $(UNIT_SOURCES) $(UNIT_BUILD)/sources_above_sys.h
	@mkdir -p $(@D)
	$(UNIT_CC) $(UNIT_DEBUG_INFO) -c -o $@ $<

$(UNIT_BUILD)/%.debug.o: $(UNIT)/%_test.c $(UNIT_SOURCES) $(UNIT_BUILD)/sources_above_sys.h
	@mkdir -p $(@D)
	$(UNIT_CC) -DSNUG_DEBUG=1 -O1 $(UNIT_DEBUG_INFO) -c -o $@ $<

$(UNIT_BUILD)/page_size_%k.o: $(UNIT)/page_size.c
	@mkdir -p $(@D)
	$(UNIT_CC) -DUNIT_PAGE_BYTES='($*ul * 1024)' -c -o $@ $<

define unit_variant
$(UNIT_BUILD)/%-$(1)k: $(UNIT_BUILD)/%.o $(UNIT_BUILD)/page_size_$(1)k.o
	$$(UNIT_CC) -Wl,--wrap=getauxval -o $$@ $$^ -ldl

$(UNIT_BUILD)/%-$(1)k-debug: $(UNIT_BUILD)/%.debug.o $(UNIT_BUILD)/page_size_$(1)k.o
	$$(UNIT_CC) -Wl,--wrap=getauxval -o $$@ $$^ -ldl
endef
$(foreach size,4 16 64,$(eval $(call unit_variant,$(size))))

.SECONDARY: $(foreach name,$(UNIT_ONLY),$(UNIT_BUILD)/$(name).o $(UNIT_BUILD)/$(name).debug.o) \
            $(foreach size,4 16 64,$(UNIT_BUILD)/page_size_$(size)k.o)

.PHONY: test-unit programs-unit
programs-unit: $(UNIT_PROGRAMS)
test-unit: programs-unit
	@$(if $(RUN),export TEST_EMULATED=1;) status=0; \
	$(if $(UNIT_OF_ADDRESS_SPACE),$(UNIT)/../support/run_tests.sh unit/addresses $(TEST_TIMEOUT_S) "$(RUN)" $(UNIT_OF_ADDRESS_SPACE) || status=1;) \
	$(UNIT)/../support/run_tests.sh unit $(TEST_TIMEOUT_S) "$(RUN_SMALL)" $(filter-out $(UNIT_OF_ADDRESS_SPACE),$(UNIT_PROGRAMS)) || status=1; \
	exit $$status
