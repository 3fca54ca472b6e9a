"""The list of workloads: what bench/workloads/run, bench/compare and the documents go by."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .celery import drive as celery
from .gunicorn import drive as gunicorn
from .harness import session
from .rails_puma import drive as rails
from .sidekiq import drive as sidekiq

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def require_pool():
    """For the programs in Ruby alone."""
    session.require_ruby("concurrent")


@dataclass(frozen=True)
class Workload:
    name: str
    summary: str
    command: tuple  # relative to this directory, then arguments
    require: Callable[[], None]  # fails with a WorkloadError if something is missing that a run needs
    only: str = ""  # the --only of `snug compare` that measures just the server; empty: the whole program
    full_seconds: int = 60  # about how long one run takes
    quick_seconds: int = 15
    forks_much: bool = False  # measured only if named, or by bench/compare --forks
    python: bool = False  # so that PYTHONMALLOC means something to it

    def command_line(self, *arguments):
        """What to execute, as a list; paths are absolute."""
        return [str(HERE / self.command[0]), *self.command[1:], *arguments]

    def compare_options(self):
        return ["--only", self.only] if self.only else []


WORKLOADS = (
    Workload("ruby_threads", "32 Ruby threads that allocate, wait and keep: the demo's program",
             ("ruby_threads.rb",), require_pool, full_seconds=80, quick_seconds=8),
    Workload("rails_puma", "Rails on Puma with 5 threads: pages, JSON, CSV reports, imports",
             ("rails_puma/drive",), rails.require, "snug-bench-rails", 40, 10),
    Workload("rails_puma_cluster", "the same with 3 forked workers of 5 threads, preload_app",
             ("rails_puma/drive", "--cluster"), rails.require, "snug-bench-rails", 40, 12),
    Workload("sidekiq", "Rails jobs on Sidekiq with 20 threads",
             ("sidekiq/drive",), sidekiq.require, "snug-bench-sidekiq", 50, 15),
    Workload("celery_prefork", "Python tasks on Celery with 8 forked processes",
             ("celery/drive", "--pool", "prefork"), celery.require, "snug-bench-celery", 40, 12, python=True),
    Workload("celery_threads", "the same on Celery with 20 threads",
             ("celery/drive", "--pool", "threads"), celery.require, "snug-bench-celery", 50, 12, python=True),
    Workload("ruby_swing", "30 Ruby threads that make and drop arrays of strings: a heap that swings",
             ("ruby_swing.rb",), require_pool, full_seconds=90, quick_seconds=5),
    Workload("celery_heavy", "a large application on Celery with 8 forked processes",
             ("celery/drive", "--heavy"), celery.require_heavy, "snug-bench-celery", 60, 25, forks_much=True, python=True),
    Workload("celery_heavy_24", "the same with 24 forked processes",
             ("celery/drive", "--heavy", "--concurrency", "24"), celery.require_heavy, "snug-bench-celery", 80, 40, forks_much=True, python=True),
    Workload("gunicorn_heavy", "a large application on gunicorn --preload with 8 workers",
             ("gunicorn/drive",), gunicorn.require, "snug-bench-gunicorn", 50, 20, forks_much=True, python=True),
    Workload("rails_puma_cluster_8", "rails_puma with 8 forked workers of 5 threads, preload_app",
             ("rails_puma/drive", "--workers", "8"), rails.require, "snug-bench-rails", 60, 20, forks_much=True),
)


def find(name):
    """The workload of that name, or None."""
    return next((workload for workload in WORKLOADS if workload.name == name), None)


def names(forking=True):
    return ", ".join(workload.name for workload in WORKLOADS if forking or not workload.forks_much)


def by_default():
    """What is measured if nothing is named."""
    return [workload for workload in WORKLOADS if not workload.forks_much]


def forking():
    """The servers that fork much: those whose memory hooks decide."""
    return [workload for workload in WORKLOADS if workload.forks_much or workload.name == "rails_puma_cluster"]
