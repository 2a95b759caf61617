//! Fencing tokens for what is ours already.

use super::Core;
use crate::backend::{Drawn, Lock, StoreError, StoreErrorKind, StoreResult};

impl Core {
    /// Draws a fencing token for a lock that is ours.
    pub(crate) async fn draw(&self, lock: &Lock) -> StoreResult<u64> {
        let channel = self.channel().await?;
        match channel.draw(lock, None).await? {
            Drawn::Token(token) => Ok(token),
            Drawn::Gone | Drawn::HeldBy(_) => Err(grant_is_gone()),
        }
    }
}

pub(crate) fn grant_is_gone() -> StoreError {
    let text = "the lock was granted, but was gone before it could be confirmed";
    StoreError::new(StoreErrorKind::Unavailable, text)
}
