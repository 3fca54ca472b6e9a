# roots.sh: root file systems of other releases, to run programs in. Sourced by bash scripts in the project's folder.
#
#   release_name debian-11        sets name and mirror; false: there is no such release here
#   make_root RELEASE             sets root; installs the release into build/roots-of-tests/RELEASE by debootstrap, once
#   inside ROOT COMMAND...        runs it there, with the project's folder under its own path
#
# DEBIAN_MIRROR, DEBIAN_SECURITY_MIRROR and UBUNTU_MIRROR name other archives. Needs root, debootstrap and a network. BASE=file.tar names a root that debootstrap made before.
# shellcheck shell=bash

# Prints the first mirror that apt reads Debian's main from. Others have a folder debian, too: download.docker.com/linux.
debian_mirror() {
  local found
  # shellcheck disable=SC2016  # apt replaces these
  found=$(apt-get indextargets --format '$(SITE) $(ORIGIN) $(LABEL) $(COMPONENT)' 2>/dev/null |
    sed -nE 's,^(https?://[^ ]*/debian)/? Debian Debian main$,\1,p' | head -n 1 || true)
  echo "${found:-http://deb.debian.org/debian}"
}

# Sets name and mirror: DEBIAN_MIRROR, or where this machine has its packages if that is an archive of Debian's.
release_name() {
  mirror=${DEBIAN_MIRROR:-$(debian_mirror)}
  case $1 in
    debian-11) name=bullseye ;;
    debian-12) name=bookworm ;;
    debian-13) name=trixie ;;
    ubuntu-16.04) name=xenial ;;
    debian-sid) name=sid ;;
    ubuntu-24.04) name=noble ;;
    ubuntu-26.04) name=resolute ;;
    *) return 1 ;;
  esac
  [[ $1 != ubuntu-* ]] || mirror=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
}

# Runs a command inside, where nothing that it mounts or starts outlives it.
inside() {
  # shellcheck disable=SC2016  # the inner shell expands these
  unshare --mount --pid --fork --kill-child --propagation private sh -c '
    root=$1 project=$2 && shift 2
    mount --bind "$root" "$root" && mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
    mount -t sysfs -o ro sysfs "$root/sys" && mount -t tmpfs tmpfs "$root/run" &&
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp" && mkdir -p "$root$project" && mount --bind "$project" "$root$project" &&
    exec chroot "$root" "$@"' sh "$1" "$PWD" "${@:2}"
}

# Sets keyring to a file of Ubuntu's keys: this machine's, or that of Debian 13's package.
ubuntu_keyring() {
  keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
  [ ! -e "$keyring" ] || return 0
  make_root debian-13 || return
  keyring=$root$keyring
  [ -e "$keyring" ] || install_inside "$root" ubuntu-keyring
}

# Sets root. The log is beside it.
make_root() {
  local release=$1 options=(--variant=minbase) script=()
  root=$PWD/build/roots-of-tests/$release
  [ ! -e "$root/.made" ] || return 0
  if [[ $release = ubuntu-* ]]; then
    ubuntu_keyring || return
    options+=(--components=main,universe --keyring="$keyring")
    script=(/usr/share/debootstrap/scripts/gutsy) # which is that of all later ones, too
  fi
  release_name "$release" || return
  root=$PWD/build/roots-of-tests/$release
  rm -rf "$root"
  mkdir -p "$root"
  if [ -n "${BASE:-}" ]; then tar -C "$root" -xf "$BASE"
  else debootstrap "${options[@]}" "$name" "$root" "$mirror" "${script[@]}" >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2; return 1; }; fi
  # No server starts by its installation.
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod 755 "$root/usr/sbin/policy-rc.d"
  if [[ $release = ubuntu-* ]]; then
    printf 'deb %s %s main universe\n' "$mirror" "$name" >"$root/etc/apt/sources.list"
  elif [ "$name" = sid ]; then
    # Of experimental, apt takes only what sid does not have. A mirror may keep both as they were some weeks ago.
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/90-mirror"
    printf 'deb %s %s main\n' "$mirror" sid "$mirror" experimental >"$root/etc/apt/sources.list"
  else
    printf 'deb %s %s main\ndeb %s %s-security main\n' "$mirror" "$name" \
      "${DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security}" "$name" >"$root/etc/apt/sources.list"
  fi
  rm -f "$root"/etc/apt/sources.list.d/{debian,ubuntu}.sources
  cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
  inside "$root" apt-get -qq update >>"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2; return 1; }
  touch "$root/.made"
}

# install_inside ROOT PACKAGE...: those of them that the release has.
install_inside() {
  local packages=() package
  for package in "${@:2}"; do
    if [[ $(chroot "$1" apt-cache policy "$package" 2>/dev/null) = *'Candidate: '[!\(]* ]]; then packages+=("$package"); fi
  done
  inside "$1" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${packages[@]}" >>"$1.log" 2>&1 ||
    { tail -n 5 "$1.log" >&2; return 1; }
}
