//! What was counted, now and when it was last written down.

use std::fmt::Write;
use std::fs;

/// Instructions and nanoseconds by case.
#[derive(Debug, Default)]
pub(crate) struct Counts(Vec<(&'static str, f64, f64)>);

impl Counts {
    pub(crate) fn add(&mut self, case: &'static str, instructions: f64, nanos: f64) {
        self.0.push((case, instructions, nanos));
    }

    pub(crate) fn print(&self) {
        let noted = fs::read_to_string(FILE).unwrap_or_default();
        println!("| step | instructions | noted | change | ns |\n|---|---:|---:|---:|---:|");
        for (case, instructions, nanos) in &self.0 {
            let before = noted.lines().find_map(|line| {
                let (name, count) = line.split_once(' ')?;
                if name == *case { count.trim().parse::<f64>().ok() } else { None }
            });
            let (before, change) = match before {
                Some(before) => {
                    let percent = 100.0 * (instructions / before - 1.0);
                    let mark = if percent.abs() > TOLERATED_PERCENT { " **" } else { "" };
                    (format!("{before:.0}"), format!("{percent:+.1} %{mark}"))
                }
                None => ("-".to_owned(), "-".to_owned()),
            };
            println!("| {case} | {instructions:.0} | {before} | {change} | {nanos:.0} |");
        }
        for (case, instructions, nanos) in &self.0 {
            println!("RESULT micro {case} instructions {instructions:.0}");
            println!("RESULT micro {case} ns {nanos:.1}");
        }
    }

    pub(crate) fn save(&self) {
        let text = self.0.iter().fold(String::new(), |mut text, (case, instructions, _)| {
            // Writing to a text does not fail.
            let _ = writeln!(text, "{case} {instructions:.0}");
            text
        });
        fs::write(FILE, text).expect("the workspace can be written to");
    }
}

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/micro/counts.txt");
/// What hash seeds and the like make of the same program.
const TOLERATED_PERCENT: f64 = 2.0;
