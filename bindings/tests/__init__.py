"""Tests of what runs in the processes of others: gem, wheel and crate, made of what `make` built."""
