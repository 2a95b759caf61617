//! Who this client is, as an operator reads it in the store.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

/// The name of one client instance, which its owner strings begin with.
#[derive(Clone)]
pub(crate) struct Instance {
    name: Arc<str>,
}

impl Instance {
    /// An instance called `host:pid`.
    pub(crate) fn of_process() -> Self {
        Self::named(&format!("{}:{}", host_name(), std::process::id()))
    }

    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.into() }
    }

    /// A new owner string, `<instance>/<uuid>`: one per acquire attempt, never used again.
    pub(crate) fn new_owner(&self) -> Arc<str> {
        format!("{}/{}", self.name, Uuid::new_v4().simple()).into()
    }

    /// Whether `owner` is a string of this instance's.
    pub(crate) fn made(&self, owner: &str) -> bool {
        owner.strip_prefix(&*self.name).is_some_and(|rest| rest.starts_with('/'))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Whether `text` is an owner string of any instance's, as far as its form tells.
pub(crate) fn is_owner(text: &str) -> bool {
    text.rsplit_once('/').is_some_and(|(name, id)| {
        !name.is_empty() && id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned())
}
