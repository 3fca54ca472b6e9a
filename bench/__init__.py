"""Measures snug and its peers on real servers. The programs (bench/compare, bench/demo ...) run modules of this package.

    workloads   the servers, and the harness that their drivers share
    compare     runs `snug compare` on them; summary/ makes a page of its results
    bytes       where each resident byte of a server is
    soak        the same servers for hours, in containers: does anything grow?
"""
