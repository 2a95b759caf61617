//! What can go wrong in the drill, and in what order it does.

use std::fmt;
use std::time::Duration;

use crate::plan::{LEASE, Plan};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A process is killed by SIGKILL and started again.
    Kill,
    /// A process is stopped by SIGSTOP for several leases.
    Freeze,
    /// Connections are closed.
    Cut,
    /// Connections are reset.
    Reset,
    /// Requests and replies come late.
    Delay,
    /// What is sent vanishes, and its connections stay dead.
    Blackhole,
    /// What is sent is held back and comes later.
    Stall,
    /// Nobody accepts connections.
    Refuse,
    /// Some commands are carried out, and their replies are lost.
    DropReplies,
    /// Redis is stopped by SIGSTOP.
    PauseRedis,
    /// Redis is killed by SIGKILL and comes back with its data.
    RestartRedis,
    /// Redis is killed and comes back empty.
    RestartEmpty,
    /// `FLUSHALL`.
    Flush,
    /// A lock's key is deleted by hand.
    Delete,
    /// A lock's key is overwritten by another program's lock.
    Overwrite,
    /// A lock's key is replaced by a list.
    Replace,
    /// `SCRIPT FLUSH`.
    ScriptFlush,
    /// `CLIENT KILL` for all clients.
    ClientKill,
    /// `CLIENT KILL` for all subscribers.
    SubscriberKill,
    /// The counters of the fencing tokens are deleted.
    LoseCounters,
}

impl Kind {
    pub(crate) const ALL: &[Self] = &[
        Self::Kill,
        Self::Freeze,
        Self::Cut,
        Self::Reset,
        Self::Delay,
        Self::Blackhole,
        Self::Stall,
        Self::Refuse,
        Self::DropReplies,
        Self::PauseRedis,
        Self::RestartRedis,
        Self::RestartEmpty,
        Self::Flush,
        Self::Delete,
        Self::Overwrite,
        Self::Replace,
        Self::ScriptFlush,
        Self::ClientKill,
        Self::SubscriberKill,
        Self::LoseCounters,
    ];

    /// Its name among the arguments.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Cut => "cut",
            Self::Reset => "reset",
            Self::Delay => "delay",
            Self::Blackhole => "blackhole",
            Self::Stall => "stall",
            Self::Refuse => "refuse",
            Self::DropReplies => "drop-replies",
            Self::PauseRedis => "pause-redis",
            Self::RestartRedis => "restart-redis",
            Self::RestartEmpty => "restart-empty",
            Self::Flush => "flush",
            Self::Delete => "delete",
            Self::Overwrite => "overwrite",
            Self::Replace => "replace",
            Self::ScriptFlush => "script-flush",
            Self::ClientKill => "client-kill",
            Self::SubscriberKill => "subscriber-kill",
            Self::LoseCounters => "lose-counters",
        }
    }

    /// Whether the store forgets locks by it, so that two may hold one until the first has learnt.
    pub(crate) fn loses_locks(self) -> bool {
        self == Self::RestartEmpty || self == Self::Flush || self.is_by_hand()
    }

    /// Whether it is about a single key.
    pub(crate) fn is_by_hand(self) -> bool {
        matches!(self, Self::Delete | Self::Overwrite | Self::Replace)
    }

    /// Whether it strikes processes or their network, one or all.
    pub(crate) fn has_victims(self) -> bool {
        self.is_on_network() || matches!(self, Self::Kill | Self::Freeze)
    }

    fn is_on_network(self) -> bool {
        matches!(
            self,
            Self::Cut
                | Self::Reset
                | Self::Delay
                | Self::Blackhole
                | Self::Stall
                | Self::Refuse
                | Self::DropReplies
        )
    }

    /// From and to which part of a thousandth of a lease it lasts.
    fn lasts(self) -> (u32, u32) {
        match self {
            Self::Kill => (100, 700),
            Self::Freeze => (1200, 3500),
            Self::Delay => (700, 2000),
            Self::Blackhole | Self::Stall | Self::Refuse | Self::PauseRedis => (150, 2500),
            Self::RestartRedis | Self::RestartEmpty => (10, 1500),
            Self::DropReplies | Self::Overwrite | Self::Replace => (300, 1000),
            _ => (0, 1),
        }
    }
}

/// One fault of the schedule.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// The process that it strikes; `None` for all.
    pub(crate) process: Option<u32>,
    pub(crate) key: u32,
    /// How late requests and replies come.
    pub(crate) delay: Duration,
    pub(crate) lasts: Duration,
}

/// Some faults that overlap, or a single one.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// How long nothing happens before.
    pub(crate) quiet: Duration,
    /// Each with its time after the quiet.
    pub(crate) faults: Vec<(Duration, Fault)>,
}

/// All rounds of a seed: which fault comes when depends on nothing else.
pub(crate) struct Schedule {
    random: fastrand::Rng,
    plan: Plan,
    /// What has not come yet since all had come: so a short run meets most kinds.
    deck: Vec<Kind>,
}

impl Schedule {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { random: fastrand::Rng::with_seed(plan.seed), plan: plan.clone(), deck: Vec::new() }
    }

    pub(crate) fn next_round(&mut self) -> Round {
        let quiet = Duration::from_millis(self.random.u64(200..1200));
        let first = self.next_fault();
        let mut faults = vec![(Duration::ZERO, first)];
        if self.random.u32(..4) == 0 {
            let within = faults[0].1.lasts.max(LEASE / 2);
            let second = self.next_fault();
            // A server that is stopped, killed or gone cannot be asked for another fault.
            if faults[0].1.kind.has_victims() || second.kind.has_victims() {
                faults.push((within.mul_f64(self.random.f64()), second));
            }
        }
        Round { quiet, faults }
    }

    fn next_fault(&mut self) -> Fault {
        if self.deck.is_empty() {
            self.deck.clone_from(&self.plan.kinds);
            // What strikes a process is the point of it all.
            let twice = [Kind::Kill, Kind::Freeze];
            self.deck.extend(twice.iter().filter(|kind| self.plan.kinds.contains(kind)));
            self.random.shuffle(&mut self.deck);
        }
        let kind = self.deck.pop().unwrap_or(Kind::Kill);
        let random = &mut self.random;
        let one = random.u32(..self.plan.processes);
        let strikes_all = kind.is_on_network() && random.u32(..3) == 0;
        let (from, to) = kind.lasts();
        Fault {
            kind,
            process: (kind.has_victims() && !strikes_all).then_some(one),
            key: random.u32(..self.plan.keys),
            delay: Duration::from_millis(random.u64(20..500)),
            lasts: LEASE * random.u32(from..to) / 1000,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.word())?;
        match self.process {
            Some(process) => write!(f, " of process {process}")?,
            None if self.kind.has_victims() => f.write_str(" of all processes")?,
            None if self.kind.is_by_hand() => write!(f, " of key {}", self.key)?,
            None => {}
        }
        if self.kind == Kind::Delay {
            write!(f, " by {:?} each way", self.delay)?;
        }
        if self.lasts > Duration::from_millis(2) {
            write!(f, " for {:.1} s", self.lasts.as_secs_f64())?;
        }
        Ok(())
    }
}
