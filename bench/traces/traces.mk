# traces.mk: the trace recorder and replayer. Included by the top-level Makefile; paths are from its folder.

traces_source := bench/traces/src
traces_flags := -std=gnu11 -Wall -Wextra -Werror -Icore/include -I$(traces_source)
record_sources := $(addprefix $(traces_source)/,recorder.c recording_writer.c recording_path.c)
replay_parts := trace.c recording.c address_table.c own_memory.c
replay_sources := $(addprefix $(traces_source)/,snug_replay.c replay.c sampler.c report.c describe.c ticks.c $(replay_parts))
traces_headers := $(wildcard $(traces_source)/*.h) core/include/snug.h core/include/snug_counters.h

# -O2 comes first, so that CFLAGS may change it. Without -fno-builtin the compiler may drop pairs of malloc and free.
build/libsnug_record.so: $(record_sources) $(traces_headers)
	@mkdir -p build
	$(CC) -O2 -g $(CFLAGS) $(traces_flags) -fno-builtin -fPIC -shared -fvisibility=hidden -o $@ $(record_sources)

build/snug-replay: $(replay_sources) $(traces_headers)
	@mkdir -p build
	$(CC) -O2 -g $(CFLAGS) $(traces_flags) -fno-builtin-malloc -o $@ $(replay_sources) -pthread -ldl

.PHONY: test-traces programs-traces
programs-traces: build/libsnug_record.so build/snug-replay
test-traces: programs-traces
	CC="$(CC)" bench/traces/tests/run
