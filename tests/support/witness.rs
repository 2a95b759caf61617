//! A witness outside of Redis: bodies of any process tell it what they do, and it says afterwards how
//! many were at work at once.
//!
//! All times are of one clock, which the processes of a machine share. A body reports from inside its
//! polls; each report carries when that poll began and when the lock's local deadline was. So the
//! witness can tell what a lock must prevent from what none can:
//!
//! - a tick after another body's enter is an **overlap**, and so is any tick from a poll that began
//!   after the local deadline;
//! - unless the process was frozen within that very poll: such a tick is counted apart. No lock can
//!   prevent it; a fenced storage refuses its write.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::future::Future;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use distlock::HeldLock;
use rustix::time::{ClockId, clock_gettime};

/// Collects what bodies report, until it is dropped.
#[derive(Debug)]
pub(crate) struct Witness {
    address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bodies: HashMap<(u32, u64), Body>,
    words: Vec<String>,
    frozen: HashMap<u32, Vec<(u64, u64)>>,
}

#[derive(Clone, Debug)]
struct Body {
    process: u32,
    entered_at: u64,
    fence: u64,
    ticks: Vec<Tick>,
    left_at: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Tick {
    poll_began_at: u64,
    deadline: u64,
    sent_at: u64,
}

/// What the witness has seen.
#[derive(Debug, Default)]
pub(crate) struct Testimony {
    pub(crate) bodies: usize,
    /// Bodies that came to their end.
    pub(crate) completed: usize,
    /// How many were at work at once at most, ticks within frozen polls left out.
    pub(crate) most_at_once: usize,
    /// What must not happen, in words.
    pub(crate) overlaps: Vec<String>,
    /// Ticks from inside a poll in which the process was frozen, after another body's enter.
    pub(crate) frozen_ticks: usize,
    /// Writes with a token lower than one seen before, which a fenced storage refuses.
    pub(crate) refused_writes: usize,
    /// Of these, writes that were not made in a frozen poll.
    pub(crate) refused_writes_in_time: usize,
}

impl Witness {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("a socket");
        let seen = Arc::new(Seen::default());
        let weak = Arc::downgrade(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Some(seen) = weak.upgrade() else { return };
                let Ok(stream) = stream else { return };
                thread::spawn(move || {
                    for line in BufReader::new(stream).lines().map_while(Result::ok) {
                        seen.note(&line);
                    }
                });
            }
        });
        Self { address, seen }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Notes that `process` is frozen while `work` runs; `work` freezes it and lets it run on.
    pub(crate) fn frozen<T>(&self, process: u32, work: impl FnOnce() -> T) -> T {
        let start = now();
        let result = work();
        self.seen.state().frozen.entry(process).or_default().push((start, now()));
        result
    }

    /// Waits until somebody has said `word`, by [`Reporter::say`].
    pub(crate) fn wait_for_word(&self, word: &str) {
        self.wait(word, |state| state.words.iter().any(|said| said == word));
    }

    /// How often `word` was said.
    pub(crate) fn count_of(&self, word: &str) -> usize {
        self.seen.state().words.iter().filter(|said| *said == word).count()
    }

    /// Waits until a body of `process` has ticked after its `count`-th enter.
    pub(crate) fn wait_for_body(&self, process: u32, count: usize) {
        self.wait(&format!("body {count} of process {process}"), |state| {
            let bodies = state.bodies.values().filter(|body| body.process == process);
            bodies.filter(|body| !body.ticks.is_empty()).count() >= count
        });
    }

    fn wait(&self, what: &str, is_there: impl Fn(&State) -> bool) {
        let start = Instant::now();
        let mut state = self.seen.state();
        while !is_there(&state) {
            let left = LIMIT.checked_sub(start.elapsed());
            let left = left.unwrap_or_else(|| panic!("not within {LIMIT:?}: {what}; {state:?}"));
            state = self.seen.more.wait_timeout(state, left).expect("not poisoned").0;
        }
    }

    /// Judges all that was reported.
    pub(crate) fn testimony(&self) -> Testimony {
        // What was sent is here: the sockets are local, but their threads need a moment.
        thread::sleep(Duration::from_millis(50));
        self.seen.state().judge()
    }
}

impl Seen {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn note(&self, line: &str) {
        self.state().note(line);
        self.more.notify_all();
    }
}

impl State {
    fn note(&mut self, line: &str) {
        let (kind, rest) = line.split_once(' ').expect("a report");
        if kind == "say" {
            self.words.push(rest.to_owned());
            return;
        }
        let numbers: Vec<u64> =
            rest.split(' ').map(|number| number.parse().expect("a number")).collect();
        let [process, body, fence, poll_began_at, deadline, sent_at] = numbers[..] else {
            panic!("not a report: {line}")
        };
        let process = u32::try_from(process).expect("a process id");
        let body = self.bodies.entry((process, body)).or_insert(Body {
            process,
            entered_at: sent_at,
            fence,
            ticks: Vec::new(),
            left_at: None,
        });
        body.ticks.push(Tick { poll_began_at, deadline, sent_at });
        if kind == "leave" {
            body.left_at = Some(sent_at);
        }
    }

    fn was_frozen_in(&self, process: u32, tick: &Tick) -> bool {
        self.frozen
            .get(&process)
            .into_iter()
            .flatten()
            .any(|(start, end)| tick.poll_began_at < *end && tick.sent_at > *start)
    }

    fn judge(&self) -> Testimony {
        let mut seen = Testimony { bodies: self.bodies.len(), ..Testimony::default() };
        let mut bodies: Vec<_> = self.bodies.values().collect();
        bodies.sort_by_key(|body| body.entered_at);
        seen.completed = bodies.iter().filter(|body| body.left_at.is_some()).count();
        for (index, body) in bodies.iter().enumerate() {
            for tick in &body.ticks {
                let frozen = self.was_frozen_in(body.process, tick);
                if tick.poll_began_at > tick.deadline {
                    seen.overlaps.push(format!(
                        "process {} polled {} us after its deadline",
                        body.process,
                        tick.poll_began_at - tick.deadline
                    ));
                }
                let later =
                    bodies[index + 1..].iter().find(|other| other.entered_at < tick.sent_at);
                match later {
                    Some(_) if frozen => seen.frozen_ticks += 1,
                    Some(other) => seen.overlaps.push(format!(
                        "process {} ticked {} us after process {} entered",
                        body.process,
                        tick.sent_at - other.entered_at,
                        other.process
                    )),
                    None => {}
                }
            }
        }
        self.count_at_once(&bodies, &mut seen);
        self.count_refused(&bodies, &mut seen);
        seen
    }

    fn count_at_once(&self, bodies: &[&Body], seen: &mut Testimony) {
        let mut changes = Vec::new();
        for body in bodies {
            let in_time = body.ticks.iter().filter(|tick| !self.was_frozen_in(body.process, tick));
            let last = in_time.map(|tick| tick.sent_at).max().unwrap_or(body.entered_at);
            changes.push((body.entered_at, 1));
            // At work up to and with its last tick.
            changes.push((last + 1, -1));
        }
        changes.sort_unstable();
        let mut now = 0_i64;
        for (_, change) in changes {
            now += change;
            seen.most_at_once = seen.most_at_once.max(usize::try_from(now).unwrap_or(0));
        }
    }

    fn count_refused(&self, bodies: &[&Body], seen: &mut Testimony) {
        let mut writes: Vec<_> = bodies
            .iter()
            .flat_map(|body| body.ticks.iter().map(move |tick| (tick.sent_at, *body, tick)))
            .collect();
        writes.sort_by_key(|(sent_at, ..)| *sent_at);
        let mut highest = 0;
        for (_, body, tick) in writes {
            if body.fence < highest {
                seen.refused_writes += 1;
                let in_time = !self.was_frozen_in(body.process, tick);
                seen.refused_writes_in_time += usize::from(in_time);
            }
            highest = highest.max(body.fence);
        }
    }
}

/// A process's line to the witness.
#[derive(Clone, Debug)]
pub(crate) struct Reporter(Arc<Mutex<TcpStream>>);

/// A body's own line.
#[derive(Clone, Debug)]
pub(crate) struct BodyReporter {
    reporter: Reporter,
    body: u64,
    fence: u64,
    poll: Arc<Mutex<(u64, u64)>>,
}

impl Reporter {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the witness listens");
        stream.set_nodelay(true).expect("a socket");
        Self(Arc::new(Mutex::new(stream)))
    }

    /// Says a word for the test to wait for.
    pub(crate) fn say(&self, word: &str) {
        self.send(&format!("say {word}\n"));
    }

    /// Runs a body that reports: enter at its first tick, leave at its end.
    pub(crate) async fn body<F: Future>(
        &self,
        held: HeldLock,
        work: impl FnOnce(BodyReporter) -> F,
    ) -> F::Output {
        let fence = held.fencing_token().await.map_or(0, distlock::FencingToken::get);
        let poll = Arc::new(Mutex::new((0, 0)));
        let reporter =
            BodyReporter { reporter: self.clone(), body: now(), fence, poll: Arc::clone(&poll) };
        let last = reporter.clone();
        let body = Box::pin(async move {
            reporter.tick();
            let output = work(reporter).await;
            last.report("leave");
            output
        });
        Polled { body, held, poll }.await
    }

    fn send(&self, line: &str) {
        // The witness may have gone with its test.
        let _ = self.0.lock().expect("not poisoned").write_all(line.as_bytes());
    }
}

impl BodyReporter {
    /// "I am at work." Also stands for a write to a fenced storage.
    pub(crate) fn tick(&self) {
        self.report("tick");
    }

    fn report(&self, kind: &str) {
        let (poll_began_at, deadline) = *self.poll.lock().expect("not poisoned");
        let (process, body, fence) = (std::process::id(), self.body, self.fence);
        let mut line = String::new();
        let sent_at = now();
        writeln!(line, "{kind} {process} {body} {fence} {poll_began_at} {deadline} {sent_at}")
            .expect("a string");
        self.reporter.send(&line);
    }
}

/// Notes when each poll began, and the deadline as it was then.
struct Polled<F> {
    body: Pin<Box<F>>,
    held: HeldLock,
    poll: Arc<Mutex<(u64, u64)>>,
}

impl<F: Future> Future for Polled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let remaining = u64::try_from(self.held.remaining().as_micros()).expect("not that long");
        let began_at = now();
        *self.poll.lock().expect("not poisoned") = (began_at, began_at + remaining);
        self.body.as_mut().poll(cx)
    }
}

/// Microseconds of the clock that all processes share.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).expect("after boot") * 1_000_000
        + u64::try_from(time.tv_nsec).expect("positive") / 1_000
}

const LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(lines: &[&str], frozen: &[(u32, u64, u64)]) -> Testimony {
        let mut state = State::default();
        for (process, start, end) in frozen {
            state.frozen.entry(*process).or_default().push((*start, *end));
        }
        lines.iter().for_each(|line| state.note(line));
        state.judge()
    }

    #[test]
    fn bodies_one_after_the_other_do_not_overlap() {
        let seen = judged(
            &[
                "tick 1 1 5 100 900 110",
                "leave 1 1 5 100 900 120",
                "tick 2 1 6 130 900 140",
                "leave 2 1 6 130 900 150",
            ],
            &[],
        );
        assert_eq!((seen.bodies, seen.completed, seen.most_at_once), (2, 2, 1));
        assert!(seen.overlaps.is_empty(), "{seen:?}");
    }

    #[test]
    fn tick_after_the_next_enter_is_an_overlap() {
        let lines = ["tick 1 1 5 100 900 110", "tick 2 1 6 130 900 140", "tick 1 1 5 150 900 160"];
        let seen = judged(&lines, &[]);
        assert_eq!((seen.overlaps.len(), seen.most_at_once), (1, 2));
        assert_eq!((seen.refused_writes, seen.refused_writes_in_time), (1, 1));
    }

    #[test]
    fn tick_of_a_frozen_poll_is_counted_apart() {
        let lines =
            ["tick 1 1 5 100 900 110", "tick 2 1 6 1130 1900 1140", "tick 1 1 5 100 900 1160"];
        let seen = judged(&lines, &[(1, 120, 1150)]);
        assert!(seen.overlaps.is_empty(), "{seen:?}");
        assert_eq!((seen.frozen_ticks, seen.most_at_once), (1, 1));
        assert_eq!((seen.refused_writes, seen.refused_writes_in_time), (1, 0));
    }

    #[test]
    fn poll_begun_after_the_deadline_is_an_overlap_even_alone() {
        let seen = judged(&["tick 1 1 5 1000 900 1110"], &[(1, 120, 1150)]);
        assert_eq!(seen.overlaps.len(), 1);
    }
}
