"""Packages of snug: what `make dist` builds, and how it is tested."""
