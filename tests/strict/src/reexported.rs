//! distlock from somebody else's prelude.

use strict_prelude::{LockError, LockKey, distlock, distributed_lock, lock_key};

/// A path to the re-export.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = "strict:reexported:<id>", crate = strict_prelude::distlock)]
pub async fn by_path(id: u64) -> Result<u64, LockError> {
    std::future::ready(Ok(id)).await
}

/// A path that starts with `crate`, and a name in scope.
///
/// # Errors
///
/// Those of the lock.
#[distributed_lock(key = strict_prelude::PRELUDE.key(&id), crate = distlock)]
pub async fn by_name(id: u64) -> Result<u64, LockError> {
    std::future::ready(Ok(id)).await
}

/// Needs no path.
pub fn key(id: u64) -> LockKey {
    lock_key!("strict:reexported:key:<id>")
}

/// Defines locked functions, with `$crate` for the path.
#[macro_export]
macro_rules! locked_function {
    ($(#[$attr:meta])* $name:ident, $key:literal) => {
        $(#[$attr])*
        #[$crate::reexported::locked_by_another_name(
            key = $key,
            crate = $crate::reexported::distlock_again
        )]
        pub async fn $name(id: u64) -> Result<u64, $crate::reexported::Error> {
            std::future::ready(Ok(id)).await
        }
    };
}

pub use strict_prelude::{
    LockError as Error, distlock as distlock_again, distributed_lock as locked_by_another_name,
};

locked_function!(
    /// Made by a macro of this crate.
    ///
    /// # Errors
    ///
    /// Those of the lock.
    from_macro,
    "strict:macro:<id>"
);
