"""Tests of what `make dist` built, on clean systems: `make test-dist`. They need root and a network."""
