"""How many mappings a process has, and of what.

Ruby maps each page of its heap by itself and unmaps those that empty, whatever serves malloc: how many mappings that makes
says how scattered its objects are, and wanders (docs/decisions/0042-whose-mappings-wander.md). So they are counted apart. As
in crates/snug-heap/src/interpreters.rs they are found by what they look like: the page begins with the address of a structure
that holds the address of the page's first slot.
"""

import struct
from pathlib import Path

from ..workloads.harness import memory

KINDS = ("ruby", "stacks", "files", "snug", "others")  # others: large blocks, too, each of which has its mapping
RUBY_PAGE_BYTES = 16 << 10  # since Ruby 3.2 four times as long
RUBY_STRUCTURE_BYTES = 208
RUBY_FIRST_SLOT_MAX = 1024  # from the page's start


def of_process(pid):
    """Number of mappings by kind. Raises OSError if the process has ended, or is somebody else's."""
    listed = memory.parse_smaps(Path(f"/proc/{pid}/maps").read_text())
    with open(f"/proc/{pid}/mem", "rb", 0) as contents:
        def read(address, length):
            contents.seek(address)
            return contents.read(length)
        return count(listed, read)


def count(listed, read):
    """Number by kind of mappings that are listed by address; read(address, length) returns bytes, or raises OSError."""
    found = dict.fromkeys(KINDS, 0)
    reserved = memory.reserved_range(listed) or (0, 0)
    for index, mapping in enumerate(listed):
        below, above = listed[index - 1] if index else None, listed[index + 1] if index + 1 < len(listed) else None
        if not mapping["anonymous"]:
            kind = "stacks" if mapping["file"] == "[stack]" else "others" if mapping["file"] == "[heap]" else "files"
        elif reserved[0] <= mapping["start"] < reserved[1]:
            kind = "snug"
        elif _is_guard(mapping, above) or _is_guard(below, mapping):
            kind = "stacks"
        elif mapping["access"].startswith("rw") and _is_of_ruby(mapping["start"], read):
            kind = "ruby"
        else:
            kind = "others"
        found[kind] += 1
    return found


def _is_guard(below, above):
    """Whether one mapping is the page below a stack that may not be touched, and the other the stack."""
    return (below is not None and above is not None and below["end"] == above["start"] and below["anonymous"]
            and above["anonymous"] and below["access"].startswith("---") and above["access"].startswith("rw")
            and below["end"] - below["start"] <= memory.GUARD_MAX_BYTES)


def _is_of_ruby(page, read):
    if page % RUBY_PAGE_BYTES:
        return False
    try:
        structure = read(struct.unpack("Q", read(page, 8))[0], RUBY_STRUCTURE_BYTES)
    except (OSError, OverflowError, ValueError, struct.error):
        return False  # what is there is no address
    words = struct.unpack(f"{len(structure) // 8}Q", structure[:len(structure) // 8 * 8])
    return any(page < word <= page + RUBY_FIRST_SLOT_MAX for word in words)
