//! Locks in this process.
