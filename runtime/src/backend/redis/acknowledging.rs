//! Waiting for replicas: one round after the other on a connection of its own, each for all who ask at
//! the time. Each shard of the store has rounds of its own, so that who waits for the replicas of one
//! holds up nobody else.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use super::runtimes::no_runtime;
use crate::backend::{Backend, Channel, Renewal, Renewed, StoreError, StoreErrorKind, StoreResult};
use crate::join::all;

/// The connections on which replicas are waited for.
#[derive(Debug)]
pub(super) struct Acknowledging {
    backend: Arc<dyn Backend>,
    terms: Terms,
    groups: Mutex<HashMap<runtime::Id, Arc<Group>>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) replicas: u32,
    pub(super) within: Duration,
}

impl Acknowledging {
    pub(super) fn new(backend: Arc<dyn Backend>, terms: Terms) -> Self {
        Self { backend, terms, groups: Mutex::default() }
    }

    /// The group of the calling runtime, if its connection is open.
    pub(super) fn current(&self) -> Option<Arc<Group>> {
        let runtime = Handle::try_current().ok()?.id();
        self.groups().get(&runtime).filter(|group| group.channel.is_open()).cloned()
    }

    /// The same, opened if need be. Fails at once where the server does not let us wait.
    pub(super) async fn open(self: Arc<Self>) -> StoreResult<Arc<Group>> {
        let runtime = Handle::try_current().map_err(|_| no_runtime())?.id();
        if let Some(group) = self.current() {
            return Ok(group);
        }
        let channel = self.backend.open().await?;
        channel.renew_on_replicas(&[], 0, Duration::from_millis(1)).await.map_err(forbidden)?;
        let mut groups = self.groups();
        if let Some(group) = groups.get(&runtime).filter(|group| group.channel.is_open()) {
            return Ok(Arc::clone(group));
        }
        let group = Arc::new(Group { channel, terms: self.terms, rounds: Mutex::default() });
        // Those of runtimes that ended are closed.
        let closed: Vec<_> = groups.extract_if(|_, group| !group.channel.is_open()).collect();
        groups.insert(runtime, Arc::clone(&group));
        drop(groups);
        drop(closed);
        Ok(group)
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<runtime::Id, Arc<Group>>> {
        // Each change is one insertion or removal.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those who wait for replicas on one channel.
pub(super) struct Group {
    pub(super) channel: Arc<dyn Channel>,
    terms: Terms,
    /// By shards. Where a round is under way there is an entry: those who wait for the next one, each
    /// with one caller behind it.
    rounds: Mutex<HashMap<usize, Vec<Waiting>>>,
}

struct Waiting {
    renewals: Vec<Renewal>,
    report: oneshot::Sender<StoreResult<Vec<Renewed>>>,
}

impl Group {
    /// Renews, and answers once enough replicas have that and everything before it. What they do not
    /// have in time is unknown.
    pub(super) async fn acknowledge(
        self: &Arc<Self>,
        renewals: Vec<Renewal>,
    ) -> StoreResult<Vec<Renewed>> {
        let mut shards: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, renewal) in renewals.iter().enumerate() {
            shards.entry(self.channel.shard(&renewal.lock.key)).or_default().push(index);
        }
        if shards.len() < 2 {
            let shard = shards.into_keys().next().unwrap_or(0);
            return self.acknowledge_on(shard, renewals).await;
        }
        let parts = shards.iter().map(|(shard, indexes)| {
            let part = indexes.iter().map(|index| renewals[*index].clone()).collect();
            Box::pin(self.acknowledge_on(*shard, part))
        });
        let answers = all(parts.collect()).await;
        let mut renewed = vec![Renewed::Unanswered; renewals.len()];
        let mut failure = None;
        for (indexes, answer) in shards.values().zip(answers) {
            match answer {
                Ok(part) => indexes.iter().zip(part).for_each(|(at, code)| renewed[*at] = code),
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if is_unanswered(&renewed) => Err(error),
            _ => Ok(renewed),
        }
    }

    /// The same for locks of one shard.
    async fn acknowledge_on(
        self: &Arc<Self>,
        shard: usize,
        renewals: Vec<Renewal>,
    ) -> StoreResult<Vec<Renewed>> {
        let (report, outcome) = oneshot::channel();
        let waiting = Waiting { renewals, report };
        let start = match self.rounds().entry(shard) {
            Entry::Occupied(mut next) => {
                next.get_mut().push(waiting);
                false
            }
            Entry::Vacant(none) => {
                none.insert(vec![waiting]);
                true
            }
        };
        if start {
            // A task of its own: whoever comes first may leave, the others still wait for it.
            tokio::spawn(Rounds { group: Arc::clone(self), shard, ended: false }.run());
        }
        outcome.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Those of the next round; nobody, and the rounds are over, if nobody waits.
    fn take_round(&self, shard: usize) -> Vec<Waiting> {
        let mut rounds = self.rounds();
        let Entry::Occupied(mut next) = rounds.entry(shard) else { return Vec::new() };
        if next.get().is_empty() {
            return next.remove();
        }
        let mut size = 0;
        let fits = |waiting: &&Waiting| {
            size += waiting.renewals.len();
            size <= LARGEST_ROUND
        };
        let count = next.get().iter().take_while(fits).count().max(1);
        next.get_mut().drain(..count).collect()
    }

    fn rounds(&self) -> MutexGuard<'_, HashMap<usize, Vec<Waiting>>> {
        // Each change is whole when its function returns.
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rounds of a shard, one after the other. If it is dropped, those who wait get an error.
struct Rounds {
    group: Arc<Group>,
    shard: usize,
    ended: bool,
}

impl Rounds {
    async fn run(mut self) {
        let Group { channel, terms, .. } = &*Arc::clone(&self.group);
        loop {
            let mut round = self.group.take_round(self.shard);
            if round.is_empty() {
                // From here on another one may run.
                self.ended = true;
                return;
            }
            // Not for those who have left.
            round.retain(|waiting| !waiting.report.is_closed());
            let all: Vec<_> =
                round.iter().flat_map(|waiting| waiting.renewals.iter().cloned()).collect();
            if all.is_empty() {
                continue;
            }
            let reply = channel.renew_on_replicas(&all, terms.replicas, terms.within).await;
            let reply = reply.map(|(renewed, acknowledged)| Round { renewed, acknowledged });
            let mut begin = 0;
            for Waiting { renewals, report } in round {
                let part = begin..begin + renewals.len();
                begin = part.end;
                // Who left meanwhile has given up what was asked for.
                let _ = report.send(judge(&reply, *terms, part));
            }
        }
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let stranded = self.group.rounds().remove(&self.shard);
        drop(stranded);
    }
}

/// The answer to a round.
struct Round {
    renewed: Vec<Renewed>,
    acknowledged: u32,
}

/// What the answer to a round means for a part of it.
fn judge(
    reply: &StoreResult<Round>,
    terms: Terms,
    part: Range<usize>,
) -> StoreResult<Vec<Renewed>> {
    let Round { renewed, acknowledged } = reply.as_ref().map_err(Clone::clone)?;
    let mut part = renewed[part].to_vec();
    if is_unanswered(&part) {
        return Err(unanswered());
    }
    if *acknowledged >= terms.replicas {
        return Ok(part);
    }
    for renewed in &mut part {
        if *renewed == Renewed::Renewed {
            *renewed = Renewed::Unanswered;
        }
    }
    if is_unanswered(&part) {
        return Err(too_few(terms, *acknowledged));
    }
    Ok(part)
}

fn is_unanswered(part: &[Renewed]) -> bool {
    part.iter().all(|renewed| *renewed == Renewed::Unanswered)
}

fn unanswered() -> StoreError {
    let text = "redis answered for other locks of a batch, but not for this one";
    StoreError::new(StoreErrorKind::Unavailable, text)
}

fn ended() -> StoreError {
    let text = "waiting for replicas ended with its runtime";
    StoreError::new(StoreErrorKind::Unavailable, text)
}

fn too_few(terms: Terms, acknowledged: u32) -> StoreError {
    let Terms { replicas, within } = terms;
    StoreError::new(
        StoreErrorKind::Unavailable,
        format!(
            "{acknowledged} of the {replicas} replicas that min_replicas asks for acknowledged the \
             lock within {within:?}"
        ),
    )
}

/// A server that refuses to wait says so at the start, and says why.
fn forbidden(error: StoreError) -> StoreError {
    match error.kind {
        StoreErrorKind::Refused => StoreError::new(
            StoreErrorKind::Refused,
            format!("min_replicas needs the command WAIT, which is refused: {error}"),
        ),
        StoreErrorKind::Foreign | StoreErrorKind::Unavailable => error,
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("channel", &self.channel)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}

/// As the watchdog's largest batch.
const LARGEST_ROUND: usize = 100;
