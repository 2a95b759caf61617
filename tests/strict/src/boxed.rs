//! `#[async_trait]`, which boxes.

use async_trait::async_trait;
use locks::{HeldLock, LockError, distributed_lock};

/// A boxed trait.
#[async_trait]
pub trait Boxed: Send + Sync {
    /// A default method.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    #[distributed_lock(key = "strict:boxed:<self.id()>:<_name>", crate = locks, guard = held)]
    async fn default_method(&self, _name: String, _: u8) -> Result<Option<HeldLock>, LockError> {
        std::future::ready(()).await;
        Ok(Some(held))
    }

    /// A method with everything.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    async fn all(&self, pair: (u64, u64), name: &str) -> Result<u64, LockError>;

    /// No value.
    async fn unit(&mut self);

    /// For the key.
    fn id(&self) -> u64;
}

#[async_trait]
impl Boxed for u64 {
    #[distributed_lock(
        key = "strict:boxed:all:<first>:<name>",
        crate = locks,
        fallback = Ok(first + *self),
        when = first > 0
    )]
    async fn all(&self, (mut first, _): (u64, u64), name: &str) -> Result<Self, LockError> {
        first += std::future::ready(name.len() as Self).await;
        Ok(first)
    }

    #[distributed_lock(key = "strict:boxed:unit:<self>", crate = locks, fallback_with = drop)]
    async fn unit(&mut self) {
        *self += std::future::ready(1).await;
    }

    fn id(&self) -> u64 {
        *self
    }
}
