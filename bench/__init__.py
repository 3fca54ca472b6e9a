"""Measures snug and its peers on real servers. The programs (bench/compare, bench/demo ...) run modules of this package.

    workloads   the servers, and the harness that their drivers share
    compare     runs `snug compare` on them; summary/ makes a page of its results
    measured    writes the numbers of README and of the guide, from what is in results
    bytes       where each resident byte of a server is; where: the same by `snug stats --where`
    leaks       programs with a leak in one line, and whether the tool names it
    small_servers   small servers and bursts, under all allocators at once
    large_heap  a hash map of gigabytes, with huge pages and without
    scaling     what threads share: locks per operation, what they cost, a model of more CPUs
    soak        the same servers for hours, in containers: does anything grow?
"""

# The layers, lowest first, as below bench: a module imports those of its own layer and of lower ones (tools/check).
LAYERS = (
    "workloads.harness peers",
    "workloads.shop",
    "workloads.heavy workloads.celery workloads.gunicorn workloads.rails_puma workloads.sidekiq workloads.catalog",
    "workloads.run summary soak",
    "leaks.programs",
    "bytes compare demo measured small_servers summarise where leaks.run",
    "fork_cost large_heap worst",
    "scaling",
)
