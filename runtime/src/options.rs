//! Every knob of a lock, its default and its limits.

use std::borrow::Cow;
use std::time::Duration;

use crate::clock::nanos;
use crate::error::{LockError, LockErrorKind};

/// The settings of a lock.
///
/// The client's builder, [`lock_template!`](crate::lock_template),
/// [`LockRequest`](crate::LockRequest) or the tower layer in its place, and the attribute each fill
/// one; what a nearer one sets wins. What nobody sets has its default:
///
/// | option | type | default | builder | template | request | attribute |
/// |---|---|---|---|---|---|---|
/// | `wait` | `Duration` | 3 s | yes | yes | yes | yes |
/// | `lease` | `Duration`, at least 100 ms | 10 s | yes | yes | yes | yes |
/// | `max_hold` | `Duration`, at least `lease` | none | yes | yes | yes | yes |
/// | `on_lost` | [`OnLost`] | `Cancel` | yes | yes | yes | yes |
/// | `release` | [`Release`] | `Await` | yes | yes | yes | yes |
/// | `reentrant` | on, or off by `not_reentrant` | on | yes | yes | yes | yes |
/// | `strict` | off, or on | off | yes | yes | yes | yes |
/// | `fencing` | off, or on | off | yes | yes | yes | yes |
/// | `max_waiters` | `usize` | none | yes | yes | yes | yes |
/// | `name` | text | the key template | no | no | yes | yes |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct LockOptions {
    wait: Option<Duration>,
    lease: Option<Duration>,
    max_hold: Option<Duration>,
    on_lost: Option<OnLost>,
    release: Option<Release>,
    reentrant: Option<bool>,
    strict: Option<bool>,
    fencing: Option<bool>,
    max_waiters: Option<usize>,
    name: Option<Cow<'static, str>>,
}

/// What happens to a running body when its lock is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
// Exhaustive: there is no third thing to do with a running body.
pub enum OnLost {
    /// The body is dropped and the call returns `Lost`.
    #[default]
    Cancel,
    /// The body runs on; [`HeldLock::lost`](crate::HeldLock::lost) tells it.
    Signal,
}

/// Whether a call waits until its lock is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
// Exhaustive: one waits for an answer or one does not.
pub enum Release {
    /// The call returns once the store has answered the release: then the lock is free, or the next
    /// one's.
    #[default]
    Await,
    /// The call returns as soon as its body is done and dropped: one round trip earlier. The release
    /// is sent at that moment, before any later request for the same lock from the same runtime, and
    /// nobody waits for its answer. If it fails, it is repeated and traced; no caller hears of it.
    Background,
}

impl LockOptions {
    /// Creates options in which nothing is set.
    pub const fn new() -> Self {
        Self {
            wait: None,
            lease: None,
            max_hold: None,
            on_lost: None,
            release: None,
            reentrant: None,
            strict: None,
            fencing: None,
            max_waiters: None,
            name: None,
        }
    }

    /// Sets the hard bound on getting the lock, connecting and network faults included. Zero means
    /// one try.
    ///
    /// Defaults to 3 seconds.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets the TTL of the key in the store, which the watchdog renews every third of it while the
    /// body runs. At least 100 milliseconds.
    ///
    /// Defaults to 10 seconds.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the absolute cap on one hold: renewal never reaches past it, and at the cap the body is
    /// cancelled. At least `lease`. (This is what Redisson calls `leaseTime`.)
    ///
    /// Defaults to no cap.
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Sets what happens to a running body when its lock is lost.
    ///
    /// Defaults to [`OnLost::Cancel`].
    pub const fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = Some(on_lost);
        self
    }

    /// Sets whether a call waits until its lock is released. [`Release::Background`] spares a call one
    /// round trip; with [`strict`](Self::strict), which needs the store's answer, it is refused.
    ///
    /// Defaults to [`Release::Await`].
    pub const fn release(mut self, release: Release) -> Self {
        self.release = Some(release);
        self
    }

    /// Refuses a nested call on a key that the calling chain already holds, with an error of kind
    /// `Reentrant`.
    ///
    /// Defaults to off: a nested call enters.
    pub const fn not_reentrant(mut self) -> Self {
        self.reentrant = Some(false);
        self
    }

    /// Reports a hold that was found gone at the release as `Lost { completed: true }`, in place of
    /// the body's value.
    ///
    /// Defaults to off: the value is returned.
    pub const fn strict(mut self) -> Self {
        self.strict = Some(true);
        self
    }

    /// Draws the [fencing token](crate::FencingToken) in the same step as the grant, instead of when it
    /// is first asked for.
    ///
    /// Defaults to off.
    pub const fn fencing(mut self) -> Self {
        self.fencing = Some(true);
        self
    }

    /// Sets how many callers of this process may wait for one key; the next one gets `QueueFull`.
    ///
    /// Defaults to no limit.
    pub const fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.max_waiters = Some(max_waiters);
        self
    }

    /// Sets the name in metrics and logs.
    ///
    /// Defaults to the key template.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets [`not_reentrant`](Self::not_reentrant) either way, for the attribute.
    #[doc(hidden)]
    pub const fn set_reentrant(mut self, reentrant: bool) -> Self {
        self.reentrant = Some(reentrant);
        self
    }

    /// Sets [`fencing`](Self::fencing) either way, for the attribute.
    #[doc(hidden)]
    pub const fn set_fencing(mut self, fencing: bool) -> Self {
        self.fencing = Some(fencing);
        self
    }

    /// Sets [`strict`](Self::strict) either way, for the attribute.
    #[doc(hidden)]
    pub const fn set_strict(mut self, strict: bool) -> Self {
        self.strict = Some(strict);
        self
    }

    /// Fills what is not set here from `other`.
    #[cfg(feature = "tower")]
    pub(crate) fn or(self, other: &Self) -> Self {
        Self {
            wait: self.wait.or(other.wait),
            lease: self.lease.or(other.lease),
            max_hold: self.max_hold.or(other.max_hold),
            on_lost: self.on_lost.or(other.on_lost),
            release: self.release.or(other.release),
            reentrant: self.reentrant.or(other.reentrant),
            strict: self.strict.or(other.strict),
            fencing: self.fencing.or(other.fencing),
            max_waiters: self.max_waiters.or(other.max_waiters),
            name: self.name.or_else(|| other.name.clone()),
        }
    }

    /// Fills the defaults in and refuses what cannot work.
    pub(crate) fn resolve(&self) -> Result<Settings, LockError> {
        let mut settings = Settings::DEFAULT;
        settings.set(self);
        settings.check().map(|()| settings)
    }

    /// The name, if one is set.
    pub(crate) fn into_name(self) -> Option<Box<str>> {
        self.name.map(|name| name.into_owned().into())
    }
}

/// Options with nothing left open.
///
/// Every call carries them along, a waiting one as long as it waits: so they are kept small, and the
/// durations are in nanoseconds. What is longer than these can say is longer than is allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    wait: u64,
    lease: u64,
    max_hold: u64,
    pub(crate) max_waiters: usize,
    pub(crate) on_lost: OnLost,
    pub(crate) release: Release,
    pub(crate) reentrant: bool,
    pub(crate) strict: bool,
    pub(crate) fencing: bool,
}

impl Settings {
    pub(crate) const DEFAULT: Self = Self {
        wait: 3 * SECOND,
        lease: 10 * SECOND,
        max_hold: NO_CAP,
        max_waiters: usize::MAX,
        on_lost: OnLost::Cancel,
        release: Release::Await,
        reentrant: true,
        strict: false,
        fencing: false,
    };

    pub(crate) fn wait(&self) -> Duration {
        Duration::from_nanos(self.wait)
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_nanos(self.lease)
    }

    pub(crate) fn max_hold(&self) -> Option<Duration> {
        (self.max_hold != NO_CAP).then(|| Duration::from_nanos(self.max_hold))
    }

    pub(crate) fn set_wait(&mut self, wait: Duration) {
        self.wait = nanos(wait);
    }

    /// Takes over what is set in `options`.
    pub(crate) fn set(&mut self, options: &LockOptions) {
        self.wait = options.wait.map_or(self.wait, nanos);
        self.lease = options.lease.map_or(self.lease, nanos);
        self.max_hold = options.max_hold.map_or(self.max_hold, |cap| nanos(cap).min(NO_CAP - 1));
        self.max_waiters = options.max_waiters.unwrap_or(self.max_waiters);
        self.on_lost = options.on_lost.unwrap_or(self.on_lost);
        self.release = options.release.unwrap_or(self.release);
        self.reentrant = options.reentrant.unwrap_or(self.reentrant);
        self.strict = options.strict.unwrap_or(self.strict);
        self.fencing = options.fencing.unwrap_or(self.fencing);
    }

    /// Refuses what cannot work.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        let Self { wait, lease, max_hold, .. } = *self;
        if lease < MIN_LEASE {
            return Err(refuse(format!(
                "lease is {:?}, but needs at least {:?}: shorter ones end before a renewal can be \
                 confirmed",
                self.lease(),
                Duration::from_nanos(MIN_LEASE),
            )));
        }
        if max_hold < lease {
            return Err(refuse(format!(
                "max_hold is {:?}, but needs at least the lease ({:?}): raise max_hold or shorten \
                 the lease",
                Duration::from_nanos(max_hold),
                self.lease(),
            )));
        }
        if self.strict && self.release == Release::Background {
            return Err(refuse(
                "strict needs the store's answer to the release, which with a release in the \
                 background nobody waits for: leave one of the two out"
                    .to_owned(),
            ));
        }
        let max_hold = if max_hold == NO_CAP { 0 } else { max_hold };
        for (option, value) in [("wait", wait), ("lease", lease), ("max_hold", max_hold)] {
            if value > MAX_DURATION {
                let value = Duration::from_nanos(value);
                return Err(refuse(format!("{option} is {value:?}, but may be at most 365 days")));
            }
        }
        Ok(())
    }
}

fn refuse(message: String) -> LockError {
    LockError::new(LockErrorKind::Config, message)
}

const SECOND: u64 = 1_000_000_000;
const NO_CAP: u64 = u64::MAX;
const MIN_LEASE: u64 = SECOND / 10;
const MAX_DURATION: u64 = 365 * 24 * 60 * 60 * SECOND;
