//! A child's side of the talk with its parent: says that it is ready, waits for the word, and says
//! what it measured. Lines of a name and numbers, which `child` reads.

use std::io::{self, BufRead, Write};

/// Says that all is set up, and blocks until the parent lets it begin.
pub(crate) fn ready() {
    say(READY);
    await_word();
}

/// Blocks until the parent says the next word.
pub(crate) fn await_word() {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).unwrap_or(0);
    // The parent is gone.
    if read == 0 {
        std::process::exit(1);
    }
}

/// Reports one row of numbers.
pub(crate) fn report(name: &str, values: &[f64]) {
    let mut row = name.to_owned();
    for value in values {
        row.push(' ');
        row.push_str(&value.to_string());
    }
    say(&row);
}

/// Ends the process: what peers leave running in the background is of no interest.
pub(crate) fn done() -> ! {
    say(DONE);
    std::process::exit(0)
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    let said = writeln!(out, "{line}").and_then(|()| out.flush());
    if said.is_err() {
        std::process::exit(1);
    }
}

pub(crate) const READY: &str = "ready";
pub(crate) const DONE: &str = "done";
