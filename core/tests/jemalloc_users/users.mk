# Programs that were made for jemalloc, built from their sources with ours in its place. See core/tests/jemalloc_users/run.
.PHONY: test-jemalloc-users
test-jemalloc-users: all build/deps-jemalloc_users build/zig/installed
	core/tests/jemalloc_users/run $(ONLY)
