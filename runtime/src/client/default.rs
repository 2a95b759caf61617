//! The client that the attribute uses without `client = ...`.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use super::LockClient;
use crate::error::{LockError, LockErrorKind};

static INSTALLED: OnceLock<LockClient> = OnceLock::new();

tokio::task_local! {
    static SCOPED: LockClient;
}

pub(super) fn install(client: &LockClient) -> Result<(), LockError> {
    let installed = INSTALLED.get_or_init(|| client.clone());
    if Arc::ptr_eq(&installed.0, &client.0) {
        return Ok(());
    }
    Err(LockError::new(
        LockErrorKind::Config,
        "another default client is installed already: name this one by `client = ...`, or use \
         scope_default for a call chain of its own",
    ))
}

pub(super) fn scope<F: Future>(client: LockClient, future: F) -> impl Future<Output = F::Output> {
    SCOPED.scope(client, future)
}

#[cfg(feature = "blocking")]
pub(super) fn scope_blocking<T>(client: LockClient, body: impl FnOnce() -> T) -> T {
    SCOPED.sync_scope(client, body)
}

/// The nearest scope's client, else the installed one.
pub fn default_client() -> Result<LockClient, LockError> {
    SCOPED.try_with(Clone::clone).ok().or_else(|| INSTALLED.get().cloned()).ok_or_else(|| {
        LockError::new(
            LockErrorKind::NotInstalled,
            "no default lock client: call `client.install_default()` at start, or name one by \
             `client = ...` in the attribute",
        )
    })
}
