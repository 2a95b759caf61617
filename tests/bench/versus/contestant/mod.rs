//! Who is measured. All do the same work, each in the way that its documentation shows.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

mod async_redis_lock;
mod blpop;
mod connection;
mod distlock;
mod distributed_lock_redis;
mod raw;
mod raw_grant;
mod rslock;

pub(crate) use self::distlock::Distlock;

/// A contestant's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Distlock,
    /// `SET NX PX`, and compare-and-delete by a script: what no lock can do without.
    Raw,
    /// The least that waits: a release that hands over in a script and tells by a message, and one
    /// round trip in which the receiver confirms. No care for what goes wrong.
    RawGrant,
    /// A blocking pop for a signal, as the quickest libraries of other languages do.
    Blpop,
    AsyncRedisLock,
    DistributedLockRedis,
    Rslock,
}

/// A contestant that is connected.
pub(crate) enum Contestant {
    Distlock(Distlock),
    Raw(raw::Raw),
    RawGrant(raw_grant::RawGrant),
    Blpop(blpop::Blpop),
    AsyncRedisLock(async_redis_lock::AsyncRedisLock),
    DistributedLockRedis(distributed_lock_redis::DistributedLockRedis),
    Rslock(rslock::Rslock),
}

/// A lock that is held until it is released.
pub(crate) enum Hold {
    Distlock(::distlock::LockGuard),
    Raw(raw::Held),
    RawGrant(raw_grant::Held),
    Blpop(blpop::Held),
    AsyncRedisLock(Box<::async_redis_lock::Lock>),
    DistributedLockRedis(::distributed_lock_redis::RedisLockHandle),
    Rslock(::rslock::LockGuard),
}

impl Name {
    pub(crate) const ALL: [Self; 7] = [
        Self::Distlock,
        Self::Raw,
        Self::RawGrant,
        Self::Blpop,
        Self::AsyncRedisLock,
        Self::DistributedLockRedis,
        Self::Rslock,
    ];

    /// Those that can wait for a lock. (`distributed-lock-redis` gives up at once if there is one
    /// server.)
    pub(crate) const WAITING: [Self; 4] =
        [Self::Distlock, Self::RawGrant, Self::AsyncRedisLock, Self::Rslock];

    /// Those, and the one that has a connection for each waiter.
    pub(crate) const HANDING_OVER: [Self; 5] =
        [Self::Distlock, Self::RawGrant, Self::Blpop, Self::AsyncRedisLock, Self::Rslock];

    /// Those that take what is free.
    pub(crate) const TAKING: [Self; 5] =
        [Self::Distlock, Self::Raw, Self::AsyncRedisLock, Self::DistributedLockRedis, Self::Rslock];

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Distlock => "distlock",
            Self::Raw => "raw",
            Self::RawGrant => "raw-grant",
            Self::Blpop => "blpop",
            Self::AsyncRedisLock => "async-redis-lock",
            Self::DistributedLockRedis => "distributed-lock-redis",
            Self::Rslock => "rslock",
        }
    }

    /// A published crate.
    pub(crate) fn is_peer(self) -> bool {
        !matches!(self, Self::Distlock | Self::Raw | Self::RawGrant | Self::Blpop)
    }
}

impl Contestant {
    pub(crate) async fn connect(name: Name, url: &str, lease: Duration) -> Self {
        match name {
            Name::Distlock => Self::Distlock(Distlock::connect(url, lease).await),
            Name::Raw => Self::Raw(raw::Raw::connect(url, lease).await),
            Name::RawGrant => Self::RawGrant(raw_grant::RawGrant::connect(url, lease).await),
            Name::Blpop => Self::Blpop(blpop::Blpop::connect(url, lease).await),
            Name::AsyncRedisLock => {
                Self::AsyncRedisLock(async_redis_lock::AsyncRedisLock::connect(url, lease).await)
            }
            Name::DistributedLockRedis => Self::DistributedLockRedis(
                distributed_lock_redis::DistributedLockRedis::connect(url, lease).await,
            ),
            Name::Rslock => Self::Rslock(rslock::Rslock::connect(url, lease)),
        }
    }

    /// Takes the lock, however long that takes, runs `body` and releases.
    pub(crate) async fn section<T: Send>(&self, key: u64, body: impl FnOnce() -> T + Send) -> T {
        match self {
            // Its way to run a body under a lock.
            Self::Distlock(locks) => locks.section(key, body).await,
            _ => {
                let hold = self.hold(key).await;
                let output = body();
                self.release(hold).await;
                output
            }
        }
    }

    /// An empty section as a future of this contestant alone: no larger than it must be, where there
    /// are very many.
    pub(crate) fn small_section(
        self: &Arc<Self>,
        key: u64,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let this = Arc::clone(self);
        match &**self {
            Self::Distlock(locks) => {
                let request = locks.request(key);
                Box::pin(async move { request.run(|_| async {}).await.expect("no loss") })
            }
            Self::RawGrant(_) => Box::pin(async move {
                if let Self::RawGrant(locks) = &*this {
                    let held = locks.hold(key).await;
                    locks.release(held).await;
                }
            }),
            Self::AsyncRedisLock(_) => Box::pin(async move {
                if let Self::AsyncRedisLock(locks) = &*this {
                    locks.hold(key).await.release().await.expect("no loss");
                }
            }),
            Self::Rslock(_) => Box::pin(async move {
                if let Self::Rslock(locks) = &*this {
                    locks.hold(key).await.release().await;
                }
            }),
            Self::Raw(_) | Self::Blpop(_) | Self::DistributedLockRedis(_) => {
                Box::pin(async move { this.section(key, || ()).await })
            }
        }
    }

    /// Takes the lock, however long that takes.
    pub(crate) async fn hold(&self, key: u64) -> Hold {
        match self {
            Self::Distlock(locks) => Hold::Distlock(locks.hold(key).await),
            Self::Raw(locks) => Hold::Raw(locks.hold(key).await),
            Self::RawGrant(locks) => Hold::RawGrant(locks.hold(key).await),
            Self::Blpop(locks) => Hold::Blpop(locks.hold(key).await),
            Self::AsyncRedisLock(locks) => Hold::AsyncRedisLock(Box::new(locks.hold(key).await)),
            Self::DistributedLockRedis(locks) => Hold::DistributedLockRedis(locks.hold(key).await),
            Self::Rslock(locks) => Hold::Rslock(locks.hold(key).await),
        }
    }

    /// Releases, and waits for the answer.
    pub(crate) async fn release(&self, hold: Hold) {
        match (self, hold) {
            (_, Hold::Distlock(guard)) => guard.release().await.expect("no loss"),
            (Self::Raw(locks), Hold::Raw(held)) => locks.release(held).await,
            (Self::RawGrant(locks), Hold::RawGrant(held)) => locks.release(held).await,
            (Self::Blpop(locks), Hold::Blpop(held)) => locks.release(held).await,
            (_, Hold::AsyncRedisLock(lock)) => lock.release().await.expect("no loss"),
            (_, Hold::DistributedLockRedis(handle)) => {
                distributed_lock_redis::release(handle).await;
            }
            (_, Hold::Rslock(guard)) => guard.release().await,
            (_, Hold::Raw(_) | Hold::RawGrant(_) | Hold::Blpop(_)) => {
                unreachable!("a hold of this contestant")
            }
        }
    }
}

impl fmt::Debug for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contestant").finish_non_exhaustive()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}

/// The text of a key, for those that do not render one by a template.
pub(crate) fn key_text(key: u64) -> String {
    format!("bench:lock:{key}")
}
