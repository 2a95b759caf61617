//! The number by which a storage refuses the write of a stale holder.
//!
//! No lock can stop a process that was frozen inside one poll from finishing that poll's write after
//! somebody else got the lock. The storage can, if every write carries the holder's token and the
//! storage takes none that is lower than one it has seen:
//!
//! ```sql
//! UPDATE stock SET items = ?1, fence = ?2 WHERE sku_id = ?3 AND fence <= ?2
//! ```
//!
//! A write that changes no row came from a stale holder.
//!
//! # What is guaranteed
//!
//! Tokens of a key grow from hold to hold, for as long as its counter is kept in the store (24 hours
//! after the last use by default, [`keep_fence`](crate::LockClientBuilder::keep_fence)). They grow
//! also when the counter is lost (expiry, a restart without data, failover to a replica that lags),
//! as long as the clock of the server that grants is not behind the last token. Within one hold,
//! nested calls included, the token stays the same.
//!
//! # What is not
//!
//! That tokens are consecutive, or comparable between keys.

use std::fmt;

/// A fencing token: higher than every token of the same key that was drawn in an earlier hold.
///
/// It fits in 53 bits, so that JSON numbers, SQL `BIGINT`s and Lua keep it exactly.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), distlock::LockError> {
/// use distlock::{LockClient, LockKey};
///
/// let locks = LockClient::in_memory();
/// let key = || LockKey::literal("stock:lock:7");
/// let first = locks.lock(key()).run(|held| async move { held.fencing_token().await }).await??;
/// let second = locks.lock(key()).run(|held| async move { held.fencing_token().await }).await??;
/// assert!(second > first);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The name under which a token travels, as an HTTP header and as gRPC metadata; its value is the
    /// number in decimal.
    ///
    /// ```
    /// assert_eq!(distlock::FencingToken::HEADER, "x-fencing-token");
    /// ```
    pub const HEADER: &'static str = "x-fencing-token";

    pub(crate) const fn new(token: u64) -> Self {
        Self(token)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number for a signed column, as SQL has them. Never negative.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        // 53 bits.
        self.0.cast_signed()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}
