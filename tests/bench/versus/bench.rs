//! What all scenarios share.

use crate::contestant::Name;
use crate::job::Job;
use crate::options::Options;
use crate::round::Round;
use crate::server::Server;

/// One run of the benchmark.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) options: Options,
    pub(crate) server: Server,
}

impl Bench {
    pub(crate) fn new(options: Options) -> Self {
        Self { options, server: Server::start() }
    }

    pub(crate) fn job(&self, scenario: &'static str, contestant: Name) -> Job {
        Job::new(scenario, contestant, &self.server.url())
    }

    /// Lets the contestants take turns: a round that counts, then the timed ones, each beginning
    /// with another contestant.
    pub(crate) fn take_turns(
        &mut self,
        contestants: &[Name],
        turn: impl FnMut(&mut Self, Name, Round),
    ) {
        self.take_turns_of(1, contestants, turn);
    }

    /// The same with so many short rounds in place of each timed one: what disturbs the machine for
    /// a second or two then disturbs all contestants alike.
    pub(crate) fn take_turns_of(
        &mut self,
        parts: usize,
        contestants: &[Name],
        mut turn: impl FnMut(&mut Self, Name, Round),
    ) {
        for number in 0..=self.options.rounds * parts {
            let round = if number == 0 { Round::Counted } else { Round::Timed };
            let admitted = contestants.iter().filter(|name| self.options.admits(**name));
            let mut order: Vec<_> = admitted.copied().collect();
            let first = number % order.len().max(1);
            order.rotate_left(first);
            for contestant in order {
                eprintln!("  round {number}: {}", contestant.text());
                self.server.forget_everything();
                turn(self, contestant, round);
            }
        }
    }
}
