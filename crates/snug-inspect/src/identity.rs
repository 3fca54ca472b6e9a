//! The allocator of one process and what it holds now, read from outside.

use std::collections::BTreeMap;

use crate::inspector::{Hidden, Inspector};
use crate::judge;
use crate::kinds::Kind;
use crate::report::{AllocatorUsed, Problem};
use snug_heap::counters::Account;
use snug_heap::glibc_heap::{self, HeapSize};
use snug_heap::read_error::ReadError;
use snug_heap::remote;
use snug_heap::sharing::ForkHooks;
use snug_process::proc::Pid;
use snug_process::tree;

/// Which allocator a process uses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Identity {
    pub allocator: Option<AllocatorUsed>,
    /// Where its page of counters lies.
    pub counters_at: Option<u64>,
    /// Why the counters can't be read, although it uses snug.
    pub counters_error: Option<ReadError>,
    /// Where the asker leaves what the allocator answers, if it was preloaded.
    pub answers_at: Option<u64>,
    pub problems: Vec<Problem>,
    pub settings: BTreeMap<String, String>,
    /// It belongs to somebody else.
    pub not_permitted: bool,
}

impl Identity {
    /// Name and version for people.
    pub fn text(&self) -> String {
        match &self.allocator {
            Some(used) => match &used.version {
                Some(version) => format!("{} {version}", used.kind.name()),
                None => used.kind.name().to_string(),
            },
            None if self.not_permitted => "not permitted".into(),
            None => "unknown".into(),
        }
    }

    /// Whether the kernel does not let us read the process, or its heap alone.
    pub fn is_refused(&self) -> bool {
        self.not_permitted || self.is_heap_refused()
    }

    /// Whether it uses snug and the kernel does not let us read its counters, as kernel.yama.ptrace_scope can have it.
    pub fn is_heap_refused(&self) -> bool {
        self.counters_error == Some(ReadError::Refused)
    }

    pub fn kind(&self) -> Option<Kind> {
        self.allocator.as_ref().map(|used| used.kind)
    }

    /// Whether it uses what every program has, as far as is known.
    pub fn is_c_library(&self) -> bool {
        self.allocator.as_ref().is_none_or(|used| used.kind.is_c_library())
    }
}

/// Where allocators are looked up: `Inspector` in truth, made up in tests.
pub trait Allocators {
    /// None: the process has gone or is just starting.
    fn identify(&mut self, pid: Pid) -> Option<Identity>;
    fn account(&mut self, pid: Pid, address: u64, arenas: u32) -> Result<Account, ReadError>;
    /// What another allocator answered last. Ok(None): nothing lately; Err: there is no place for answers any more.
    fn answer(&mut self, pid: Pid, address: u64) -> Result<Option<HeapSize>, ReadError>;
    /// What is live under glibc.
    fn estimate(&mut self, pid: Pid) -> Option<HeapSize>;
    /// The user whose process it is.
    fn owner(&mut self, pid: Pid) -> Option<u32>;
    /// What hooks did before a fork.
    fn hooks(&mut self, pid: Pid) -> Option<ForkHooks>;

    /// What is live in a process and what its allocator holds, where that can be counted, estimated or asked for. `arenas`:
    /// how many its page of counters had when it was read last.
    fn heap(&mut self, pid: Pid, identity: &Identity, arenas: &mut u32) -> Option<HeapSize> {
        match identity.kind()? {
            Kind::Glibc => self.estimate(pid),
            Kind::Snug => {
                let account = self.account(pid, identity.counters_at?, *arenas).ok()?;
                *arenas = account.head.arena_count;
                Some(HeapSize { live_bytes: account.live_bytes(), held_bytes: account.resident_bytes() })
            }
            _ => self.answer(pid, identity.answers_at?).ok()?,
        }
    }
}

impl Allocators for Inspector {
    fn identify(&mut self, pid: Pid) -> Option<Identity> {
        match self.facts(pid) {
            Ok(facts) => {
                let report = judge::judge(&facts);
                Some(Identity {
                    allocator: report.allocator,
                    counters_at: facts.counters_at.filter(|_| facts.counters.is_some()),
                    counters_error: facts.counters_error,
                    answers_at: facts.answers_at,
                    problems: report.problems,
                    settings: report.settings,
                    not_permitted: false,
                })
            }
            Err(Hidden::NotPermitted) => Some(Identity { not_permitted: true, ..Identity::default() }),
            Err(Hidden::Gone) => None,
        }
    }

    fn account(&mut self, pid: Pid, address: u64, arenas: u32) -> Result<Account, ReadError> {
        remote::read_account(pid, address, arenas)
    }

    fn answer(&mut self, pid: Pid, address: u64) -> Result<Option<HeapSize>, ReadError> {
        remote::read_answer(pid, address)
    }

    fn estimate(&mut self, pid: Pid) -> Option<HeapSize> {
        glibc_heap::estimate_process(pid)
    }

    fn owner(&mut self, pid: Pid) -> Option<u32> {
        tree::owner(pid)
    }

    fn hooks(&mut self, pid: Pid) -> Option<ForkHooks> {
        self.fork_hooks(pid)
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod fake {
    use std::collections::HashMap;

    use crate::identity::*;
    use crate::report::How;
    use snug_heap::counters::{Class, Counters};

    /// Allocators made up by a test, by PID; how often each was asked for.
    pub struct FakeAllocators {
        pub kinds: HashMap<Pid, Kind>,
        /// Of all others.
        pub otherwise: Kind,
        pub owners: HashMap<Pid, u32>,
        pub hooks: HashMap<Pid, ForkHooks>,
        pub taken_blocks: u64,
        pub identified: u32,
        pub broken: bool,
        pub refused: bool,
        pub estimated: Vec<Pid>,
        /// Of those that are asked; None: there is no asker.
        pub answer: Option<Result<Option<HeapSize>, ReadError>>,
    }

    impl Default for FakeAllocators {
        fn default() -> FakeAllocators {
            FakeAllocators {
                kinds: HashMap::new(),
                otherwise: Kind::Glibc,
                owners: HashMap::new(),
                hooks: HashMap::new(),
                taken_blocks: 0,
                identified: 0,
                broken: false,
                refused: false,
                estimated: Vec::new(),
                answer: None,
            }
        }
    }

    impl Allocators for FakeAllocators {
        fn identify(&mut self, pid: Pid) -> Option<Identity> {
            self.identified += 1;
            let kind = *self.kinds.get(&pid).unwrap_or(&self.otherwise);
            let used = AllocatorUsed { kind, version: None, how: How::Preloaded, file: "/l".into() };
            let counters_at = (kind == Kind::Snug && !self.refused).then_some(0x1000);
            let counters_error = (kind == Kind::Snug && self.refused).then_some(ReadError::Refused);
            let answers_at = self.answer.as_ref().map(|_| 0x2000);
            Some(Identity {
                allocator: Some(used),
                counters_at,
                counters_error,
                answers_at,
                ..Identity::default()
            })
        }

        fn account(&mut self, _pid: Pid, address: u64, _arenas: u32) -> Result<Account, ReadError> {
            assert_eq!(address, 0x1000);
            if self.broken {
                return Err(ReadError::NotThere("gone"));
            }
            let class = Class {
                size_bytes: 100,
                outstanding_blocks: 50,
                slab_bytes: 8000,
                taken_blocks: self.taken_blocks,
                ..Class::default()
            };
            Ok(Account { head: Counters { arena_count: 1, ..Counters::default() }, classes: vec![class] })
        }

        fn answer(&mut self, _pid: Pid, address: u64) -> Result<Option<HeapSize>, ReadError> {
            assert_eq!(address, 0x2000);
            self.answer.clone().expect("there is an asker")
        }

        fn estimate(&mut self, pid: Pid) -> Option<HeapSize> {
            self.estimated.push(pid);
            (!self.broken).then_some(HeapSize { live_bytes: 70, held_bytes: 100 })
        }

        fn owner(&mut self, pid: Pid) -> Option<u32> {
            Some(*self.owners.get(&pid).unwrap_or(&1000))
        }

        fn hooks(&mut self, pid: Pid) -> Option<ForkHooks> {
            self.hooks.get(&pid).cloned()
        }
    }
}
