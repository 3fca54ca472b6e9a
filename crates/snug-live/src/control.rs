//! Asks a running process under snug for a purge or for another setting, by the words of its counters page (the rules Q1
//! to Q6 of core/include/snug_counters.h). Nothing stops and no signal is sent: the process answers when it next passes a
//! slow path of its allocator, or its helper thread does.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use snug_base::failure::{Failure, Result, FAILED, UNKNOWN, USAGE};
use snug_base::{machine, VERSION};
use snug_heap::counters::{self, Control, Page};
use snug_heap::remote::{self, ProgramMemory};
use snug_heap::wishes::{Wish, Wishes, WishesLayout};
use snug_inspect::kinds::closest;
use snug_inspect::{access, options};
use snug_process::proc::{self, Pid, ProcFilesystem, Processes, Stat};

/// Time between two looks for an answer.
pub const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long a request of somebody else is left to be answered before ours takes its place.
const LEAVE_OTHERS: Duration = Duration::from_millis(500);

/// The setting that samples.
pub(crate) const SAMPLING: &str = "profile";

/// Why a process did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Silence {
    /// It used no CPU time: nothing ran that could answer.
    Idle,
    /// It works without slow calls into its allocator.
    Busy,
    /// It is stopped, by a signal or a debugger.
    Stopped,
}

/// What came of a request to purge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PurgeOutcome {
    pub pid: Pid,
    /// Bytes that the allocator gave back; None: no answer came, and the request was withdrawn.
    pub given_back_bytes: Option<u64>,
    /// Why none came.
    pub silence: Option<Silence>,
    pub rss_before_bytes: u64,
    pub rss_after_bytes: u64,
    /// Free memory that the allocator still holds: pages that it keeps and blocks in thread caches.
    pub held_bytes: u64,
    /// Whether the helper thread for idle moments is allowed.
    pub background: bool,
}

/// What came of a request to change a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetOutcome {
    pub pid: Pid,
    pub key: String,
    /// Its value before.
    pub before: String,
    pub value: u32,
    /// All settings now, in the syntax of the SNUG variable.
    pub settings: String,
    /// None: it is in effect. Else it waits in the process, which will take it at its next slow call.
    pub silence: Option<Silence>,
    /// The value that waited there before, which this one replaced.
    pub replaces: Option<u32>,
    /// Another value took this one's place meanwhile.
    pub overtaken_by: Option<u32>,
    /// The process for which samples are taken until it ends, whatever the setting.
    pub sampling_for: Option<Pid>,
}

/// Asks a process to give everything back that it can. Waits for the answer up to `timeout`.
///
/// Fails if there is no such process, if it may not be asked, or if it has no snug that understands requests.
pub fn purge(pid: Pid, timeout: Duration) -> Result<PurgeOutcome> {
    let mut request = ControlRequest::new(Asked::find(pid)?, u64::from(counters::REQUEST_PURGE));
    let rss_before_bytes = request.asked.rss_bytes()?;
    let reply = request.wait(timeout, true)?;
    let head = request.asked.page()?.head;
    Ok(PurgeOutcome {
        pid,
        given_back_bytes: reply.answer.map(|answer| answer >> 8),
        silence: reply.silence,
        rss_before_bytes,
        rss_after_bytes: request.asked.rss_bytes()?,
        held_bytes: head.dirty_bytes + head.cached_bytes,
        background: setting(&head.settings, "background").is_none_or(|value| value != "0"),
    })
}

/// Changes a setting of a process while it runs. Waits for the answer up to `timeout`; without one the request stays.
///
/// Fails as `purge` does, and if there is no such setting, if it can't change now, or if the value is not one of its.
pub fn set(pid: Pid, key: &str, value: &str, timeout: Duration) -> Result<SetOutcome> {
    let asked = Asked::find(pid)?;
    let page = asked.page()?;
    let (words, number) = checked_set_request(&page, key, value)?;
    let row = asked.wishes().map(|wishes| wishes.rows[row_of(words)]);
    let replaces = row.filter(|row| row.waits(page.head.pid)).map(|row| row.value());
    let mut request = ControlRequest::new(asked, words);
    request.has_row = row.is_some();
    let reply = request.wait(timeout, false)?;
    if let Some(answer) = reply.answer {
        refused(answer, key, value)?;
    }
    if reply.silence.is_some() && !request.written {
        return Err(Failure::new(format!(
            "another setting waits in process {pid}, and its snug {} keeps one at a time",
            page.head.snug_version
        ))
        .advise("try again when the process has done something"));
    }
    let before = setting(&page.head.settings, key).unwrap_or_default().to_string();
    let after = request.asked.page()?;
    let sampling = request.asked.wishes().filter(|wishes| wishes.sampling_until_ns != 0);
    Ok(SetOutcome {
        pid,
        key: key.into(),
        before,
        value: number,
        settings: after.head.settings,
        silence: reply.silence,
        replaces,
        overtaken_by: request.overtaken_by,
        sampling_for: sampling.filter(|_| key == SAMPLING).map(|wishes| wishes.sampling_for as Pid),
    })
}

/// Settings of a process that can change while it runs, with their values.
///
/// Fails as `purge` does.
pub fn changeable(pid: Pid) -> Result<Vec<(String, String)>> {
    let page = Asked::find(pid)?.page()?;
    let pairs = page.head.settings.split(',').filter_map(|pair| pair.split_once(':')).enumerate();
    let can_change = pairs.filter(|(index, _)| page.control.abilities >> (32 + index) & 1 == 1);
    Ok(can_change.map(|(_, (name, value))| (name.to_string(), value.to_string())).collect())
}

/// The value of one setting in the text of all.
pub fn setting<'a>(settings: &'a str, key: &str) -> Option<&'a str> {
    settings
        .split(',')
        .find_map(|pair| pair.split_once(':').filter(|(name, _)| *name == key))
        .map(|(_, value)| value)
}

/// Which kind of request sets this value, and its number.
fn parse_value(key: &str, value: &str) -> Result<(u32, u32)> {
    match value {
        "on" | "true" | "yes" => Ok((counters::REQUEST_SWITCH, 1)),
        "off" | "false" | "no" => Ok((counters::REQUEST_SWITCH, 0)),
        _ => value.parse().map(|number| (counters::REQUEST_SET, number)).map_err(|_| {
            Failure::new(format!("bad value '{value}' for option '{key}'"))
                .advise("use a number; or on or off, if it is a switch")
                .exit_code(USAGE)
        }),
    }
}

/// The word that asks for a setting, and the setting's new value.
fn checked_set_request(page: &Page, key: &str, value: &str) -> Result<(u64, u32)> {
    let (kind, number) = parse_value(key, value)?;
    let request = set_request(page, key, kind, number)?;
    // Of its own version the tool knows the ranges: a process that sleeps could not refuse before it wakes up.
    if let Some(row) = options::find(key).filter(|_| page.head.snug_version == VERSION) {
        row.parse(value).ok_or_else(|| bad_value(key, value, row.low.into(), row.high.into()))?;
    }
    Ok((request, number))
}

/// The word that asks for a setting.
pub(crate) fn set_request(page: &Page, key: &str, kind: u32, number: u32) -> Result<u64> {
    let names: Vec<&str> =
        page.head.settings.split(',').filter_map(|pair| Some(pair.split_once(':')?.0)).collect();
    let can_change = |index: usize| page.control.abilities >> (32 + index) & 1 == 1;
    let live: Vec<&str> =
        (0..names.len()).filter(|index| can_change(*index)).map(|index| names[index]).collect();
    let can = format!("settings that can change while it runs: {}", live.join(", "));
    let Some(index) = names.iter().position(|name| *name == key) else {
        let part = names.iter().copied().find(|name| name.contains(key) || key.contains(name));
        let hint =
            closest(key, names.iter().copied()).or(part).map(|name| format!("; did you mean '{name}'?"));
        return Err(Failure::new(format!("unknown option '{key}'{}", hint.unwrap_or_default()))
            .advise(can)
            .exit_code(USAGE));
    };
    if !can_change(index) {
        return Err(Failure::new(format!("option '{key}' can't change while the program runs"))
            .advise(format!("restart it with SNUG={key}:{number}; {can}"))
            .exit_code(USAGE));
    }
    Ok(u64::from(kind) | (index as u64) << 8 | u64::from(number) << 32)
}

fn bad_value(key: &str, value: &str, low: u64, high: u64) -> Failure {
    Failure::usage(
        format!("bad value '{value}' for option '{key}'"),
        format!("use {}", options::range(low, high)),
    )
}

/// A failure where the process refused.
fn refused(answer: u64, key: &str, value: &str) -> Result<()> {
    match (answer & 0xff) as u32 {
        counters::ANSWER_DONE => Ok(()),
        counters::ANSWER_OUT_OF_RANGE => Err(bad_value(key, value, answer >> 8 & 0xff_ffff, answer >> 32)),
        other => Err(Failure::new(format!("the process refused to set '{key}' (answer {other})"))),
    }
}

/// What came back.
struct Reply {
    answer: Option<u64>,
    silence: Option<Silence>,
}

/// A process under snug that understands requests.
pub(crate) struct Asked {
    pid: Pid,
    /// Of the program that was looked at, which alone is written to.
    memory: ProgramMemory,
    address: u64,
    source: ProcFilesystem,
    page_size_bytes: u64,
}

impl Asked {
    pub(crate) fn find(pid: Pid) -> Result<Asked> {
        let memory = ProgramMemory::to_write(pid);
        let found = access::look_at(pid)?;
        let Some(address) = found.counters_at else {
            return Err(Failure::new(format!("process {pid} uses {}, not snug", found.allocator_text))
                .advise(
                    "only snug takes requests from outside; `snug run -- PROGRAM` starts a program under it",
                )
                .exit_code(FAILED));
        };
        let mut asked = Asked {
            pid,
            memory,
            address,
            source: ProcFilesystem::new(),
            page_size_bytes: machine::page_size_bytes(),
        };
        let page = asked.page()?;
        if page.control.abilities >> counters::REQUEST_PURGE & 1 == 0 {
            return Err(Failure::new(format!(
                "snug {} in process {pid} takes no requests from outside",
                page.head.snug_version
            ))
            .advise("restart the process with a newer libsnug.so"));
        }
        // The open file belongs to this process for good, whoever gets the identifier next.
        asked.stat()?;
        Ok(asked)
    }

    pub(crate) fn page(&self) -> Result<Page> {
        let read = self.memory.within(|| remote::read_memory(self.pid, self.address, counters::HEAD_BYTES));
        let page = read.map_err(|_| self.gone())?;
        Page::parse(&page).map_err(|_| self.gone())
    }

    fn gone(&self) -> Failure {
        Failure::new(format!("process {} has ended, or runs another program now", self.pid))
            .exit_code(UNKNOWN)
    }

    fn stat(&mut self) -> Result<Stat> {
        let mut buffer = Vec::new();
        let read = self.source.read(self.pid, "stat", &mut buffer);
        let stat = read.ok().and_then(|()| proc::parse_stat(&buffer));
        stat.filter(|stat| stat.state != 'Z').ok_or_else(|| self.gone())
    }

    fn rss_bytes(&mut self) -> Result<u64> {
        Ok(self.stat()?.rss_pages * self.page_size_bytes)
    }

    fn write(&self, request: u64, from: u64, check: u64) -> Result<()> {
        let mut words = Vec::with_capacity(24);
        [request, from, check].iter().for_each(|word| words.extend_from_slice(&word.to_ne_bytes()));
        let address = self.address + counters::REQUEST_OFFSET as u64;
        self.memory.write(address, &words).map_err(|_| self.gone())
    }

    /// None: the library is older than that.
    pub(crate) fn wishes(&self) -> Option<Wishes> {
        self.memory.within(|| remote::read_wishes(self.pid, self.address))
    }

    /// Writes a wish, `offset` bytes behind the first of their words, and then says that there is one (Q5).
    pub(crate) fn write_wish(&self, offset: usize, wish: &Wish) -> Result<()> {
        let address = self.address + counters::WISHES_OFFSET as u64;
        let words = [wish.request, wish.from, wish.until_ns, wish.check].map(u64::to_ne_bytes).concat();
        let write = |address, bytes: &[u8]| self.memory.write(address, bytes).map_err(|_| self.gone());
        write(address + offset as u64, &words)?;
        write(address + offset_of!(WishesLayout, wished) as u64, &wish.from.to_ne_bytes())
    }
}

/// A request to a process, which may wait there.
struct ControlRequest {
    asked: Asked,
    words: u64,
    from: u64,
    /// It waits beside others, in the words of its setting.
    has_row: bool,
    written: bool,
    /// The value of a later request for the same setting, which counts instead.
    overtaken_by: Option<u32>,
    /// The request of somebody else that was seen there, and since when.
    others: Option<(u64, Instant)>,
}

impl ControlRequest {
    fn new(asked: Asked, words: u64) -> ControlRequest {
        ControlRequest {
            asked,
            words,
            from: next_from(),
            has_row: false,
            written: false,
            overtaken_by: None,
            others: None,
        }
    }

    fn check(&self, page: &Page) -> u64 {
        counters::request_check(self.words, self.from, page.head.pid)
    }

    fn answer_in(&self, page: &Page) -> Option<u64> {
        (page.control.answer_to == self.check(page)).then_some(page.control.answer)
    }

    /// The answer, if there is one; else sees to it that the request waits there. Fails if the process has ended.
    fn look(&mut self) -> Result<Option<u64>> {
        let page = self.asked.page()?;
        if self.has_row {
            return self.look_at_row(&page);
        }
        let check = self.check(&page);
        let answer = self.answer_in(&page);
        let is_there = page.control.request_check == check;
        if answer.is_none() && !is_there && may_write(&page, self.words, &mut self.others) {
            self.asked.write(self.words, self.from, check)?;
            self.written = true;
        }
        Ok(answer)
    }

    fn look_at_row(&mut self, page: &Page) -> Result<Option<u64>> {
        let wish = Wish::new(self.words, self.from, 0, page.head.pid);
        let offset = offset_of!(WishesLayout, wishes) + row_of(self.words) * size_of::<Wish>();
        if !self.written {
            self.asked.write_wish(offset, &wish)?;
            self.written = true;
        }
        let row = self.asked.wishes().map(|wishes| wishes.rows[row_of(self.words)]).unwrap_or_default();
        let is_others = row.check != wish.check && row.answer_to != wish.check;
        // Of two that write at the same time both may be torn.
        if is_others && Wish::new(row.request, row.from, row.until_ns, page.head.pid).check != row.check {
            self.written = false;
        } else if is_others {
            self.overtaken_by = Some(row.value());
            return Ok(Some(counters::ANSWER_DONE.into()));
        }
        Ok((row.answer_to == wish.check).then_some(row.answer))
    }

    /// Has it wait there until it is answered or the time is over. `withdraw`: without an answer it is taken back.
    fn wait(&mut self, timeout: Duration, withdraw: bool) -> Result<Reply> {
        let start = Instant::now();
        let stat_before = self.asked.stat()?;
        loop {
            if let Some(answer) = self.look()? {
                return Ok(Reply { answer: Some(answer), silence: None });
            }
            if start.elapsed() >= timeout {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let stat = self.asked.stat()?;
        // It may be answered in the last moment.
        let answer = if withdraw { self.withdraw()? } else { self.look()? };
        let silence = answer.is_none().then(|| why_silent(&stat_before, &stat));
        Ok(Reply { answer, silence })
    }

    /// Takes it back. Returns the answer, if one came in the last moment.
    fn withdraw(&self) -> Result<Option<u64>> {
        let page = self.asked.page()?;
        if self.answer_in(&page).is_none() && page.control.request_check == self.check(&page) {
            self.asked.write(0, 0, 0)?;
        }
        Ok(self.answer_in(&self.asked.page()?))
    }
}

/// The number of the setting that a request is for.
fn row_of(words: u64) -> usize {
    (words >> 8 & 0xff) as usize
}

fn why_silent(before: &Stat, after: &Stat) -> Silence {
    let worked = |stat: &Stat| stat.user_ticks + stat.system_ticks;
    match after.state {
        'T' | 't' => Silence::Stopped,
        _ if worked(before) == worked(after) => Silence::Idle,
        _ => Silence::Busy,
    }
}

/// Whether a request may be written now (Q4): nobody else's waits there, or it is for a purge and its process is gone or
/// it had its time, or both are for one setting. `others` is the request that was seen there and since when.
fn may_write(page: &Page, words: u64, others: &mut Option<(u64, Instant)>) -> bool {
    let Control { request, request_from, request_check, answer_to, .. } = page.control;
    let waits = request_check != answer_to
        && request_check == counters::request_check(request, request_from, page.head.pid);
    if !waits {
        return true;
    }
    if request as u32 & 0xff != counters::REQUEST_PURGE {
        return words as u32 & 0xff != counters::REQUEST_PURGE && row_of(words) == row_of(request);
    }
    let since = match others {
        Some((check, since)) if *check == request_check => *since,
        _ => others.insert((request_check, Instant::now())).1,
    };
    let requester = request_from as u32;
    since.elapsed() >= LEAVE_OTHERS || !std::path::Path::new(&format!("/proc/{requester}")).exists()
}

/// Q3: no two requests are from the same.
pub(crate) fn next_from() -> u64 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // A later process may get this one's identifier: its clock tells them apart.
    let count = (now.as_micros() as u32).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
    u64::from(std::process::id()) | u64::from(count) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_heap::counters::Counters;

    fn page(settings: &str, live: u64) -> Page {
        let head = Counters { pid: 7, settings: settings.into(), ..Counters::default() };
        let control = Control { abilities: 0b1110 | live << 32, ..Control::default() };
        Page { head, control }
    }

    #[test]
    fn settings_are_numbered_by_their_text() {
        let page = page("verbose:0,background:1,thp:0", 0b010);
        let request = set_request(&page, "background", counters::REQUEST_SWITCH, 1).unwrap();
        assert_eq!(request, 3 | 1 << 8 | 1 << 32);
        let unknown = set_request(&page, "backround", 2, 1).unwrap_err();
        assert!(unknown.message.contains("did you mean 'background'?"), "{unknown}");
        assert!(unknown.advice.unwrap().ends_with("runs: background"));
        let fixed = set_request(&page, "thp", 2, 1).unwrap_err();
        assert!(fixed.message.contains("can't change") && fixed.advice.unwrap().contains("SNUG=thp:1"));
        assert_eq!(setting("a:1,bc:22", "bc"), Some("22"));
        assert_eq!(setting("a:1,bc:22", "c"), None);
    }

    #[test]
    fn values_are_numbers_or_words() {
        assert_eq!(parse_value("x", "42").unwrap(), (counters::REQUEST_SET, 42));
        assert_eq!(parse_value("x", "off").unwrap(), (counters::REQUEST_SWITCH, 0));
        assert!(parse_value("x", "many").unwrap_err().message.contains("bad value 'many'"));
        assert!(parse_value("x", "-1").is_err() && parse_value("x", "99999999999").is_err());
    }

    #[test]
    fn refusals_are_explained() {
        assert!(refused(1, "k", "v").is_ok());
        let failure = refused(5 | 2 << 8 | 100 << 32, "k", "101").unwrap_err();
        assert_eq!(failure.advice.as_deref(), Some("use a number from 2 to 100"));
        assert!(refused(2, "k", "v").is_err());
    }

    #[test]
    fn waiting_requests_of_others_are_respected() {
        let mut page = page("a:1", 1);
        let mut others = None;
        let purge = u64::from(counters::REQUEST_PURGE);
        assert!(may_write(&page, purge, &mut others), "nothing waits");
        page.control.request = 1;
        page.control.request_from = u64::from(std::process::id());
        page.control.request_check = counters::request_check(1, page.control.request_from, 7);
        assert!(!may_write(&page, purge, &mut others), "that of a living process waits");
        page.control.answer_to = page.control.request_check;
        assert!(may_write(&page, purge, &mut others), "it was answered");
        page.control.answer_to = 0;
        page.control.request_from = 0x7fff_fff0;
        assert!(may_write(&page, purge, &mut others), "a torn one is none");
        page.control.request_check = counters::request_check(1, page.control.request_from, 7);
        assert!(may_write(&page, purge, &mut others), "its process is gone");
        let of = |setting: u64, value: u64| u64::from(counters::REQUEST_SET) | setting << 8 | value << 32;
        page.control.request = of(4, 6);
        page.control.request_check = counters::request_check(of(4, 6), page.control.request_from, 7);
        assert!(!may_write(&page, purge, &mut others), "a setting was promised");
        assert!(!may_write(&page, of(3, 1), &mut others), "another setting was promised");
        assert!(may_write(&page, of(4, 1), &mut others), "of one setting the last counts");
    }

    #[test]
    fn requests_differ() {
        assert_ne!(next_from(), next_from());
    }
}
