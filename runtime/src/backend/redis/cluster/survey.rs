//! Looking around: which node serves what by now.
//!
//! One look at a time and runtime, and not too often: the more seldom, the longer nothing has changed.
//! Whoever finds that the map may be wrong asks for one and does not wait: the map is wrong for one
//! node's slots, and the others go on by it.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::nodes::{Member, Nodes, Purpose};
use super::topology::{Address, Layout};
use crate::backend::redis::error;
use crate::backend::redis::line::within;
use crate::backend::redis::runtimes::{given_up, no_runtime};
use crate::backend::{BoxFuture, StoreError, StoreErrorKind, StoreResult};
use crate::clock::{Clock, Timestamp};

#[derive(Debug)]
pub(super) struct Survey(Mutex<State>);

#[derive(Debug)]
struct State {
    under_way: Option<Outcome>,
    ended_at: Timestamp,
    /// How long the next one waits after that.
    pause: Duration,
    /// How many there were: each begins with another node, in case one knows less than the others.
    turn: usize,
    /// When the map was last found to be wrong, or a node out of reach.
    trouble_at: Timestamp,
    /// When somebody last wanted to hear of a grant.
    listened_at: Timestamp,
    /// Ends by itself.
    watch: Option<JoinHandle<()>>,
}

/// `None` as long as it runs.
type Outcome = watch::Receiver<Option<StoreResult<()>>>;

/// How a look is asked for.
#[derive(Clone, Copy, Debug)]
enum Haste {
    /// Something is out of reach.
    InTurn,
    /// There is no map.
    Now,
    /// A node says that the map is wrong.
    Soon,
}

/// What a look has found.
#[derive(Clone, Copy, Debug)]
enum Found {
    Changes,
    Nothing,
}

impl Default for Survey {
    fn default() -> Self {
        Self(Mutex::new(State {
            under_way: None,
            ended_at: Timestamp::NOW,
            pause: Duration::ZERO,
            turn: 0,
            trouble_at: Timestamp::NOW,
            listened_at: Timestamp::NOW,
            watch: None,
        }))
    }
}

impl Survey {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether to look again, as nothing has changed yet.
    fn ended(&mut self, looked: &StoreResult<Found>) -> bool {
        let now = CLOCK.now();
        let is_first = now.since(self.ended_at) > CALM;
        self.pause = match looked {
            Ok(Found::Nothing) | Err(_) if !is_first => {
                (2 * self.pause).clamp(FIRST_PAUSE, LONGEST_PAUSE)
            }
            _ => FIRST_PAUSE,
        };
        self.ended_at = now;
        !matches!(looked, Ok(Found::Changes)) && now.since(self.trouble_at) < TROUBLE
    }
}

impl Nodes {
    /// Asks a node for the map, or joins a look under way.
    pub(super) async fn look_around(self: &Arc<Self>) -> StoreResult<()> {
        let handle = Handle::try_current().map_err(|_| no_runtime())?;
        let mut outcome = self.begin_look(&handle, None, Haste::Now);
        let outcome = match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        outcome.unwrap_or_else(|| Err(given_up()))
    }

    /// The map may be wrong. If a node says so, the one at `hint` knows better.
    pub(super) fn look_around_soon(self: &Arc<Self>, hint: Option<Address>) {
        // Where no runtime is, nobody asks for a lock either.
        if let Ok(handle) = Handle::try_current() {
            let haste = if hint.is_some() { Haste::Soon } else { Haste::InTurn };
            self.survey.state().trouble_at = CLOCK.now();
            drop(self.begin_look(&handle, hint, haste));
        }
    }

    fn begin_look(
        self: &Arc<Self>,
        handle: &Handle,
        hint: Option<Address>,
        haste: Haste,
    ) -> Outcome {
        let mut state = self.survey.state();
        // One whose sender is gone has ended, be it with its runtime.
        if let Some(outcome) = &state.under_way
            && outcome.has_changed().is_ok()
            && outcome.borrow().is_none()
        {
            return outcome.clone();
        }
        let (report, outcome) = watch::channel(None);
        state.under_way = Some(outcome.clone());
        let pause = match haste {
            Haste::InTurn => state.pause,
            Haste::Now => Duration::ZERO,
            Haste::Soon => state.pause.min(FIRST_PAUSE),
        };
        let begin_at = state.ended_at + pause;
        let turn = state.turn;
        state.turn += 1;
        drop(state);
        let nodes = Arc::downgrade(self);
        handle.spawn(async move {
            sleep(begin_at.since(CLOCK.now())).await;
            let Some(nodes) = nodes.upgrade() else { return };
            let looked = nodes.look(hint, turn).await;
            let again = nodes.survey.state().ended(&looked);
            report.send_replace(Some(looked.map(drop)));
            // Those who found out are waiting, and must not wait longer than it takes.
            if again && let Ok(handle) = Handle::try_current() {
                drop(nodes.begin_look(&handle, None, Haste::InTurn));
            }
        });
        outcome
    }

    async fn look(self: &Arc<Self>, hint: Option<Address>, turn: usize) -> StoreResult<Found> {
        let limit = self.atlas.config().node.connect_timeout;
        let candidates = self.candidates(hint, turn);
        let nodes = Arc::clone(self);
        let ask = move |address: Address| {
            let nodes = Arc::clone(&nodes);
            Box::pin(async move { nodes.ask_for_map(&address).await }) as BoxFuture<_>
        };
        let Ok(looked) = timeout(limit, first_success(candidates, ask)).await else {
            let text = format!("no node of the cluster told where the slots are within {limit:?}");
            return Err(StoreError::new(StoreErrorKind::Unavailable, text));
        };
        Ok(if self.atlas.adopt(looked?) { Found::Changes } else { Found::Nothing })
    }

    /// Looks around every now and then as long as somebody waits to hear of a grant: a primary that
    /// was deposed still passes messages on, but nobody counts on those who listen there.
    pub(super) fn keep_watch(self: &Arc<Self>) {
        let Ok(handle) = Handle::try_current() else { return };
        let mut state = self.survey.state();
        state.listened_at = CLOCK.now();
        if state.watch.as_ref().is_some_and(|watch| !watch.is_finished()) {
            return;
        }
        let nodes = Arc::downgrade(self);
        state.watch = Some(handle.spawn(async move {
            loop {
                sleep(WATCH_EVERY).await;
                let Some(nodes) = nodes.upgrade() else { return };
                if CLOCK.now().since(nodes.survey.state().listened_at) > WATCH_FOR {
                    return;
                }
                if let Ok(handle) = Handle::try_current() {
                    drop(nodes.begin_look(&handle, None, Haste::InTurn));
                }
            }
        }));
    }

    /// Whom to ask, those first who are likely to answer.
    fn candidates(&self, hint: Option<Address>, turn: usize) -> Vec<Address> {
        let mut candidates: Vec<Address> = hint.into_iter().collect();
        let topology = self.atlas.topology();
        let mut primaries = topology.as_ref().map_or(&[][..], |known| known.primaries()).to_vec();
        if !primaries.is_empty() {
            let first = turn % primaries.len();
            primaries.rotate_left(first);
        }
        primaries.sort_by_key(|address| !self.reaches(address));
        let replicas = topology.as_ref().map_or(&[][..], |known| known.replicas());
        let seeds = &self.atlas.config().seeds;
        for address in primaries.iter().chain(replicas).chain(seeds) {
            if !candidates.contains(address) {
                candidates.push(address.clone());
            }
        }
        candidates
    }

    async fn ask_for_map(self: &Arc<Self>, address: &Address) -> StoreResult<Layout> {
        let member = Member { address: address.clone(), purpose: Purpose::Requests };
        let line = self.line(&member).await?;
        let mut connection = line.connection();
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let limit = self.atlas.config().node.response_timeout;
        let reply = match within(limit, pin!(connection.send_packed_command(&command))).await {
            Some(reply) => reply.and_then(Value::extract_error),
            None => {
                let text = format!("redis at {address} did not answer within {limit:?}");
                return Err(StoreError::new(StoreErrorKind::Unavailable, text));
            }
        };
        let reply = reply.map_err(|error| {
            if error::is_no_cluster(&error) {
                let text = format!(
                    "redis at {address} is no node of a cluster: write redis:// for a single server"
                );
                return StoreError::new(StoreErrorKind::Refused, text);
            }
            error::explain(&error, &address.to_string())
        })?;
        Layout::read(&reply, address).ok_or_else(|| {
            let text = format!("redis at {address} knows of no slots: its cluster is not set up");
            StoreError::new(StoreErrorKind::Unavailable, text)
        })
    }
}

/// The first success. The next attempt begins when one has failed, or takes its time: so who is
/// silent does not hold up the others.
pub(super) async fn first_success<T: Send + 'static>(
    candidates: Vec<Address>,
    attempt: impl Fn(Address) -> BoxFuture<StoreResult<T>>,
) -> StoreResult<T> {
    let mut candidates = candidates.into_iter();
    let mut attempts = JoinSet::new();
    let mut failure = None;
    loop {
        let next = candidates.next();
        let is_last = next.is_none();
        if let Some(address) = next {
            attempts.spawn(attempt(address));
        }
        let finished = tokio::select! {
            finished = attempts.join_next() => finished,
            () = sleep(PATIENCE), if !is_last => continue,
        };
        match finished {
            Some(Ok(Ok(success))) => return Ok(success),
            // What does not pass says more than what may.
            Some(Ok(Err(error))) => match &failure {
                Some(StoreError { kind: StoreErrorKind::Refused, .. }) => {}
                _ => failure = Some(error),
            },
            Some(Err(_)) => {}
            None => return Err(failure.unwrap_or_else(given_up)),
        }
    }
}

/// How long the next look waits after one that found changes, or the first one in a while.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// A part of what a cluster needs to replace a dead node.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Longer than whoever is in trouble waits before it tries again.
const TROUBLE: Duration = Duration::from_secs(2);
/// What a waiter may lose by a primary that was deposed without a word.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Longer than any waiter goes without asking again.
const WATCH_FOR: Duration = Duration::from_secs(6);
/// After so long without a look the next one is a first one.
const CALM: Duration = Duration::from_secs(5);
/// How long one node is given before the next one is asked as well.
const PATIENCE: Duration = Duration::from_millis(100);
const CLOCK: Clock = Clock::Boot;
