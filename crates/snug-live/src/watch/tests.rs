//! Watches made-up processes.

use crate::watch::*;
use snug_heap::hooks::HooksState;
use snug_heap::read_error::ReadError;
use snug_inspect::identity::fake::FakeAllocators;
use snug_process::fake::FakeProcesses;

fn watcher(choice: Choice) -> Watcher<FakeProcesses, FakeAllocators> {
    let mut processes = FakeProcesses::default();
    processes.set(1, 0, "init", 100);
    processes.set(10, 1, "big", 5000);
    processes.set(11, 10, "worker", 100);
    processes.set(20, 1, "small", 100);
    let mut watcher = Watcher::new(processes, FakeAllocators::default(), choice);
    watcher.own = 999;
    watcher.user = Some(1000);
    watcher.page_size_bytes = 4096;
    watcher
}

fn pids(readings: &[Reading]) -> Vec<Pid> {
    readings.iter().map(|reading| reading.pid).collect()
}

#[test]
fn what_is_worth_showing() {
    let mut watcher = watcher(Choice::default());
    watcher.allocators.kinds.insert(20, Kind::Jemalloc);
    assert_eq!(pids(&watcher.read(0.0)), [10, 20], "the large one and the one with an allocator of its own");
    watcher.allocators.owners.insert(10, 0);
    watcher.processes.source.set(30, 1, "new", 9000);
    watcher.allocators.owners.insert(30, 7);
    assert_eq!(pids(&watcher.read(1.0)), [10, 20], "somebody else's is not");
    watcher.processes.source.remove(10);
    assert_eq!(pids(&watcher.read(2.0)), [20]);
}

#[test]
fn all_of_a_control_group() {
    let directory = std::env::temp_dir().join(format!("snug-cgroup-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("below")).unwrap();
    std::fs::write(directory.join("cgroup.procs"), "20\n77\n").unwrap();
    std::fs::write(directory.join("below/cgroup.procs"), "11\n").unwrap();
    let mut watcher = watcher(Choice { cgroup: Some(directory.clone()), ..Choice::default() });
    assert_eq!(pids(&watcher.read(0.0)), [11, 20], "small ones, too");
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(watcher.read(1.0).is_empty());
}

#[test]
fn small_processes_are_found_when_they_have_grown() {
    let mut watcher = watcher(Choice::default());
    watcher.read(0.0);
    watcher.processes.source.set(20, 1, "small", 9000);
    let seen = (1..=LOOK_AGAIN_AFTER).fold(vec![], |_, at| watcher.read(at as f64));
    assert_eq!(pids(&seen), [10, 20]);
}

#[test]
fn trees_by_pid_and_by_name() {
    let mut by_pid = watcher(Choice { pids: vec![10], ..Choice::default() });
    let readings = by_pid.read(0.0);
    assert_eq!(pids(&readings), [10, 11]);
    assert_eq!(readings[1].depth, 1);
    let mut by_name = watcher(Choice { names: vec!["worker".into()], ..Choice::default() });
    assert_eq!(pids(&by_name.read(0.0)), [11]);
    by_name.processes.source.set(40, 1, "worker", 10);
    assert_eq!(pids(&by_name.read(1.0)), [11, 40], "new ones of that name appear");
}

#[test]
fn rates_are_between_two_readings() {
    let mut watcher = watcher(Choice { pids: vec![10], ..Choice::default() });
    watcher.allocators.kinds.insert(10, Kind::Snug);
    watcher.ticks_per_s = 10.0;
    let hooks =
        ForkHooks { group: 1, is_prepared: false, state: HooksState::default(), copied_bytes: Some(5) };
    watcher.allocators.hooks.insert(11, hooks.clone());
    let first = watcher.read(0.0);
    assert_eq!((&first[0].hooks, &first[1].hooks), (&None, &Some(hooks)));
    assert_eq!(first[0].cpu_cores, None);
    assert_eq!(first[0].live_bytes(), Some(5000));
    assert_eq!(first[0].heap.as_ref().unwrap().taken_bytes_per_s, None);
    assert_eq!(first[1].live_bytes(), None, "the worker is under glibc");
    watcher.allocators.taken_blocks = 60;
    let second = watcher.read(2.0);
    assert_eq!(second[0].cpu_cores, Some(0.0));
    assert_eq!(second[0].heap.as_ref().unwrap().taken_bytes_per_s, Some(3000.0));
    assert_eq!(second[0].rss_history.len(), 2);
    assert_eq!(second[0].pss_bytes, Some(5000 * 2 * 1024));
}

#[test]
fn another_program_in_its_place_is_looked_at_anew() {
    let mut watcher = watcher(Choice { pids: vec![10], ..Choice::default() });
    watcher.allocators.kinds.insert(10, Kind::Snug);
    watcher.read(0.0);
    watcher.read(1.0);
    assert_eq!(watcher.allocators.identified, 2, "10 and 11 once each");
    watcher.allocators.kinds.insert(10, Kind::Glibc);
    watcher.processes.source.set(10, 1, "other", 5000);
    assert_eq!(watcher.read(2.0)[0].kind(), Some(Kind::Glibc));
    assert_eq!(watcher.allocators.identified, 3);
    watcher.allocators.kinds.insert(10, Kind::Snug);
    watcher.processes.source.set(10, 1, "again", 5000);
    assert!(watcher.read(3.0)[0].heap.is_some());
    watcher.allocators.broken = true;
    assert!(watcher.read(4.0)[0].heap.is_none(), "its counters have gone");
}

#[test]
fn counters_that_could_not_be_read_are_tried_again() {
    let mut watcher = watcher(Choice { pids: vec![11], ..Choice::default() });
    watcher.allocators.kinds.insert(11, Kind::Snug);
    watcher.allocators.refused = true;
    let readings = watcher.read(0.0);
    assert!(readings[0].identity.is_heap_refused() && readings[0].heap.is_none());
    watcher.allocators.refused = false;
    let seen = (1..=LOOK_AGAIN_AFTER).fold(vec![], |_, at| watcher.read(at as f64));
    assert!(seen[0].heap.is_some() && !seen[0].identity.is_refused());
}

#[test]
fn what_is_refused() {
    let identity = |counters_error: Option<ReadError>, not_permitted| Identity {
        counters_error,
        not_permitted,
        ..Identity::default()
    };
    assert!(identity(None, true).is_refused() && !identity(None, true).is_heap_refused());
    assert!(identity(Some(ReadError::Refused), false).is_heap_refused());
    for other in [ReadError::OtherVersion("layout 9".into()), ReadError::NotThere("not written yet")] {
        assert!(!identity(Some(other), false).is_refused());
    }
    assert!(!identity(None, false).is_refused());
}

#[test]
fn estimates_are_made_where_they_are_wanted() {
    let choice = Choice { pids: vec![10], ..Choice::default() };
    let mut without = watcher(choice.clone());
    assert!(without.read(0.0)[0].glibc_heap.is_none() && without.allocators.estimated.is_empty());
    let mut watcher = watcher(choice).with_estimates();
    watcher.processes.source.set(12, 10, "large", ESTIMATE_BELOW_BYTES / 4096 + 1);
    watcher.allocators.kinds.insert(11, Kind::Jemalloc);
    let readings = watcher.read(0.0);
    assert_eq!(watcher.allocators.estimated, [10], "not of others, nor of what is too large");
    assert_eq!(readings[0].glibc_heap.map(|estimate| estimate.live_bytes), Some(70));
    assert!(watcher.read(ESTIMATE_EVERY_S / 2.0)[0].glibc_heap.is_some());
    assert_eq!(watcher.allocators.estimated.len(), 1, "not at every reading");
    watcher.allocators.broken = true;
    assert!(
        watcher.read(ESTIMATE_EVERY_S)[0].glibc_heap.is_none(),
        "an old one does not stand for a new one"
    );
    watcher.estimate_budget_s = Some(-1.0);
    watcher.read(2.0 * ESTIMATE_EVERY_S);
    assert_eq!(watcher.allocators.estimated.len(), 2, "beyond the budget");
}

#[test]
fn a_pid_that_comes_again_is_another_process() {
    let mut watcher = watcher(Choice { pids: vec![10], ..Choice::default() });
    watcher.read(0.0);
    assert!(watcher.read(1.0)[1].cpu_cores.is_some());
    watcher.processes.source.restart(11, 10, "worker", 77);
    let readings = watcher.read(2.0);
    assert_eq!((readings[1].pid, readings[1].cpu_cores), (11, None), "no rate between two processes");
    assert_eq!(watcher.allocators.identified, 3);
    watcher.processes.source.restart(11, 1, "stranger", 88);
    assert_eq!(pids(&watcher.read(3.0)), [10]);
}

#[test]
fn a_program_that_executes_itself_is_looked_at_anew() {
    let mut watcher = watcher(Choice { pids: vec![11], ..Choice::default() });
    watcher.read(0.0);
    watcher.allocators.kinds.insert(11, Kind::Jemalloc);
    assert_eq!(watcher.read(1.0)[0].kind(), Some(Kind::Glibc));
    watcher.processes.source.exec(11, "worker");
    assert_eq!(watcher.read(2.0)[0].kind(), Some(Kind::Jemalloc));
}
