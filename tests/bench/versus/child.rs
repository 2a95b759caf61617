//! The parent's side of a child process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Stdio};

use crate::job::Job;
use crate::station::{DONE, READY};

/// A child that measures; killed if it is dropped before it is done.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    output: BufReader<ChildStdout>,
}

/// What a child measured: rows of numbers by name.
#[derive(Debug, Default)]
pub(crate) struct Report(BTreeMap<String, Vec<Vec<f64>>>);

impl Child {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(job: &Job) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut process = Command::new(program)
            .args(job.to_arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let output = BufReader::new(process.stdout.take().expect("it was piped"));
        let mut child = Self { process, output };
        let report = child.read_until(READY);
        assert!(report.0.is_empty(), "{job:?} reported before it was ready: {report:?}");
        child
    }

    /// Lets it begin, or go on.
    pub(crate) fn go(&mut self) {
        let input = self.process.stdin.as_mut().expect("it was piped");
        input.write_all(b"go\n").expect("the child reads");
    }

    /// Waits until it says that it is ready once more; what it reported until then.
    pub(crate) fn await_ready(&mut self) -> Report {
        self.read_until(READY)
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Report {
        self.read_until(DONE)
    }

    /// The process, to kill or look at.
    pub(crate) fn process(&mut self) -> &mut std::process::Child {
        &mut self.process
    }

    fn read_until(&mut self, last: &str) -> Report {
        let mut report = Report::default();
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("the child's output is text");
            assert!(read > 0, "a child ended early; its words are above");
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            if name == last {
                return report;
            }
            let values = words.map(|word| word.parse().expect("a child reports numbers"));
            report.0.entry(name.to_owned()).or_default().push(values.collect());
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Report {
    /// A number that is reported once.
    pub(crate) fn one(&self, name: &str) -> f64 {
        self.rows(name).first().and_then(|row| row.first()).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn rows(&self, name: &str) -> &[Vec<f64>] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}
