//! One run of the drill, from the first process to the verdict.

use std::io::{IsTerminal, Write, stdout};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::clock;
use crate::crew::{Crew, Result};
use crate::fault::{Fault, Round, Schedule};
use crate::plan::{LEASE, Plan};
use crate::table;

/// Runs the drill; says whether all that was promised held. `program` starts this very program again,
/// which is to call [`carry_out`](crate::worker::carry_out).
pub(crate) fn run(plan: &Plan, program: &dyn Fn() -> Command) -> Result<bool> {
    println!(
        "{} processes with {} tasks each take {} locks for {:.0} s, with faults by seed {}",
        plan.processes,
        plan.tasks,
        plan.keys,
        plan.time.as_secs_f64(),
        plan.seed
    );
    let mut run = Run { crew: Crew::start(plan, program)?, start: Instant::now(), shown: None };
    run.recover(clock::now(), &[])?;
    let mut schedule = Schedule::new(plan);
    while run.start.elapsed() < plan.time {
        run.play(&schedule.next_round())?;
    }
    let stopped = run.crew.stop();
    if let Err(error) = stopped {
        run.crew.witness.judge().find(clock::now(), &error.to_string());
    }
    // What a killed process had goes with its lease, and its places in queues with those.
    let patience = Instant::now() + 4 * LEASE;
    while !run.crew.left_behind()?.is_empty() && Instant::now() < patience {
        thread::sleep(Duration::from_millis(50));
    }
    let left_behind = run.crew.left_behind()?;
    if !left_behind.is_empty() {
        let text = format!("keys are left in Redis: {}", left_behind.join(", "));
        run.crew.witness.judge().find(clock::now(), &text);
    }
    run.clear_line();
    Ok(table::show(&run.crew.witness.judge(), plan, run.start.elapsed()))
}

struct Run<'a> {
    crew: Crew<'a>,
    start: Instant,
    /// When the live line was shown last, and how many sections it told of.
    shown: Option<(Instant, u64)>,
}

impl Run<'_> {
    fn play(&mut self, round: &Round) -> Result<()> {
        self.pass(round.quiet)?;
        let begins = round.faults.iter().map(|(at, fault)| (*at, true, fault));
        let ends = round.faults.iter().map(|(at, fault)| (*at + fault.lasts, false, fault));
        let mut acts: Vec<_> = begins.chain(ends).collect();
        acts.sort_by_key(|(at, begins, _)| (*at, !begins));
        let start = Instant::now();
        for (at, begins, fault) in acts {
            self.pass(at.saturating_sub(start.elapsed()))?;
            if begins {
                self.say(&fault.to_string());
                self.crew.begin(fault)?;
            } else {
                self.crew.end(fault)?;
            }
        }
        let faults: Vec<_> = round.faults.iter().map(|(_, fault)| fault).collect();
        self.recover(clock::now(), &faults)
    }

    /// Waits until every process and every key is at work again.
    fn recover(&mut self, since: clock::Moment, faults: &[&Fault]) -> Result<()> {
        while !self.crew.have_worked(since) {
            if clock::between(since, clock::now()) > RECOVER_WITHIN {
                let text = format!("not everybody works again within {RECOVER_WITHIN:?}");
                self.crew.witness.judge().find(clock::now(), &text);
                break;
            }
            self.pass(Duration::from_millis(5))?;
        }
        let took = clock::between(since, clock::now());
        let mut judge = self.crew.witness.judge();
        judge.all_recovered(clock::now());
        for fault in faults {
            judge.tally_of(fault.kind).recoveries.push(took);
        }
        Ok(())
    }

    fn pass(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.crew.check()?;
            self.show();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    fn say(&self, what: &str) {
        self.clear_line();
        println!("  {:6.1} s  {what}", self.start.elapsed().as_secs_f64());
    }

    /// The live line: in a terminal the last one, elsewhere one now and then.
    fn show(&mut self) {
        let terminal = stdout().is_terminal();
        let every = if terminal { Duration::from_millis(500) } else { Duration::from_secs(10) };
        if self.shown.is_some_and(|(shown, _)| shown.elapsed() < every) {
            return;
        }
        let judge = self.crew.witness.judge();
        let sum = |of: fn(&table::Tally) -> u64| judge.tallies.values().map(of).sum::<u64>();
        let sections = sum(|tally| tally.sections);
        let rate = self.shown.map_or(0.0, |(at, before)| {
            (sections - before) as f64 / at.elapsed().as_secs_f64().max(0.001)
        });
        let line = format!(
            "  {:6.1} s  {sections} sections ({rate:.0}/s), {} inside, {} faults, {} losses \
             signalled, {} stale writes refused, {} findings",
            self.start.elapsed().as_secs_f64(),
            judge.inside(),
            sum(|tally| tally.faults),
            sum(|tally| tally.losses),
            sum(|tally| tally.refused),
            judge.findings.len()
        );
        drop(judge);
        if terminal {
            print!("\r\x1b[K{line}");
            let _ = stdout().flush();
        } else {
            println!("{line}");
        }
        self.shown = Some((Instant::now(), sections));
    }

    fn clear_line(&self) {
        if stdout().is_terminal() {
            print!("\r\x1b[K");
        }
    }
}

const RECOVER_WITHIN: Duration = Duration::from_secs(15);
