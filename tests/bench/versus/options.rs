//! What the command line asks for.

use crate::contestant::Name;
use crate::scenario;

/// How to measure, and what.
#[derive(Debug)]
pub(crate) struct Options {
    /// Timed rounds; the untimed one comes on top.
    pub(crate) rounds: usize,
    pub(crate) extent: Extent,
    /// Who takes part; all if there is none.
    contestants: Vec<Name>,
    /// Scenarios whose name begins with one of these; all if there is none.
    scenarios: Vec<String>,
}

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Full,
    /// All scenarios in about two minutes: to see that they work, and the rough order.
    Quick,
}

impl Options {
    pub(crate) fn from_arguments(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            rounds: 0,
            extent: Extent::Full,
            contestants: Vec::new(),
            scenarios: Vec::new(),
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                // Given by `cargo bench`.
                "--bench" => {}
                "--quick" => options.extent = Extent::Quick,
                "--rounds" => {
                    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok());
                    options.rounds = rounds.filter(|rounds| *rounds > 0).ok_or_else(usage)?;
                }
                "--only" => {
                    let names = arguments.next().ok_or_else(usage)?;
                    for text in names.split(',') {
                        let name = Name::ALL.into_iter().find(|name| name.text() == text);
                        options.contestants.push(name.ok_or_else(usage)?);
                    }
                }
                name if scenario::names().iter().any(|known| known.starts_with(name)) => {
                    options.scenarios.push(name.to_owned());
                }
                _ => return Err(usage()),
            }
        }
        if options.rounds == 0 {
            options.rounds = if options.extent == Extent::Quick { 1 } else { 3 };
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, scenario: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|name| scenario.starts_with(name))
    }

    pub(crate) fn admits(&self, contestant: Name) -> bool {
        self.contestants.is_empty() || self.contestants.contains(&contestant)
    }

    /// One of two extents.
    pub(crate) fn pick<T>(&self, full: T, quick: T) -> T {
        match self.extent {
            Extent::Full => full,
            Extent::Quick => quick,
        }
    }
}

fn usage() -> String {
    format!(
        "cargo bench -p distlock-bench --bench versus \
         [-- [--quick] [--rounds N] [--only contestant,...] [scenario ...]]\n\
         scenarios, by the beginning of their names: {}\n\
         contestants: {}",
        scenario::names().join(", "),
        Name::ALL.map(Name::text).join(", ")
    )
}
