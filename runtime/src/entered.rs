//! Being inside: entries into holds, and the way out.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

#[cfg(feature = "blocking")]
use crate::driver::Core;
use crate::error::LockError;
use crate::held::HeldLock;
use crate::hold::{Hold, Outcome};
use crate::lease::{Lease, Over};
use crate::options::{OnLost, Release, Settings};
use crate::running::Running;
use crate::scope::{self, Frame, Permit};

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
    permit: Option<Permit>,
}

/// Holds without an entry whose releases are to be answered; dropped, it leaves them to the background.
pub(crate) struct Leaving {
    first: Option<Owed>,
    more: Vec<Owed>,
    outcome: Result<(), LockError>,
    strict: bool,
}

struct Owed {
    hold: Hold,
    permit: Option<Permit>,
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
    pub(crate) fn with(self, settings: &Settings) -> Self {
        let Settings { on_lost, release, strict, .. } = *settings;
        Self { on_lost, release, strict, ..self }
    }

    /// Enters `hold`, inside of what is entered already.
    #[must_use]
    pub(crate) fn and(mut self, hold: Arc<Hold>, permit: Option<Permit>) -> Self {
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
    /// a local waiter gets the lock, or it is over already, or its release is to go on in the
    /// background.
    pub(crate) fn leave(mut self) -> Result<Result<(), LockError>, Leaving> {
        let mut leaving = Leaving::new(self.strict);
        while let Some(Entry { hold, permit }) = self.entries.pop() {
            if self.strict
                && let Some(over) = hold.lease().over()
            {
                leaving.note(Outcome::Lost(over.error(hold.lease().key(), true)));
            }
            // Whoever leaves last releases.
            let Some(hold) = Arc::into_inner(hold) else { continue };
            if self.release == Release::Background {
                hold.part();
                continue;
            }
            match hold.leave() {
                Ok(outcome) => leaving.note(outcome),
                Err(hold) => leaving.owe(hold, permit),
            }
        }
        if leaving.first.is_some() { Err(leaving) } else { Ok(leaving.outcome) }
    }

    /// Releases what this is the last entry into, and waits for the answers.
    pub(crate) async fn release(self) -> Result<(), LockError> {
        match self.leave() {
            Ok(outcome) => outcome,
            Err(leaving) => leaving.release().await,
        }
    }

    pub(crate) fn frame(&self) -> Option<&Arc<Frame>> {
        self.frame.as_ref()
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = &Arc<Lease>> {
        self.entries.iter().map(|entry| entry.hold.lease())
    }

    pub(crate) fn on_lost(&self) -> OnLost {
        self.on_lost
    }

    /// The first of the holds that is over, if one is, and how.
    pub(crate) fn over(&self) -> Option<(&Arc<Lease>, Over)> {
        self.leases().find_map(|lease| Some((lease, lease.over()?)))
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

impl Leaving {
    fn new(strict: bool) -> Self {
        Self { first: None, more: Vec::new(), outcome: Ok(()), strict }
    }

    fn owe(&mut self, hold: Hold, permit: Option<Permit>) {
        let owed = Owed { hold, permit };
        if self.first.is_none() {
            self.first = Some(owed);
        } else {
            self.more.push(owed);
        }
    }

    /// Whose holds these are.
    #[cfg(feature = "blocking")]
    pub(crate) fn core(&self) -> Option<&Arc<Core>> {
        self.first.as_ref().map(|owed| owed.hold.core())
    }

    /// Whether a body that ran to its end without its lock is an error is up to `strict`.
    fn note(&mut self, outcome: Outcome) {
        if let Outcome::Lost(error) = outcome
            && self.strict
            && self.outcome.is_ok()
        {
            self.outcome = Err(error);
        }
    }

    /// Awaits: each answer in turn. A drop in between leaves the others to the background.
    pub(crate) async fn release(mut self) -> Result<(), LockError> {
        let mut next = self.first.take();
        self.more.reverse();
        while let Some(Owed { hold, permit }) = next {
            let outcome = hold.release().await;
            drop(permit);
            self.note(outcome);
            next = self.more.pop();
        }
        self.outcome
    }
}
