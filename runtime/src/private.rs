//! What the macros' expansions may name. Not part of the API: it changes without notice.

use std::sync::Arc;

use crate::client::{self, LockClient};
use crate::error::LockError;
use crate::key::LockKey;
use crate::options::LockOptions;

pub use crate::enter::{Acquire, Entered};
pub use crate::key::KeyBuilder;
pub use crate::options::OnLost;
pub use crate::running::Running;
pub use std::time::Duration;

/// The default client.
pub fn default_client() -> Result<LockClient, LockError> {
    client::default_client()
}

/// The client that `client = ...` names.
pub fn client<C: AsClient + ?Sized>(client: &C) -> Result<LockClient, LockError> {
    Ok(client.as_client().clone())
}

/// Begins a locked call.
pub fn acquire(
    client: Result<LockClient, LockError>,
    key: LockKey,
    options: LockOptions,
) -> Acquire {
    match client {
        Ok(client) => client.lock(key).options(options).start(),
        Err(error) => Acquire::refused(error),
    }
}

/// What `client = ...` may be.
#[diagnostic::on_unimplemented(
    message = "`client = ...` needs a `LockClient`, not `{Self}`",
    note = "a `LockClient`, a reference to one, or an `Arc` of one"
)]
pub trait AsClient {
    /// The client.
    fn as_client(&self) -> &LockClient;
}

impl AsClient for LockClient {
    fn as_client(&self) -> &LockClient {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<C: AsClient + ?Sized> AsClient for &C {
    fn as_client(&self) -> &LockClient {
        (**self).as_client()
    }
}

#[diagnostic::do_not_recommend]
impl<C: AsClient + ?Sized> AsClient for Arc<C> {
    fn as_client(&self) -> &LockClient {
        (**self).as_client()
    }
}
