//! Who this client is, as an operator reads it in the store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;
use uuid::fmt::Simple;

/// The name of one client instance, which its owner strings begin with, and the ids they end with.
#[derive(Clone)]
pub(crate) struct Instance {
    name: Arc<str>,
    /// Random, so that no two instances count through the same ids.
    first_id: u128,
    ids_given: Arc<AtomicU64>,
}

impl Instance {
    /// An instance called `host:pid`.
    pub(crate) fn of_process() -> Self {
        Self::named(&format!("{}:{}", host_name(), std::process::id()))
    }

    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.into(), first_id: Uuid::new_v4().as_u128(), ids_given: Arc::default() }
    }

    /// A new owner string, `<instance>/<uuid>`: one per acquire attempt, never used again.
    pub(crate) fn new_owner(&self) -> Arc<str> {
        // Counting instead of drawing: that would be a system call for each acquire.
        let given = self.ids_given.fetch_add(1, Ordering::Relaxed);
        let id = Uuid::from_u128(self.first_id.wrapping_add(given.into())).simple();
        let mut owner = String::with_capacity(self.name.len() + 1 + Simple::LENGTH);
        owner.push_str(&self.name);
        owner.push('/');
        owner.push_str(id.encode_lower(&mut [0; Simple::LENGTH]));
        owner.into()
    }

    /// Whether `owner` is a string of this instance's.
    pub(crate) fn made(&self, owner: &str) -> bool {
        owner.strip_prefix(&*self.name).is_some_and(|rest| rest.starts_with('/'))
    }

    /// What tells it from every other instance, also from one of the same name.
    pub(crate) fn id(&self) -> u128 {
        self.first_id
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn owners_are_never_the_same_on_one_instance_or_two_of_a_name() {
        let instances = [Instance::named("host:1"), Instance::named("host:1")];
        let clone = instances[0].clone();

        let owners: HashSet<_> = (0..1000)
            .flat_map(|_| instances.iter().chain([&clone]).map(Instance::new_owner))
            .collect();

        assert_eq!(owners.len(), 3000);
        assert!(owners.iter().all(|owner| is_owner(owner) && clone.made(owner)));
    }
}
