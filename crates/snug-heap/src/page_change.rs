//! The reasons why a page of a forked process is no longer its parent's, by what differs between the two. Pure.

use serde::Serialize;

/// Blocks and objects begin at multiples of this.
pub const GRANULE_BYTES: usize = 16;
/// What is compared at a time: a page of most systems, and of snug on all.
pub const PART_BYTES: usize = 4096;
const GRANULES: usize = PART_BYTES / GRANULE_BYTES;
const WORD_BYTES: usize = 8;

/// Why a page was copied. Of several causes the last counts: it would have had the page copied without the others, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Both have the same in it: counts that went up and down again, marks of a collector.
    WrittenBack,
    /// Counts of references to Python's objects, and nothing else.
    Counts,
    /// And what a collector notes in objects and beside them.
    Collector,
    /// And what malloc keeps in its memory and in free blocks, or Python or Ruby in their heaps.
    Allocator,
    /// And what an interpreter notes in code, or makes of it.
    Code,
    /// And new blocks beside those that the parent had, or in the place of one.
    Holes,
    /// No block of the parent lies in it.
    FreePages,
    /// Blocks that both have, and of which more is not known.
    Changed,
    /// Variables of programs and libraries.
    Variables,
    /// Stacks of threads.
    Stacks,
    /// More than half of it differs.
    Rewritten,
    /// It could not be compared.
    Unread,
}

/// Some of the granules of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granules([u64; GRANULES / 64]);

impl Granules {
    /// All of them, or none.
    pub fn all(are: bool) -> Granules {
        Granules([if are { u64::MAX } else { 0 }; GRANULES / 64])
    }

    /// Those of which it is true.
    pub fn where_is(mut is: impl FnMut(usize) -> bool) -> Granules {
        let mut granules = Granules::all(false);
        (0..GRANULES)
            .filter(|granule| is(*granule))
            .for_each(|granule| granules.0[granule / 64] |= 1 << (granule % 64));
        granules
    }

    /// Whether it is one of these.
    pub fn has(self, granule: usize) -> bool {
        self.0[granule / 64] >> (granule % 64) & 1 != 0
    }

    fn are_all(self) -> bool {
        self == Granules::all(true)
    }
}

/// What is known of the blocks in 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// In free blocks.
    pub free_in_parent: Granules,
    /// Likewise.
    pub free_in_child: Granules,
    /// What is no block, but the allocator's.
    pub of_allocator: Granules,
}

/// Compares 4 KiB of both. `language` says why a word of the child is another one, if it knows, and is asked with its offset;
/// `blocks` what is known of the blocks there, and is asked only where that is not enough. None: nothing differs.
pub fn cause_of(
    parent: &[u8],
    child: &[u8],
    mut language: impl FnMut(usize) -> Option<Cause>,
    blocks: impl FnOnce() -> Option<Blocks>,
) -> Option<Cause> {
    if parent == child {
        return None;
    }
    let words = parent.chunks_exact(WORD_BYTES).zip(child.chunks_exact(WORD_BYTES));
    let different: Vec<usize> = words
        .enumerate()
        .filter(|(_, (parent, child))| parent != child)
        .map(|(index, _)| index * WORD_BYTES)
        .collect();
    let mut cause = Cause::WrittenBack;
    let mut unexplained = Vec::new();
    for at in &different {
        match language(*at) {
            Some(of_word) => cause = cause.max(of_word),
            None => unexplained.push(*at),
        }
    }
    if unexplained.is_empty() {
        return Some(cause);
    }
    let is_rewritten = different.len() > parent.len() / WORD_BYTES / 2;
    let changed = if is_rewritten { Cause::Rewritten } else { Cause::Changed };
    let Some(blocks) = blocks() else { return Some(changed) };
    if blocks.free_in_parent.are_all() {
        return Some(Cause::FreePages);
    }
    let of_word = |at: usize| {
        let granule = at / GRANULE_BYTES;
        let (before, now) = (blocks.free_in_parent.has(granule), blocks.free_in_child.has(granule));
        match (before, now) {
            _ if blocks.of_allocator.has(granule) => Cause::Allocator,
            (true, false) => Cause::Holes,
            (_, true) => Cause::Allocator,
            (false, false) => changed,
        }
    };
    unexplained.into_iter().map(of_word).max().map(|of_words| of_words.max(cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(words: &[usize], language: &[(usize, Cause)], blocks: Option<Blocks>) -> Option<Cause> {
        let parent = vec![7u8; PART_BYTES];
        let mut child = parent.clone();
        words.iter().for_each(|word| child[word * 8] = 8);
        let knows = |at: usize| language.iter().find(|(word, _)| word * 8 == at).map(|(_, cause)| *cause);
        cause_of(&parent, &child, knows, || blocks)
    }

    #[test]
    fn the_last_cause_counts() {
        let known = [(4, Cause::Counts), (6, Cause::Code), (8, Cause::Collector)];
        assert_eq!(cause(&[], &known, None), None);
        assert_eq!(cause(&[4], &known, None), Some(Cause::Counts));
        assert_eq!(cause(&[4, 8], &known, None), Some(Cause::Collector));
        assert_eq!(cause(&[4, 6, 8], &known, None), Some(Cause::Code));
        assert_eq!(cause(&[4, 6, 9], &known, None), Some(Cause::Changed));
        let most: Vec<usize> = (0..300).collect();
        assert_eq!(cause(&most, &known, None), Some(Cause::Rewritten));
    }

    #[test]
    fn blocks_tell_holes_from_changes() {
        let only = |granule: usize| Granules::where_is(|other| other == granule);
        let blocks = Blocks {
            free_in_parent: Granules::where_is(|granule| granule < 4),
            free_in_child: Granules::where_is(|granule| granule == 0 || granule == 9),
            of_allocator: only(200),
        };
        let of = |words: &[usize]| cause(words, &[], Some(blocks));
        assert_eq!(of(&[1]), Some(Cause::Allocator), "free in both");
        assert_eq!(of(&[18]), Some(Cause::Allocator), "freed");
        assert_eq!(of(&[401]), Some(Cause::Allocator), "its own");
        assert_eq!(of(&[1, 3]), Some(Cause::Holes), "taken");
        assert_eq!(of(&[3, 30]), Some(Cause::Changed));
        let empty = Blocks { free_in_parent: Granules::all(true), ..blocks };
        assert_eq!(cause(&[0, 30], &[], Some(empty)), Some(Cause::FreePages));
        let most: Vec<usize> = (0..300).collect();
        assert_eq!(cause(&most, &[], Some(empty)), Some(Cause::FreePages));
        assert_eq!(cause(&most, &[], Some(blocks)), Some(Cause::Rewritten));
    }
}
