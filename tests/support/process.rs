//! Child processes: the test binary itself, started again to play another instance.
//!
//! A binary that uses them has a test that is the child's whole life, named by [`Process::start`]. It
//! returns at once where it is run as a test, and else does what [`Orders`] says.

use std::env;
use std::io::{BufRead, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A running child. It ends with this handle, and with the process of the test.
#[derive(Debug)]
pub(crate) struct Process(Child);

/// What a child is told.
#[derive(Debug)]
pub(crate) struct Orders {
    words: mpsc::Receiver<String>,
}

impl Process {
    /// Starts a child that runs `test`, such as `"processes::child"`, with these orders.
    pub(crate) fn start(test: &str, orders: &[(&str, String)]) -> Self {
        let mut command = Command::new(env::current_exe().expect("our own binary"));
        command.args(["--exact", test, "--nocapture", "--test-threads", "1"]);
        command.env(MARK, "1").envs(orders.iter().map(|(name, value)| (variable(name), value)));
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        Self(command.spawn().expect("our own binary starts"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Sends a word, which the child gets by [`Orders::next_word`].
    pub(crate) fn tell(&mut self, word: &str) {
        let stdin = self.0.stdin.as_mut().expect("piped");
        // If the child has gone, its test finds out by what is missing.
        let _ = writeln!(stdin, "{word}").and_then(|()| stdin.flush());
    }

    /// SIGSTOP.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Waits until it has ended by itself; whether all went well.
    pub(crate) fn wait(&mut self, limit: Duration) -> bool {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("our own child") {
                return status.success();
            }
            assert!(start.elapsed() < limit, "the child did not end within {limit:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("our own child");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Orders {
    /// The orders, in a child; `None` where the test runs as a test.
    pub(crate) fn given() -> Option<Self> {
        env::var_os(MARK)?;
        let (told, words) = mpsc::channel();
        thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if told.send(line).is_err() {
                    return;
                }
            }
            // The pipe closes with the test's process, however that ends.
            std::process::exit(1);
        });
        Some(Self { words })
    }

    pub(crate) fn text(&self, name: &str) -> String {
        env::var(variable(name)).unwrap_or_else(|_| panic!("an order {name:?}"))
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_else(|_| panic!("order {name:?} is no number"))
    }

    /// Waits for a word from the test. Blocks.
    pub(crate) fn next_word(&self) -> String {
        self.words.recv().expect("the process ends with the pipe")
    }
}

fn variable(name: &str) -> String {
    format!("DISTLOCK_CHILD_{}", name.to_ascii_uppercase())
}

const MARK: &str = "DISTLOCK_CHILD";
