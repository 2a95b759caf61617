//! Being inside: entries into holds, and the way out.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

#[cfg(feature = "blocking")]
use crate::driver::Core;
use crate::error::LockError;
use crate::held::HeldLock;
use crate::hold::{Hold, Outcome};
use crate::lease::{Lease, Over};
use crate::options::{OnLost, Release, Settings};
use crate::running::Running;
use crate::scope::{self, Frame};

/// Entries into the holds that a body runs under: one, as a rule; several for several keys; none for
/// a body that runs unlocked. The last entry into a hold to go releases it.
pub struct Entered {
    frame: Option<Arc<Frame>>,
    entries: Entries,
    on_lost: OnLost,
    release: Release,
    strict: bool,
}

/// The first entry stands apart, so that the usual call allocates nothing for it.
#[derive(Default)]
struct Entries {
    first: Option<Entry>,
    more: Vec<Entry>,
}

/// Fields drop in order: the gate opens for a sibling only when this entry is over.
struct Entry {
    hold: Arc<Hold>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Entered {
    /// No entry: for a body that runs unlocked because its site says so.
    #[must_use]
    pub fn unlocked() -> Self {
        Self {
            frame: scope::current(),
            entries: Entries::default(),
            on_lost: OnLost::Cancel,
            release: Release::Await,
            strict: false,
        }
    }

    #[must_use]
    pub(crate) fn with(self, settings: Settings) -> Self {
        let Settings { on_lost, release, strict, .. } = settings;
        Self { on_lost, release, strict, ..self }
    }

    /// Enters `hold`, inside of what is entered already.
    #[must_use]
    pub(crate) fn and(mut self, hold: Arc<Hold>, permit: Option<OwnedSemaphorePermit>) -> Self {
        self.frame = Some(Frame::enter(&hold, self.frame.take()));
        self.entries.push(Entry { hold, permit });
        self
    }

    /// Takes the entries of `other` in.
    #[must_use]
    pub(crate) fn join(self, other: Self) -> Self {
        other
            .entries
            .into_iter()
            .fold(self, |entered, Entry { hold, permit }| entered.and(hold, permit))
    }

    /// A look at the lock, for the body.
    ///
    /// # Panics
    ///
    /// Never as the macros use it: where a body may run unlocked they ask
    /// [`held_if_locked`](Self::held_if_locked).
    #[must_use]
    pub fn held(&self) -> HeldLock {
        self.held_if_locked().expect("a body that cannot run unlocked has an entry")
    }

    /// A look at the lock, if there is one.
    #[must_use]
    pub fn held_if_locked(&self) -> Option<HeldLock> {
        HeldLock::at(self.entries.iter().map(|entry| &entry.hold))
    }

    /// Runs `body` under the lock, then releases.
    pub fn run<F: Future>(self, body: F) -> Running<F> {
        Running::inside(self, body)
    }

    /// Leaves at once if no answer of the store is to be waited for: other entries keep the holds, or
    /// they are over already, or their release is to go on in the background.
    pub(crate) fn leave(self) -> Result<Result<(), LockError>, Self> {
        let last = self.entries.iter().any(|entry| Arc::strong_count(&entry.hold) == 1);
        if (last || self.strict)
            && let Some((lease, over)) = self.over()
        {
            return Ok(self.judge(lease, over));
        }
        match (last, self.release) {
            (false, _) => Ok(Ok(())),
            (true, Release::Await) => Err(self),
            (true, Release::Background) => {
                self.part();
                Ok(Ok(()))
            }
        }
    }

    /// Releases what this is the last entry into, without waiting for the answers.
    fn part(mut self) {
        while let Some(Entry { hold, permit }) = self.entries.pop() {
            if let Some(hold) = Arc::into_inner(hold) {
                hold.part();
            }
            drop(permit);
        }
    }

    /// Releases what this is the last entry into, and waits for the answers.
    pub(crate) async fn release(self) -> Result<(), LockError> {
        let mut entered = match self.leave() {
            Ok(outcome) => return outcome,
            Err(entered) => entered,
        };
        let mut judgement = Ok(());
        // What a drop leaves here is released in the background.
        while let Some(Entry { hold, permit }) = entered.entries.pop() {
            let lease = Arc::clone(hold.lease());
            // Another entry may have come meanwhile; whoever leaves last releases.
            let outcome = match Arc::into_inner(hold) {
                Some(hold) => hold.release().await,
                None => Outcome::Released,
            };
            drop(permit);
            if let Outcome::Lost(over) = outcome {
                judgement = judgement.and_then(|()| entered.judge(&lease, over));
            }
        }
        judgement
    }

    pub(crate) fn frame(&self) -> Option<&Arc<Frame>> {
        self.frame.as_ref()
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = &Arc<Lease>> {
        self.entries.iter().map(|entry| entry.hold.lease())
    }

    /// Whose holds these are; none for a body that runs unlocked.
    #[cfg(feature = "blocking")]
    pub(crate) fn core(&self) -> Option<&Arc<Core>> {
        self.entries.first.as_ref().map(|entry| entry.hold.core())
    }

    pub(crate) fn on_lost(&self) -> OnLost {
        self.on_lost
    }

    /// The first of the holds that is over, if one is, and how.
    pub(crate) fn over(&self) -> Option<(&Arc<Lease>, Over)> {
        self.leases().find_map(|lease| Some((lease, lease.over()?)))
    }

    /// Whether a body that ran to its end without its lock is an error is up to `strict`.
    fn judge(&self, lease: &Lease, over: Over) -> Result<(), LockError> {
        if self.strict { Err(over.error(lease.key(), true)) } else { Ok(()) }
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.leases()).finish()
    }
}

impl Entries {
    fn push(&mut self, entry: Entry) {
        if self.first.is_none() {
            self.first = Some(entry);
        } else {
            self.more.push(entry);
        }
    }

    fn pop(&mut self) -> Option<Entry> {
        self.more.pop().or_else(|| self.first.take())
    }

    fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.first.iter().chain(&self.more)
    }

    fn into_iter(self) -> impl Iterator<Item = Entry> {
        self.first.into_iter().chain(self.more)
    }
}
