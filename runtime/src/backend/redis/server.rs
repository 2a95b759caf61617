//! What all connections of a client know of their server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::config::RedisConfig;
use super::dial::Dialer;
use super::greeting::Greeting;
#[cfg(feature = "sentinel")]
use super::recall::Recall;
#[cfg(feature = "sentinel")]
use super::sentinel::Watch;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: RedisConfig,
    pub(super) dialer: Dialer,
    /// For messages, where no connection is open.
    pub(super) name: Arc<str>,
    /// What the server last called itself: after a failover it may be another version.
    version: Mutex<String>,
    /// Whether the server is older than Redis 7, as far as is known. Orders nothing: whoever reads it
    /// too early asks in words that the server does not know, and is told so.
    old: AtomicBool,
    /// Whether it says itself that it is not. As above.
    says_new: AtomicBool,
    /// Set once the server turned out to take one hash slot a script.
    clustered: OnceLock<()>,
    /// The latest epoch of a server that was found. Orders nothing: whoever reads it too early is
    /// where it was before.
    newest: AtomicU64,
    /// Set once the server was asked what it does when its memory is full.
    asked_for_eviction: OnceLock<()>,
    #[cfg(feature = "sentinel")]
    pub(super) watch: Watch,
    #[cfg(feature = "sentinel")]
    pub(super) recall: Recall,
}

impl Server {
    pub(super) fn new(config: RedisConfig) -> Self {
        let dialer = Dialer {
            #[cfg(feature = "tls")]
            tls: config.tls.clone(),
        };
        Self {
            name: config.place.name().into(),
            dialer,
            config,
            version: Mutex::default(),
            old: AtomicBool::new(false),
            says_new: AtomicBool::new(false),
            clustered: OnceLock::new(),
            newest: AtomicU64::new(0),
            asked_for_eviction: OnceLock::new(),
            #[cfg(feature = "sentinel")]
            watch: Watch::default(),
            #[cfg(feature = "sentinel")]
            recall: Recall::default(),
        }
    }

    /// Takes note of what the server says of itself.
    pub(super) fn greeted(&self, greeting: &Greeting) {
        // One assignment each: whole at any time.
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        // The same one may have turned out to be older than it says, as something in front of it.
        if *version != greeting.version {
            version.clone_from(&greeting.version);
            self.old.store(greeting.is_old, Ordering::Relaxed);
            self.says_new.store(!greeting.is_old, Ordering::Relaxed);
        }
    }

    /// Whether it takes a lock and names the owner in one command, as far as is known.
    pub(super) fn sets_and_gets(&self) -> bool {
        !self.old.load(Ordering::Relaxed)
    }

    /// The same, by what it says itself and nothing has disproved.
    pub(super) fn surely_sets_and_gets(&self) -> bool {
        self.says_new.load(Ordering::Relaxed)
    }

    pub(super) fn mark_old(&self) {
        self.old.store(true, Ordering::Relaxed);
        self.says_new.store(false, Ordering::Relaxed);
    }

    /// Whether the keys of one script must share a slot, as far as is known.
    pub(super) fn is_clustered(&self) -> bool {
        self.clustered.get().is_some()
    }

    pub(super) fn mark_clustered(&self) {
        let _ = self.clustered.set(());
    }

    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    /// The server was found where it is for the `epoch`-th time.
    pub(super) fn moved(&self, epoch: u64) {
        self.newest.fetch_max(epoch, Ordering::Relaxed);
    }

    /// Whether nobody asked yet what happens when the server's memory is full.
    pub(super) fn wants_eviction(&self) -> bool {
        self.asked_for_eviction.get().is_none()
    }

    /// That question is answered, be it by a refusal. True the first time.
    pub(super) fn mark_eviction(&self) -> bool {
        self.asked_for_eviction.set(()).is_ok()
    }
}
