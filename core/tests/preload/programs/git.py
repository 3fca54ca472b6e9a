from catalog import program
from programs.archives import write_text

DATES = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "C",
         "GIT_COMMITTER_EMAIL": "c@example.org", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


@program("git", needs={"git": "git"}, light=True, proves=["git --version"], watches=["git"], quick_limit_s=120, full_limit_s=400)
def git(test):
    """git: commits of many files, branches, merge, gc, fsck, clone, blame, bisectable history"""
    repository = test.folder / "repository"
    plain = make_history(test, test.folder / "plain", preload=False)
    head = make_history(test, repository, preload=True)
    test.expect(head == plain, f"the last commit is {head} under the library and {plain} without")
    in_repository = ["git", "-C", repository, "-c", "pack.threads=2"]
    aggressive = [] if test.quick else ["--aggressive"]
    test.run(in_repository + ["gc", "-q", "--prune=now"] + aggressive, env=DATES)
    test.run(in_repository + ["fsck", "--full", "--strict", "--no-dangling"], env=DATES)
    test.run(in_repository + ["repack", "-adfq", "--depth=20", "--window=20"], env=DATES)
    test.run(["git", "clone", "-q", "--no-local", repository, "clone"], env=DATES)
    test.run(["git", "-C", "clone", "fsck", "--full"], env=DATES)
    for argv in (["log", "--stat", "--format=%H.%s"], ["log", "-p", "-M", "--format=%H", "-3"], ["blame", "d1/file1"],
                 ["grep", "-c", "dirty.*slab"], ["archive", "HEAD"]):
        test.same_as_plain(["bash", "-o", "pipefail", "-c", f"git -C clone {' '.join(argv)} | sha256sum"], env=DATES)
    got = test.run(["git", "-C", "clone", "rev-parse", "HEAD"], env=DATES).stdout.strip()
    test.expect(got == head, f"the clone's HEAD is {got}, not {head}")


def make_history(test, repository, preload):
    """Builds the same history each time (fixed dates), and returns the last commit's name."""
    files, commits = (300, 6) if test.quick else (2000, 20)

    def run(*argv, second=0):
        date = f"{1_600_000_000 + second} +0000"
        env = {**DATES, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        return test.run(["git", "-C", repository, *argv], env=env, preload=preload)

    repository.mkdir()
    run("init", "-q", "-b", "main")
    for number in range(files):
        folder = repository / f"d{number % 23}"
        folder.mkdir(exist_ok=True)
        write_text(folder / f"file{number}", 20 + number % 60)
    run("add", "-A")
    run("commit", "-q", "-m", "All files", second=1)
    for commit in range(commits):
        for number in range(commit, files, commits):
            with open(repository / f"d{number % 23}/file{number}", "a") as out:
                out.write(f"changed in {commit}\n")
        run("commit", "-q", "-a", "-m", f"Change {commit}", second=10 + commit)
    run("checkout", "-q", "-b", "side", "HEAD~3")
    (repository / "side").write_text("side\n")
    run("add", "side")
    run("commit", "-q", "-m", "Side", second=500)
    run("checkout", "-q", "main")
    run("merge", "-q", "--no-ff", "-m", "Merge side", "side", second=501)
    return run("rev-parse", "HEAD").stdout.strip()
