//! A point at which the proxy waits for the test.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time;

/// Holds one request or reply back until it is opened or dropped.
#[derive(Debug)]
#[must_use = "a dropped gate is open"]
pub(crate) struct Gate {
    what: String,
    opened: watch::Sender<bool>,
    reached: watch::Sender<bool>,
}

/// The proxy's side of a [`Gate`].
#[derive(Debug)]
pub(super) struct Keeper {
    opened: watch::Receiver<bool>,
    reached: watch::Sender<bool>,
}

impl Gate {
    pub(super) fn new(what: String) -> Self {
        Self { what, opened: watch::Sender::new(false), reached: watch::Sender::new(false) }
    }

    pub(super) fn keeper(&self) -> Keeper {
        Keeper { opened: self.opened.subscribe(), reached: self.reached.clone() }
    }

    /// Waits until what is to be held back has come.
    #[track_caller]
    pub(crate) fn reached(&self) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        let mut reached = self.reached.subscribe();
        async move {
            let wait = time::timeout(LIMIT, reached.wait_for(|reached| *reached));
            assert!(wait.await.is_ok(), "no {} within {LIMIT:?} ({caller})", self.what);
        }
    }

    /// Whether what is to be held back has come.
    pub(crate) fn is_reached(&self) -> bool {
        *self.reached.borrow()
    }

    /// Lets it pass.
    pub(crate) fn open(&self) {
        self.opened.send_replace(true);
    }
}

impl Keeper {
    pub(super) async fn pass(&mut self) {
        self.reached.send_replace(true);
        // An error says that the gate is gone, and a dropped gate is open.
        let _ = self.opened.wait_for(|opened| *opened).await;
    }
}

const LIMIT: Duration = Duration::from_secs(30);
