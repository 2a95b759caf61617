//! Counting instructions.

use std::process::Command;

use crate::cases::Case;

/// Instructions an iteration: the difference between many and few, so that what happens once does
/// not count.
pub(crate) fn of(case: &Case) -> f64 {
    let (few, many) = (1_000, 5_000);
    (total(case, many) - total(case, few)) / (many - few) as f64
}

fn total(case: &Case, iterations: u64) -> f64 {
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args(["--case", case.name, &iterations.to_string()])
        .output()
        .expect("valgrind is installed");
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.contains("refs:"));
    let number = line.and_then(|line| line.rsplit(':').next());
    let digits: String = number.unwrap_or("").chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("valgrind counted nothing:\n{text}"))
}
