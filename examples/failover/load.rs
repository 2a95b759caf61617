//! Callers that want the same few locks all the time, and the times at which they get them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock::{LockClient, LockError, LockErrorKind, LockKey};
use tokio::task::JoinSet;

use crate::support::{Reporter, Witness};

/// What callers share, with what came of their calls.
pub(crate) struct Load {
    keys: Vec<Key>,
    stopped: AtomicBool,
    /// Whether work that begins takes longer than a failover.
    long: AtomicBool,
    pub(crate) lost: AtomicUsize,
    pub(crate) failed: AtomicUsize,
    /// What was refused, once each, with how often.
    pub(crate) errors: Mutex<HashMap<String, usize>>,
}

/// A lock with its witness, who knows of one lock only.
struct Key {
    name: String,
    witness: Witness,
    grants: Mutex<Vec<Instant>>,
}

impl Load {
    pub(crate) fn on(keys: Vec<String>) -> Self {
        let keys = keys
            .into_iter()
            .map(|name| Key { name, witness: Witness::start(), grants: Mutex::default() })
            .collect();
        Self {
            keys,
            stopped: AtomicBool::new(false),
            long: AtomicBool::new(false),
            lost: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            errors: Mutex::default(),
        }
    }

    /// Starts a caller of each key on each client.
    pub(crate) fn start(self: &Arc<Self>, clients: &[LockClient], callers: &mut JoinSet<()>) {
        for client in clients {
            for index in 0..self.keys.len() {
                let (load, client) = (Arc::clone(self), client.clone());
                callers.spawn(async move { load.call(&client, index).await });
            }
        }
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// From now on work that begins takes longer than a failover, or no longer.
    pub(crate) fn work_long(&self, long: bool) {
        self.long.store(long, Ordering::Relaxed);
    }

    async fn call(&self, client: &LockClient, index: usize) {
        let key = &self.keys[index];
        let reporter = Reporter::connect(key.witness.address());
        while !self.stopped.load(Ordering::Relaxed) {
            let lock = client.lock(LockKey::literal(key.name.clone()));
            let done = lock.run(async |held| {
                key.grants.lock().expect("nothing panics under it").push(Instant::now());
                let steps = if self.long.load(Ordering::Relaxed) { LONG_STEPS } else { 5 };
                let work = async |body: crate::support::BodyReporter| {
                    for _ in 0..steps {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        body.tick();
                    }
                };
                reporter.body(held, work).await;
            });
            let Err(error) = done.await else { continue };
            self.note(&error);
            // A service would answer its client now.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn note(&self, error: &LockError) {
        let counter = match error.kind() {
            LockErrorKind::Lost { .. } => &self.lost,
            _ => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut errors = self.errors.lock().expect("nothing panics under it");
        *errors.entry(format!("{:?}", error.kind())).or_default() += 1;
    }

    /// The longest time without any grant after `since`, and the longest without one of a key.
    pub(crate) fn gaps(&self, since: Instant) -> (Duration, Duration) {
        let of_keys: Vec<Vec<Instant>> = self
            .keys
            .iter()
            .map(|key| key.grants.lock().expect("nothing panics under it").clone())
            .collect();
        let of_one = of_keys.iter().map(|grants| gap(grants.clone(), since)).max();
        (gap(of_keys.concat(), since), of_one.unwrap_or_default())
    }

    /// Whether each key was granted `count` times after `since`.
    pub(crate) fn flows(&self, since: Instant, count: usize) -> bool {
        self.keys.iter().all(|key| {
            let grants = key.grants.lock().expect("nothing panics under it");
            grants.iter().rev().take_while(|grant| **grant > since).count() >= count
        })
    }

    /// How many bodies of one key were at work at once at most.
    pub(crate) fn most_at_once(&self) -> usize {
        let counts = self.keys.iter().map(|key| key.witness.testimony().most_at_once);
        counts.max().unwrap_or_default()
    }
}

/// The longest time between two grants of which the later came after `since`, and up to now.
fn gap(mut grants: Vec<Instant>, since: Instant) -> Duration {
    grants.push(Instant::now());
    grants.sort_unstable();
    let gaps = grants.windows(2).filter(|pair| pair[1] > since);
    gaps.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

/// Some seconds.
const LONG_STEPS: usize = 2_500;
