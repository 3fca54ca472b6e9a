#!/bin/sh
# Before libsnug0 is removed: says which files name its library still, since ld.so complains of it at each start of a program
# then. They are the administrator's, and stay as they are; the removal goes on (docs/decisions/0046).
set -e
trap '' PIPE # as if somebody read it
[ "$1" = remove ] || exit 0
root=${DPKG_ROOT:-}
ours='((/usr)?/lib/(snug/lib(snug|jemalloc)|[a-z0-9_-]+-linux-gnu/libsnug)\.so|libsnug\.so)'
named=$(grep -rlsE "^([^#]*[[:space:]:=\"'])?$ours" "$root/etc/ld.so.preload" "$root/etc/environment" "$root/etc/default" \
  "$root/etc/systemd/system" || :)
if [ -n "$named" ]; then
  {
    echo "libsnug0: these files name its library. Programs will start without it, and ld.so complains each time:"
    echo "$named" | sed 's/^/  /'
    echo "Take its name out of them, or install libsnug0 again."
  } >&2 || :
fi
exit 0
