import hashlib

from catalog import program

WORDS = ("allocator arena block bitmap cache class cluster dirty fork fragment free heap janitor large map page pool "
         "purge quota realloc resident run shard slab slot steal thread trim zone").split()
PACKERS = {"xz -T2 -3 --block-size=2MiB": "xz -dc -T2", "gzip -6": "gzip -dc", "bzip2": "bzip2 -dc",
           "zstd -q -T2 -12": "zstd -qdc"}


def write_text(path, lines):
    """Text with enough repetition to compress and enough noise to cost memory; the same on each run."""
    state = 12345
    with open(path, "w") as out:
        for number in range(lines):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            picks = " ".join(WORDS[(state >> shift) % len(WORDS)] for shift in range(8, 56, 6))
            out.write(f"{state >> 20:013x} {picks} {number}\n")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@program("sort", needs={"sort": "coreutils"}, light=True, proves=["sort --version"], watches=["sort"])
def sort(test):
    """sort, uniq, join over large text: threads, spilled runs, merges"""
    text = test.folder / "text"
    write_text(text, 300_000 if test.quick else 2_000_000)
    test.run(["sort", "--parallel=2", "-S", "48M", "-T", test.folder, "-o", "sorted", text])
    test.run(["sort", "--check=quiet", "sorted"])
    test.run(["sort", "-S", "400M", "-k3,3", "-k9,9n", "-r", "-o", "by_key", text])
    test.run(["sort", "-k3,3", "-k9,9n", "-r", "--check=quiet", "by_key"])
    test.run(["sort", "-S", "100M", "-o", "again", "by_key"])
    test.expect(digest(test.folder / "again") == digest(test.folder / "sorted"), "sorting by key lost or changed lines")
    test.same_as_plain(["bash", "-c", f"cut -d' ' -f3 {text} | sort --parallel=2 | uniq -c | sort -rn | sha256sum"])
    test.same_as_plain(["bash", "-c", "join sorted again | awk '{ n += length($0); k[$3]++ } END { print n; "
                                      "for (w in k) print w, k[w] | \"sort\" }'"])


@program("archives", needs={"tar": "tar", "xz": "xz-utils", "gzip": "gzip", "bzip2": "bzip2", "zstd": "zstd"}, light=True,
         proves=["tar --version", "xz --version", "gzip --version", "zstd --version"], watches=["xz"])
def archives(test):
    """tar, xz -T2, gzip, bzip2, zstd: pack and unpack a tree, compare each byte"""
    tree = test.folder / "tree"
    tree.mkdir()
    files = 40 if test.quick else 200
    for number in range(files):
        write_text(tree / f"file{number}", 1000 + 400 * (number % 17))
    for compress, decompress in PACKERS.items():
        name = compress.split()[0]
        test.run(["bash", "-o", "pipefail", "-c", f"tar -cf - tree | {compress} > packed.{name}"])
        test.run(["bash", "-o", "pipefail", "-c",
                  f"mkdir out.{name} && {decompress} < packed.{name} | tar -xf - -C out.{name}"])
        test.run(["diff", "-r", "tree", f"out.{name}/tree"])
    test.note(f"{files} files, {len(PACKERS)} formats")
