#!/bin/sh
# Before libsnug0 is unpacked: says that the kernel is too old, and lets it be, since a package may be made ready for another.
set -e
release=$(uname -r)
case ${release%%-*} in
  [0-2].* | 3.[0-9] | 3.[0-9].*)
    echo "snug needs Linux 3.10 or newer, and this kernel is $release: it may not work" >&2
    ;;
esac
exit 0
