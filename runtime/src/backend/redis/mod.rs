//! Locks in Redis.
