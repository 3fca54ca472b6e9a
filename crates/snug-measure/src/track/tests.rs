use super::*;
use snug_process::fake::FakeProcesses;

const OWN: Pid = 100;

fn tracker(target: TrackOptions, processes: FakeProcesses) -> Tracker<FakeProcesses> {
    Tracker::new(processes, OWN, target, 4096, 100.0)
}

/// Resident pages of all that is measured, and how many processes that is.
fn read(tracker: &mut Tracker<FakeProcesses>, now_s: f64) -> (u64, u32) {
    let mut sum = (0, 0);
    tracker.read(now_s, &mut |stat| sum = (sum.0 + stat.rss_pages, sum.1 + 1));
    sum
}

fn tree() -> FakeProcesses {
    let mut processes = FakeProcesses::default();
    processes.set(1, 0, "init", 50);
    processes.set(OWN, 1, "snug", 50);
    processes.set(101, OWN, "server", 1000);
    // The child has the lower number, as after the numbers wrapped around.
    processes.set(90, 101, "worker", 200);
    processes.set(300, 1, "stranger", 5000);
    processes
}

#[test]
fn descendants_alone_are_measured() {
    let mut tracker = tracker(TrackOptions::default(), tree());
    assert_eq!(read(&mut tracker, 0.0), (1200, 2));
}

#[test]
fn daemons_come_back_as_direct_children() {
    let mut tracker = tracker(TrackOptions::default(), tree());
    read(&mut tracker, 0.0);
    tracker.processes.source.set(400, OWN, "daemon", 10);
    tracker.processes.source.remove(101);
    assert_eq!(read(&mut tracker, 0.1), (210, 2));
    assert_eq!(tracker.finish().processes.len(), 3);
}

#[test]
fn the_load_is_not_measured_but_known() {
    let mut tracker = tracker(TrackOptions::default(), tree());
    for _ in 0..3 {
        tracker.leave_out(500); // at each moment anew
    }
    assert_eq!(tracker.load_groups(), [500]);
    read(&mut tracker, 0.0);
    // A process group has the number of its first process.
    tracker.processes.source.set(500, OWN, "wrk", 4000);
    tracker.processes.source.set(501, 500, "wrk-helper", 4000);
    tracker.processes.source.set(502, 101, "worker", 10);
    assert_eq!(read(&mut tracker, 0.1), (1210, 3));
    assert!(tracker.is_load(500) && tracker.is_load(501) && !tracker.is_load(502));
    assert!(tracker.alive(0.1).iter().any(|(pid, _)| *pid == 501), "it is stopped with the rest");
    assert_eq!(tracker.finish().processes.len(), 3);
}

#[test]
fn what_was_used_never_shrinks() {
    let mut tracker = tracker(TrackOptions::default(), tree());
    assert_eq!(read(&mut tracker, 0.0).1, 2);
    assert_eq!(tracker.used_so_far(), (0.6, 16));
    tracker.processes.source.remove(90);
    assert_eq!(read(&mut tracker, 0.1).1, 1);
    assert_eq!(tracker.used_so_far(), (0.6, 16));
}

#[test]
fn only_matching_processes_count_and_exec_changes_that() {
    let target = TrackOptions { only: Some(Regex::new("^worker").unwrap()), ..TrackOptions::default() };
    let mut tracker = tracker(target, tree());
    assert_eq!(read(&mut tracker, 0.0), (200, 1));
    tracker.processes.source.set(101, OWN, "worker2", 1000);
    assert_eq!(read(&mut tracker, 0.1), (1200, 2));
}

#[test]
fn allocators_are_looked_for_in_the_mappings() {
    let target = TrackOptions { library: Some("/l/libjemalloc.so.2".into()), ..TrackOptions::default() };
    let mut processes = tree();
    let mapped = b"10-20 r-xp 0 fe:00 1 /l/libjemalloc.so.2\n20-30 r-xp 0 fe:00 2 /l/libc.so.6\n";
    processes.files.insert((101, "maps"), mapped.to_vec());
    processes.files.insert((90, "maps"), b"20-30 r-xp 0 fe:00 2 /l/libc.so.6\n".to_vec());
    processes.set(102, OWN, "starting", 10);
    processes.files.insert((102, "maps"), b"20-30 r-xp 0 fe:00 2 /l/ld-linux-x86-64.so.2\n".to_vec());
    let mut tracker = tracker(target, processes);
    read(&mut tracker, 0.0);
    let ended = tracker.finish();
    assert_eq!(
        (loaded(&ended, 101), loaded(&ended, 90), loaded(&ended, 102)),
        (Loaded::Yes, Loaded::No, Loaded::TooShort)
    );
}

#[test]
fn a_list_of_mappings_that_was_cut_short_proves_nothing() {
    let whole =
        "10-20 r-xp 0 fe:00 1 /bin/sh\n20-30 r-xp 0 fe:00 2 /l/libc.so.6\n30-40 r-xp 0 fe:00 3 /l/libx.so\n\
                 50-60 r-xp 0 fe:00 4 /l/libjemalloc.so.2\n60-70 r-xp 0 fe:00 5 /l/ld-linux-x86-64.so.2\n";
    let other = "11-21 r-xp 0 fe:00 6 /bin/env\n21-31 r-xp 0 fe:00 2 /l/libc.so.6\n\
                 51-61 r-xp 0 fe:00 4 /l/libjemalloc.so.2\n";
    let library = "/l/libjemalloc.so.2";
    // The process ends, or executes another program, after any part of the list; the second is cut short, too.
    let ends = (0..=whole.len()).map(|end| vec![String::new(), whole[..end].into()]);
    let executes = (0..=whole.len()).map(|end| vec![other.to_string(), whole[..end].into()]);
    let again = (0..other.len()).map(|end| vec![other[..end].into(), whole[..end.min(whole.len())].into()]);
    for next in ends.chain(executes).chain(again) {
        let mut processes = tree();
        processes.files.insert((101, "maps"), other.into());
        processes.next.insert((101, "maps"), next.iter().map(|text| text.clone().into_bytes()).collect());
        let mut tracker =
            tracker(TrackOptions { library: Some(library.into()), ..TrackOptions::default() }, processes);
        read(&mut tracker, 0.0);
        assert_ne!(loaded(&tracker.finish(), 101), Loaded::No, "{next:?}");
    }
}

#[test]
fn what_may_not_be_read_was_not_too_short() {
    let target = TrackOptions { library: Some("/l/libjemalloc.so.2".into()), ..TrackOptions::default() };
    let mut processes = tree();
    processes.closed = Some(90);
    let mut tracker = tracker(target, processes);
    read(&mut tracker, 0.0);
    let ended = tracker.finish();
    assert_eq!((loaded(&ended, 101), loaded(&ended, 90)), (Loaded::TooShort, Loaded::Unreadable));
}

fn loaded(ended: &Ended, pid: Pid) -> Loaded {
    ended.processes.iter().find(|(seen, _)| seen.pid == pid).unwrap().0.allocator_loaded
}

#[test]
fn who_has_ended_adds_no_details_of_others() {
    let mut processes = tree();
    (110..120).for_each(|pid| processes.set(pid, OWN, "worker", 10));
    let mut tracker = tracker(TrackOptions::default(), processes);
    read(&mut tracker, 0.0);
    (110..120).for_each(|pid| tracker.processes.source.remove(pid));
    let mut pss_bytes = Vec::new();
    tracker.read_details(0.1, &mut |_, rollup| pss_bytes.push(rollup.pss_bytes));
    pss_bytes.sort_unstable();
    assert_eq!(pss_bytes, [200 * 2048, 1000 * 2048]);
}

#[test]
fn processes_are_listed_when_there_may_be_new_ones() {
    let mut processes = tree();
    processes.newest = Some(300);
    let mut tracker = tracker(TrackOptions::default(), processes);
    read(&mut tracker, 0.0);
    tracker.processes.source.remove(90);
    tracker.processes.source.set(400, OWN, "late", 10);
    assert_eq!(read(&mut tracker, 0.1).0, 1000, "one has ended, the new one is not looked for");
    tracker.processes.source.newest = Some(400);
    assert_eq!(read(&mut tracker, 0.2).0, 1010);
}

#[test]
fn states_are_read_more_rarely_than_sizes() {
    let processes = FakeProcesses { newest: Some(300), ..tree() };
    let mut tracker = tracker(TrackOptions::default(), processes);
    read(&mut tracker, 0.0);
    read(&mut tracker, 5.0);
    let busy = String::from_utf8(tracker.processes.source.files[&(90, "stat")].clone()).unwrap();
    tracker.processes.source.files.insert((90, "stat"), busy.replace(" 20 10 ", " 20 60 ").into_bytes());
    tracker.processes.source.files.insert((90, "statm"), b"9000 500 30 1 0 700 0".to_vec());
    assert_eq!(read(&mut tracker, 5.1).0, 1500);
    assert_eq!(tracker.used_so_far().0, 0.6);
    tracker.refresh_all();
    tracker.processes.source.files.insert((90, "statm"), b"0 0 0 0 0 0 0".to_vec());
    read(&mut tracker, 5.2);
    assert_eq!(tracker.used_so_far().0, 1.1);
}

#[test]
fn zombies_hold_no_memory() {
    let mut tracker = tracker(TrackOptions::default(), tree());
    read(&mut tracker, 0.0);
    let zombie = String::from_utf8(tracker.processes.source.files[&(90, "stat")].clone()).unwrap();
    tracker.processes.source.files.insert((90, "stat"), zombie.replace(") S", ") Z").into_bytes());
    assert_eq!(read(&mut tracker, 0.1), (1000, 1));
}

#[test]
fn a_pid_that_comes_again_is_another_process() {
    let mut tracker = tracker(TrackOptions::default(), tree());
    assert_eq!(read(&mut tracker, 0.0), (1200, 2));
    tracker.processes.source.restart(90, OWN, "worker", 77);
    assert_eq!(read(&mut tracker, 0.1), (1100, 2));
    tracker.processes.source.restart(300, 101, "ours", 88);
    assert_eq!(read(&mut tracker, 0.2), (1200, 3), "what has the PID of a stranger is none");
    let ended = tracker.finish();
    assert_eq!(ended.processes.iter().filter(|(seen, _)| seen.pid == 90).count(), 2);
}

#[test]
fn the_allocator_is_looked_for_again_after_an_exec() {
    let library = "/l/libjemalloc.so.2";
    let mapped = |path: &str| format!("10-20 r-xp 0 fe:00 1 {path}\n20-30 r-xp 0 fe:00 2 /l/libc.so.6\n");
    let mut processes = tree();
    processes.files.insert((101, "maps"), mapped(library).into());
    let mut tracker =
        tracker(TrackOptions { library: Some(library.into()), ..TrackOptions::default() }, processes);
    read(&mut tracker, 0.0);
    tracker.processes.source.exec(101, "server");
    tracker.processes.source.files.insert((101, "maps"), mapped("/l/other.so").into());
    read(&mut tracker, 0.1);
    assert_eq!(loaded(&tracker.finish(), 101), Loaded::No, "of the same name and command line");
}
