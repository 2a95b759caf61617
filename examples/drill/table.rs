//! What the terminal shows at the end.

use std::time::Duration;

use crate::fault::Kind;
use crate::judge::Judge;
use crate::plan::Plan;

pub(crate) use crate::judge::Tally;

/// Prints the table and the verdict, and says whether it is a good one.
pub(crate) fn show(judge: &Judge, plan: &Plan, took: Duration) -> bool {
    println!(
        "\n  {:<16} {:>6} {:>9} {:>7} {:>8} {:>8} {:>7} {:>8} {:>17}",
        "", "", "", "", "bodies", "ticks in", "stale", "", "recovered within"
    );
    println!(
        "  {:<16} {:>6} {:>9} {:>7} {:>8} {:>8} {:>7} {:>8} {:>17}",
        "fault",
        "times",
        "sections",
        "losses",
        "at once",
        "freezes",
        "writes",
        "overlap",
        "median / longest"
    );
    let group = |title: &str, belongs: &dyn Fn(Option<Kind>) -> bool| {
        let tallies: Vec<_> = judge.tallies.iter().filter(|(kind, _)| belongs(**kind)).collect();
        if !tallies.is_empty() {
            println!("  {title}");
        }
        for (kind, tally) in tallies {
            row(kind.map_or("none", Kind::word), tally);
        }
    };
    group("the store keeps its data:", &|kind| kind.is_none_or(|kind| !kind.loses_locks()));
    group("the store loses locks:", &|kind| kind.is_some_and(Kind::loses_locks));

    let sum = |of: fn(&Tally) -> u64| judge.tallies.values().map(of).sum::<u64>();
    println!(
        "\n  {} sections in {:.0} s, {} faults, {} losses signalled; {} writes taken by the fenced \
         store, {} stale ones refused",
        sum(|tally| tally.sections),
        took.as_secs_f64(),
        sum(|tally| tally.faults),
        sum(|tally| tally.losses),
        sum(|tally| tally.accepted),
        sum(|tally| tally.refused),
    );
    let calls: Vec<_> =
        judge.outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    println!("  calls: {}", calls.join(", "));
    if judge.held_up > 0 {
        println!(
            "  {} of the ticks in freezes come from threads that the machine itself held up",
            judge.held_up
        );
    }
    for finding in judge.findings.iter().take(SHOWN) {
        println!("  FOUND {finding}");
    }
    if judge.findings.len() > SHOWN {
        println!("  ... and {} more", judge.findings.len() - SHOWN);
    }
    let holds = judge.findings.is_empty();
    let verdict = if holds { "passed" } else { "FAILED" };
    println!("\nseed {}: {verdict}", plan.seed);
    holds
}

fn row(name: &str, tally: &Tally) {
    let mut recoveries = tally.recoveries.clone();
    recoveries.sort();
    let recovered = match recoveries.last() {
        Some(longest) => format!(
            "{:.2} / {:.2} s",
            recoveries[recoveries.len() / 2].as_secs_f64(),
            longest.as_secs_f64()
        ),
        None => String::new(),
    };
    let overlap = match tally.overlap {
        Duration::ZERO => String::new(),
        overlap => format!("{:.2} s", overlap.as_secs_f64()),
    };
    println!(
        "    {name:<14} {:>6} {:>9} {:>7} {:>8} {:>8} {:>7} {overlap:>8} {recovered:>17}",
        tally.faults,
        tally.sections,
        tally.losses,
        tally.at_once,
        tally.frozen_ticks,
        tally.refused,
    );
}

const SHOWN: usize = 20;
