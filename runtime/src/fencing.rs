//! The number by which a storage refuses the write of a stale holder.
//!
//! A token is drawn in the store, in one order with the grants; what is promised of it stands at its
//! type. What the storage does with it is left to the storage.

use std::fmt;

/// A fencing token: higher than every token of the same key that was drawn in an earlier hold.
///
/// No lock can stop a process that was frozen inside one poll from finishing that poll's write after
/// somebody else got the lock. The storage can, if every write carries the holder's token and the
/// storage takes none that is lower than one it has seen:
///
/// ```sql
/// UPDATE stock SET items = $1, fence = $2 WHERE sku_id = $3 AND fence <= $2
/// ```
///
/// A write that changes no row came from a stale holder. `examples/fenced_store.rs` shows it happen.
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
///
/// # To another service
///
/// Where the storage stands behind a service, the token travels with the request, under the name
/// [`HEADER`](Self::HEADER):
///
#[cfg_attr(feature = "tonic", doc = "```")]
#[cfg_attr(not(feature = "tonic"), doc = "```ignore")]
/// # fn demo(
/// #     token: distlock::FencingToken,
/// #     mut http_request: http::Request<()>,
/// #     mut grpc_request: tonic::Request<()>,
/// # ) -> Option<u64> {
/// use distlock::FencingToken;
///
/// // As an HTTP header, and as metadata of a gRPC request:
/// http_request.headers_mut().insert(FencingToken::HEADER, token.get().into());
/// grpc_request.metadata_mut().insert(FencingToken::HEADER, token.get().into());
///
/// // The other side hands the number on to its storage.
/// let token: u64 = http_request.headers().get(FencingToken::HEADER)?.to_str().ok()?.parse().ok()?;
/// let token: u64 = grpc_request.metadata().get(FencingToken::HEADER)?.to_str().ok()?.parse().ok()?;
/// # Some(token)
/// # }
/// ```
///
/// # What is guaranteed
///
/// Tokens of a key grow from hold to hold, whatever the clock of the store does: one counter for all
/// keys of a server (in a cluster, of a slot) is kept without an end. They grow also when the counter
/// is lost (a restart without data, failover to a replica that lags), as long as the clock of the server
/// that grants is not behind the last token. Within one hold,
/// nested calls included, the token stays the same. It fits in 53 bits, so that JSON numbers, SQL
/// `BIGINT`s and Lua keep it exactly.
///
/// # What is not
///
/// That tokens are consecutive, or comparable between keys.
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
