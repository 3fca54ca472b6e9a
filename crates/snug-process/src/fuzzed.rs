//! Fuzzed files of /proc, as the kernel, a container or anything between might write them: they are read or refused.

use snug_base::random::fuzz;

use crate::{maps, memory_group, proc, smaps};

const MAPS: &[u8] = b"55d0c0a00000-55d0c0a28000 r-xp 00001000 fe:00 99   /opt/my lib/libx.so (deleted)\n\
    7f2000000000-7f2000021000 rw-p 00000000 00:00 0 \n7f30-7f40 rw-p 00002000 fe:00 98 /lib/liby.so\n\
    3000-4000 rw-p 00000000 00:00 0 [heap]\n8000-9000 rw-p 00000000 00:00 0 [anon: glibc: malloc]\n\
    b000-c000 rw-s 00000000 00:01 9 /dev/zero (deleted)\nffffffffff600000-ffffffffff601000 --xp 0 00:00 0 [vsyscall]\n";

const SMAPS: &[u8] = b"55d0c0a00000-55d0c0a28000 rw-p 00000000 00:00 0 [heap]\nSize:   160 kB\nRss:    120 kB\nPss:  99 kB\n\
    Shared_Clean:  0 kB\nPrivate_Dirty: 120 kB\nReferenced: 8 kB\nAnonHugePages: 0 kB\nVmFlags: rd wr mr mw me ac\n\
    7f2000000000-7f2000021000 r--p 00002000 fe:00 98 /lib/liby.so\nRss: 18446744073709551615 kB\n";

const STATUS: &[u8] =
    b"Name:\tpuma 6 (x)\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t12\nPPid:\t1\nUid:\t0\t0\t0\t0\n\
    VmHWM:\t  22000 kB\nVmRSS:\t  20000 kB\nRssShmem:\t 12 kB\nVmSwap:\t 0 kB\nThreads:\t3\n";

const STAT: &[u8] = b"4711 (puma 6) (x)) S 1 4711 4711 0 -1 4194560 1000 0 0 0 12 34 0 0 20 0 3 0 987654 123456789 2000 \
    18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 94000000 94000100 94100000 140000000 140000100 140000200 140000300 0\n";

#[test]
fn fuzzed_lists_of_mappings() {
    fuzz(&[MAPS, SMAPS], |bytes| {
        maps::parse_maps(bytes);
        maps::parse_regions(bytes);
        smaps::parse_smaps(bytes);
        proc::parse_smaps_rollup(bytes);
    });
}

#[test]
fn fuzzed_files_of_a_process() {
    let environment = b"PATH=/usr/bin\0SNUG=profile:1\0=\0\xff=x\0";
    fuzz(
        &[STATUS, STAT, b"puma: cluster worker 0\0\0-p\0", b"200 100 50 1 0 99 0\n", environment],
        |bytes| {
            proc::parse_stat(bytes);
            proc::parse_resident_pages(bytes);
            proc::parse_shared_bytes(bytes);
            proc::parse_status_bytes(bytes, "VmHWM");
            proc::is_secure(bytes);
            proc::parse_command_line(bytes);
            proc::parse_arguments(bytes);
            proc::parse_environment(bytes);
            proc::parse_arguments_place(&String::from_utf8_lossy(bytes));
        },
    );
}

#[test]
fn fuzzed_control_groups() {
    let groups: &[&[u8]] = &[
        b"12:memory:/docker/4f2a\n3:cpu,cpuacct:/\n0::/../x\n",
        b"0::/kubepods.slice/pod7/../..\n",
        b"0::/..\n",
    ];
    fuzz(groups, |bytes| {
        let place = memory_group::place(&String::from_utf8_lossy(bytes), std::path::Path::new("/nowhere"));
        place.map(|group| (group.read(), group.nearest_limit(), group.kills()));
    });
}
