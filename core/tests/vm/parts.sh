# parts.sh: what the machines of core/tests/vm/run are made of, kept in $vm. Sourced by it, beside roots.sh.
# shellcheck shell=bash disable=SC2154  # root and mirror are of roots.sh
vm=$PWD/build/vm

# Ruby and Python are programs to be watched.
system_packages=(systemd systemd-sysv systemd-container dbus udev procps python3 ruby podman crun util-linux e2fsprogs mount)
# What a kernel needs for its disks and ports, and what the tests use of it: no root has modules.
modules=(virtio_pci virtio_blk virtio_console virtio_rng ext4 overlay autofs4 loop zram fuse)

# apt_of RELEASE ARCHITECTURE COMMAND ARGUMENT...: apt's commands, those of Debian 13, about any other release, in
# $vm/packages. A mirror may keep lists for longer than these are valid.
apt_of() {
  local release=$1 architecture=$2 command=$3 lists=$vm/lists/$1-$2
  shift 3
  make_root debian-13 && release_name debian-13 || return
  mkdir -p "$lists/lists/partial" "$vm/packages/partial"
  echo "deb [arch=$architecture] $mirror $release main" >"$lists/sources"
  local options=(-o Acquire::Check-Valid-Until=false -o Dir::Etc::sourcelist="$lists/sources"
    -o Dir::Etc::sourceparts=/dev/null -o Dir::State::Lists="$lists/lists" -o Dir::Cache="$lists"
    -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o APT::Sandbox::User=root)
  if [ ! -e "$lists/updated" ]; then
    inside "$root" apt-get "${options[@]}" -qq update && touch "$lists/updated" || return
  fi
  inside "$root" env -C "$vm/packages" "$command" "${options[@]}" -qq "$@"
}

# depends_of RELEASE ARCHITECTURE PACKAGE PATTERN: those that it depends on whose names begin so.
depends_of() {
  apt_of "$1" "$2" apt-cache depends --important "$3" | sed -n "s/^ *Depends: \($4[^ ]*\).*/\1/p"
}

# unpack RELEASE ARCHITECTURE PACKAGE FOLDER
unpack() {
  local file
  apt_of "$1" "$2" apt-get download "$3" && file=$(ls -t "$vm/packages/$3"_*.deb | head -n 1) &&
    dpkg -x "$file" "$4" && rm "$file"
}

# make_kernel PACKAGE RELEASE ARCHITECTURE: sets kernel, a folder with vmlinuz, initrd and version. The package is the one
# that depends on the newest kernel. The initrd loads modules and starts core/tests/vm/init, which goes on.
make_kernel() {
  kernel=$vm/kernels/$1-$2
  if [ ! -e "$kernel/vmlinuz" ]; then
    local image part tree=$work/kernel version
    image=$(depends_of "$2" "$3" "$1" linux-image-)
    [ -n "$image" ] || { echo "vm: $2 has no $1 for $3" >&2; return 1; }
    rm -rf "$tree" "$kernel"
    mkdir -p "$kernel/modules"
    for part in "$image" $(depends_of "$2" "$3" "$image" 'linux-\(base\|binary\|modules\)-[0-9]'); do # the newest are in parts
      unpack "$2" "$3" "$part" "$tree" || return
    done
    unpack trixie "$3" busybox-static "$tree/busybox" || return
    [ -d "$tree/lib/modules" ] || ln -sfn usr/lib "$tree/lib" # the older ones have it in /lib
    version=$(ls "$tree/lib/modules")
    depmod -b "$tree" "$version" && keep_modules "$tree" "$version" || return
    cp "$tree/busybox/usr/bin/busybox" "$kernel/busybox" || return
    echo "$version" >"$kernel/version"
    find "$tree" -name 'vmlinuz*' -type f -exec mv {} "$kernel/vmlinuz" \;
    rm -rf "$tree"
  fi
  make_initrd
}

# In the order in which they can be loaded; the kernel of a machine may have some built in, or not at all.
keep_modules() {
  local module file number=100
  for module in "${modules[@]}"; do
    modprobe -d "$1" -S "$2" --show-depends "$module" 2>/dev/null | sed -n 's/^insmod \([^ ]*\).*/\1/p'
  done | awk '!seen[$0]++' | while read -r file; do
    number=$((number + 1))
    case $file in
      *.xz) xz -dc "$file" ;;
      *.zst) zstd -dcq "$file" ;;
      *) cat "$file" ;;
    esac >"$kernel/modules/$number-$(basename "${file%%.ko*}").ko"
  done
  ls "$kernel"/modules/*ext4.ko >/dev/null
}

make_initrd() {
  local tree=$work/initrd
  rm -rf "$tree"
  mkdir -p "$tree"/{bin,dev,proc,sys,root}
  cp "$kernel/busybox" "$tree/bin/busybox" && cp -r "$kernel/modules" "$tree/modules" && cp core/tests/vm/init "$tree/init" &&
    (cd "$tree" && find . | cpio --quiet -o -H newc) | gzip -1 >"$kernel/initrd"
}

# Debian 13 with systemd, as a disk; the unit in it runs the tests.
make_system() {
  local stamp="${system_packages[*]} $(cat core/tests/vm/{snug-vm.service,start} | md5sum)" tree=$work/system
  [ ! -e "$vm/root.ext4" ] || [ "$(cat "$vm/root.packages")" != "$stamp" ] || return 0
  make_root debian-13 && cp -a "$root" "$tree" && install_inside "$tree" "${system_packages[@]}" || return
  rm -rf "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/* "$tree"/usr/share/{doc,locale,man}
  cp core/tests/vm/snug-vm.service "$tree/etc/systemd/system/" && cp core/tests/vm/start "$tree/usr/local/sbin/snug-vm" &&
    ln -s ../snug-vm.service "$tree/etc/systemd/system/multi-user.target.wants/" &&
    echo 0123456789abcdef0123456789abcdef >"$tree/etc/machine-id" &&
    echo snug-vm >"$tree/etc/hostname" && disk_of "$tree" "$vm/root.ext4" 1000 && echo "$stamp" >"$vm/root.packages"
  rm -rf "$tree"
}

# disk_of TREE IMAGE FREE_MIB
disk_of() {
  local mib
  mib=$(du -sm "$1" | cut -f1)
  rm -f "$2"
  truncate -s $((mib + mib / 10 + $3))M "$2"
  mke2fs -q -F -t ext4 -O ^has_journal -d "$1" "$2"
}

# make_project OUT ARCHITECTURE: OUT/project.ext4, what the tests need of this folder, with the C library for a machine that
# has nothing else.
make_project() {
  local out=$1 tree=$work/project build=build files
  [ "$2" != arm64 ] || build=build/aarch64
  rm -rf "$tree"
  mkdir -p "$tree"
  files=(VERSION core/tests/{vm,container,fuzz/lists,support} deploy/systemd docs/how-to/roll-out-systemd.md "$build/libsnug.so"
    "$build/libsnug.so.0" "$build/jemalloc" "$build"/tests/{unit,api,jemalloc,stress,fuzz})
  [ "$2" = arm64 ] || files+=(build/snug build/tests/{container,sandbox})
  cp -a --parents "${files[@]}" "$tree" && find "$tree" -name '*.[oda]' -delete || return
  if [ "$2" = arm64 ]; then
    mkdir -p "$tree"/{bin,dev,proc,sys,tmp,etc} && ln -s . "$tree/usr" &&
      cp "$kernel/busybox" "$tree/bin/" && cp -a /usr/aarch64-linux-gnu/lib "$tree/lib" && rm -f "$tree"/lib/*.[ao] || return
  fi
  disk_of "$tree" "$out/project.ext4" 200
}
