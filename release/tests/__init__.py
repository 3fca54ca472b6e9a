"""Quick tests of the packages: with what `make` built, on this machine."""
