//! Samples of a process under snug for as long as this program lives, by a wish in its counters page (the rules Q5 and
//! Q6 of core/include/snug_counters.h) that has to be said again and again.

use std::mem::offset_of;
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::control::{next_from, set_request, setting, Asked, SAMPLING};
use snug_base::failure::{Failure, Result};
use snug_heap::counters;
use snug_heap::wishes::{Wish, Wishes, WishesLayout};
use snug_process::proc::Pid;
use snug_process::system;

/// For how long samples are asked for, and how often this is said again: what is killed leaves them on for so long.
const LEASE_FOR: Duration = Duration::from_secs(15);
const RENEW_EVERY: Duration = Duration::from_secs(4);

/// Samples that a process takes while this is held. It ends them by itself soon after nobody asks for them any more,
/// however this program ended. Where they are on for good this changes nothing.
pub struct SamplingLease {
    held: Arc<Mutex<Held>>,
    /// Its end ends the thread that asks again and again.
    renews: Option<Sender<()>>,
}

/// What is asked for.
struct Held {
    asked: Asked,
    words: u64,
    /// As it was written last.
    wish: Wish,
    /// Somebody else who asks for the same.
    beside: Option<Pid>,
}

impl SamplingLease {
    /// Begins to ask, without waiting.
    ///
    /// Fails as `set` does.
    pub fn begin(pid: Pid, mean_bytes: u32) -> Result<SamplingLease> {
        let asked = Asked::find(pid)?;
        let page = asked.page()?;
        let words = set_request(&page, SAMPLING, counters::REQUEST_SET, mean_bytes)?;
        let mut held = Held { asked, words, wish: Wish::default(), beside: None };
        if held.asked.wishes().is_none() {
            return Err(Failure::new(format!("the snug in process {pid} does not end samples by itself"))
                .advise("restart the process with a newer libsnug.so"));
        }
        held.renew()?;
        let held = Arc::new(Mutex::new(held));
        let (renews, ends) = channel();
        let shared = Arc::clone(&held);
        std::thread::spawn(move || {
            while ends.recv_timeout(RENEW_EVERY) == Err(RecvTimeoutError::Timeout)
                && lock(&shared).renew().is_ok()
            {}
        });
        Ok(SamplingLease { held, renews: Some(renews) })
    }

    /// Whether the process has heard of it.
    pub fn has_begun(&self) -> Result<bool> {
        let held = lock(&self.held);
        let page = held.asked.page()?;
        // Where samples are on for good nothing need be heard.
        let has_begun = |wishes: Wishes| wishes.sampling_until_ns == 0 || !wishes.lease.waits(page.head.pid);
        let is_on = setting(&page.head.settings, SAMPLING) != Some("0");
        Ok(is_on && held.asked.wishes().is_none_or(has_begun))
    }

    /// Asks for the end of the samples. None: somebody else asks for them still.
    ///
    /// Fails if the process has ended.
    pub fn end(mut self) -> Result<Option<SamplingEnd>> {
        self.renews = None;
        let is_ours = lock(&self.held).release()?;
        Ok(is_ours.then_some(SamplingEnd(self.held)))
    }
}

/// The end of samples, which the process hears of at its next slow call.
pub struct SamplingEnd(Arc<Mutex<Held>>);

impl SamplingEnd {
    /// Whether it has, or has ended itself.
    pub fn is_heard(&self) -> bool {
        !matches!(lock(&self.0).waits(), Ok(true))
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Held {
    fn lease(&self) -> Result<(Wish, u32)> {
        let page = self.asked.page()?;
        let wishes = self.asked.wishes();
        Ok((wishes.map(|wishes| wishes.lease).unwrap_or_default(), page.head.pid))
    }

    /// Asks for the time to come. What somebody else asks for is as good.
    fn renew(&mut self) -> Result<()> {
        let (there, pid) = self.lease()?;
        let now_ns = system::monotonic_time().as_nanos() as u64;
        let is_whole = there.check == Wish::new(there.request, there.from, there.until_ns, pid).check;
        if is_whole && there.check != self.wish.check && there.until_ns > now_ns && there.value() != 0 {
            self.words = there.request;
            self.beside = Some(there.from as u32 as Pid);
        }
        let until_ns = now_ns + LEASE_FOR.as_nanos() as u64;
        self.write(Wish::new(self.words, next_from(), until_ns, pid))
    }

    /// Asks no more. False: somebody else still does.
    fn release(&mut self) -> Result<bool> {
        let (there, pid) = self.lease()?;
        let is_shared = self.beside.is_some_and(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists());
        if there.check != self.wish.check || is_shared {
            return Ok(false);
        }
        self.write(Wish::new(self.words & 0xffff_ffff, next_from(), 0, pid))?;
        Ok(true)
    }

    fn write(&mut self, wish: Wish) -> Result<()> {
        self.wish = wish;
        self.asked.write_wish(offset_of!(WishesLayout, lease), &wish)
    }

    fn waits(&self) -> Result<bool> {
        let (there, pid) = self.lease()?;
        Ok(there.waits(pid))
    }
}
