//! What an allocator keeps, read from outside of its process, and what snug can be told from there.

pub(crate) mod account;
pub(crate) mod answers;
pub(crate) mod counters;
pub(crate) mod glibc_heap;
pub(crate) mod interpreters;
pub(crate) mod places;
pub(crate) mod profile;
pub(crate) mod remote;
