//! Wishes: values for settings that others ask for, at the end of the page of counters, as
//! core/include/snug_counters.h describes them. The test of `counters` compares every offset.

#![allow(missing_docs)] // fields are those of that header

use std::mem::{offset_of, size_of};

use crate::counters::{request_check, u64_at};

const WISHES: usize = 16;

/// A value that is asked for, as it lies in the page (`struct snug_counters_wish`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wish {
    pub request: u64,
    pub from: u64,
    pub until_ns: u64,
    pub check: u64,
    pub answer: u64,
    pub answer_to: u64,
}

impl Wish {
    /// One that is whole, for the process with that page.
    pub fn new(request: u64, from: u64, until_ns: u64, pid: u32) -> Wish {
        let check = request_check(request_check(request, from, pid), until_ns, pid);
        Wish { request, from, until_ns, check, ..Wish::default() }
    }

    /// Whether it waits to be taken (Q6).
    pub fn waits(&self, pid: u32) -> bool {
        self.answer_to != self.check
            && self.check == Wish::new(self.request, self.from, self.until_ns, pid).check
    }

    /// The value.
    pub fn value(&self) -> u32 {
        (self.request >> 32) as u32
    }
}

/// The wishes as they lie in the page.
#[repr(C)]
pub struct WishesLayout {
    pub wished: u64,
    pub sampling_until_ns: u64,
    pub sampling_for: u64,
    pub lease: Wish,
    pub wishes: [Wish; WISHES],
}

/// A copy of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wishes {
    /// Until when samples are asked for; 0: they are not, or for good.
    pub sampling_until_ns: u64,
    /// The process that asked for them.
    pub sampling_for: u32,
    pub lease: Wish,
    /// By the number of the setting.
    pub rows: Vec<Wish>,
}

impl Wishes {
    /// Reads a copy of a `WishesLayout`.
    pub fn parse(tail: &[u8]) -> Option<Wishes> {
        if tail.len() < size_of::<WishesLayout>() {
            return None;
        }
        let word = |offset: usize| u64_at(tail, offset);
        let wish = |at: usize| Wish {
            request: word(at + offset_of!(Wish, request)),
            from: word(at + offset_of!(Wish, from)),
            until_ns: word(at + offset_of!(Wish, until_ns)),
            check: word(at + offset_of!(Wish, check)),
            answer: word(at + offset_of!(Wish, answer)),
            answer_to: word(at + offset_of!(Wish, answer_to)),
        };
        let row = |number: usize| wish(offset_of!(WishesLayout, wishes) + number * size_of::<Wish>());
        Some(Wishes {
            sampling_until_ns: word(offset_of!(WishesLayout, sampling_until_ns)),
            sampling_for: word(offset_of!(WishesLayout, sampling_for)) as u32,
            lease: wish(offset_of!(WishesLayout, lease)),
            rows: (0..WISHES).map(row).collect(),
        })
    }
}
