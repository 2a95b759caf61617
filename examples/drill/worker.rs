//! One process of the drill: tasks that take locks, work, and give them back, until they are told to
//! stop or something stops them.

use std::env;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use distlock::{LockClient, LockErrorKind};

use crate::plan::{LEASE, WAIT};
use crate::report::{Call, Outcome, Report, What};
use crate::work::{Length, Noted, Polls, Section, Style, Tell};

/// What a process is told, through the variable [`VARIABLE`] of its environment.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) process: u32,
    /// Which start of the process this is.
    pub(crate) start: u32,
    pub(crate) tasks: u32,
    pub(crate) keys: u32,
    pub(crate) url: String,
    /// The witness's socket.
    pub(crate) witness: PathBuf,
}

/// Carries out the order in the environment, if there is one, and ends the process then.
pub(crate) fn carry_out() {
    let Ok(order) = env::var(VARIABLE) else { return };
    let done = order.parse().and_then(|order: Order| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        runtime.block_on(work(order))
    });
    if let Err(error) = done {
        eprintln!("a process of the drill: {error}");
        process::exit(1);
    }
    process::exit(0);
}

async fn work(order: Order) -> Result<(), String> {
    let witness = UnixStream::connect(&order.witness).map_err(|error| error.to_string())?;
    let locks = LockClient::builder()
        .url(&order.url)
        .lease(LEASE)
        .wait(WAIT)
        .build()
        .and_then(|locks| locks.install_default().map(|()| locks))
        .map_err(|error| error.to_string())?;
    let worker = Arc::new(Worker {
        locks: locks.clone(),
        witness: Arc::new(Witness(Mutex::new(witness))),
        ticks: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
        running: (0..order.tasks).map(|_| Mutex::new(None)).collect(),
        numbers: AtomicU64::new(0),
        order,
    });
    let watch = Arc::clone(&worker);
    thread::spawn(move || watch.watch());
    let ears = Arc::clone(&worker);
    thread::spawn(move || ears.listen());
    let tasks: Vec<_> = (0..worker.order.tasks)
        .map(|task| tokio::spawn(Arc::clone(&worker).work_on(task as usize)))
        .collect();
    for task in tasks {
        task.await.map_err(|error| error.to_string())?;
    }
    locks.shutdown(Duration::from_secs(5)).await.map_err(|error| error.to_string())
}

struct Worker {
    order: Order,
    locks: LockClient,
    witness: Arc<Witness>,
    /// Time that stands still while the process is frozen.
    ticks: AtomicU64,
    stopped: AtomicBool,
    /// What each task is at, and since which tick.
    running: Vec<Mutex<Option<(Section, u64)>>>,
    numbers: AtomicU64,
}

struct Witness(Mutex<UnixStream>);

impl Tell for Witness {
    fn tell(&self, report: &Report) {
        let mut witness = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if witness.write_all(format!("{report}\n").as_bytes()).is_err() {
            // The drill has gone.
            process::exit(1);
        }
    }
}

impl Worker {
    async fn work_on(self: Arc<Self>, task: usize) {
        while !self.stopped.load(Ordering::Relaxed) {
            let outcome = self.call(task).await;
            if matches!(outcome, Outcome::Backend | Outcome::Busy | Outcome::Foreign) {
                tokio::time::sleep(Duration::from_millis(fastrand::u64(5..50))).await;
            }
        }
    }

    async fn call(&self, task: usize) -> Outcome {
        let (style, length) = (Style::roll(), Length::roll());
        let polls = Arc::new(Polls::default());
        let section = Section {
            call: Call {
                process: self.order.process,
                start: self.order.start,
                number: self.numbers.fetch_add(1, Ordering::Relaxed),
            },
            key: fastrand::u32(..self.order.keys),
            length,
            polls: Arc::clone(&polls),
            to: self.witness.clone(),
        };
        let patience = match fastrand::u32(..100) {
            0..12 => Duration::from_millis(fastrand::u64(..500)),
            _ => Duration::MAX,
        };
        section.tell(What::Began);
        let since = self.ticks.load(Ordering::Relaxed);
        *self.running[task].lock().expect("nothing panics under it") =
            Some((section.clone(), since));
        let call = Noted { polls, call: Box::pin(section.clone().work(&self.locks, style)) };
        let outcome = tokio::time::timeout(patience, call).await;
        *self.running[task].lock().expect("nothing panics under it") = None;

        let took = TICK * u32::try_from(self.ticks.load(Ordering::Relaxed) - since).unwrap_or(0);
        let outcome = match outcome {
            Err(_) => Outcome::GaveUp,
            Ok(Ok(Some(()))) => Outcome::Done,
            Ok(Ok(None)) => Outcome::Busy,
            Ok(Err(error)) => match error.kind() {
                LockErrorKind::Lost { .. } => Outcome::Lost,
                LockErrorKind::Backend | LockErrorKind::Timeout if took > WAIT + SLACK => {
                    eprintln!("{style:?}, {length:?}, refused after {took:?}: {error}");
                    Outcome::Late
                }
                LockErrorKind::Timeout => Outcome::Busy,
                LockErrorKind::Backend => Outcome::Backend,
                LockErrorKind::ForeignValue => Outcome::Foreign,
                _ => {
                    eprintln!("{style:?}, {length:?}: {error}");
                    Outcome::Unexpected
                }
            },
        };
        section.tell(What::Ended(outcome));
        outcome
    }

    /// Reports calls that hang.
    fn watch(&self) {
        loop {
            thread::sleep(TICK);
            let now = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
            for running in &self.running {
                let running = running.lock().expect("nothing panics under it");
                let Some((section, since)) = &*running else { continue };
                if TICK * u32::try_from(now - since).unwrap_or(0) == LONGEST_CALL {
                    section.tell(What::Hangs);
                }
            }
        }
    }

    /// Stops when told so, and ends with the drill, however that ends.
    fn listen(&self) {
        let mut lines = io::stdin().lines();
        if lines.next().is_some() {
            self.stopped.store(true, Ordering::Relaxed);
        }
        if lines.next().is_none() {
            process::exit(1);
        }
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { process, start, tasks, keys, url, witness } = self;
        write!(f, "{process} {start} {tasks} {keys} {url} {}", witness.display())
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.splitn(6, ' ').collect();
        let [process, start, tasks, keys, url, witness] = words[..] else {
            return Err(format!("{VARIABLE} is for the drill itself"));
        };
        let number = |word: &str| word.parse::<u32>().map_err(|error| error.to_string());
        Ok(Self {
            process: number(process)?,
            start: number(start)?,
            tasks: number(tasks)?,
            keys: number(keys)?,
            url: url.to_owned(),
            witness: witness.into(),
        })
    }
}

pub(crate) const VARIABLE: &str = "DISTLOCK_DRILL_ORDER";
/// Waiting, then the longest body, and the release.
const LONGEST_CALL: Duration = Duration::from_secs(20);
/// What a refusal may take longer than `wait` on a busy machine.
const SLACK: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(100);
