//! What a run is told.

use std::time::Duration;

use crate::fault::Kind;

/// The size of a run, and the seed of its faults.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    pub(crate) processes: u32,
    pub(crate) tasks: u32,
    pub(crate) keys: u32,
    /// The faults to choose from.
    pub(crate) kinds: Vec<Kind>,
}

impl Plan {
    /// Reads the program's arguments.
    pub(crate) fn read(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut plan = Self {
            seed: fastrand::u64(..1_000_000),
            time: Duration::from_secs(60),
            processes: 4,
            tasks: 6,
            keys: 3,
            kinds: Kind::ALL.to_vec(),
        };
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
            let wrong = |what| format!("{name} {value}: {what}\n{USAGE}");
            let count = || match value.parse() {
                Ok(0) | Err(_) => Err(wrong("a number above zero is needed")),
                Ok(number) => Ok(number),
            };
            match &*name {
                "--seed" => plan.seed = value.parse().map_err(|_| wrong("a number is needed"))?,
                "--minutes" => {
                    let minutes: f64 = value.parse().map_err(|_| wrong("a number is needed"))?;
                    plan.time = Duration::try_from_secs_f64(minutes * 60.0)
                        .map_err(|_| wrong("that is no time"))?;
                }
                "--processes" => plan.processes = count()?,
                "--tasks" => plan.tasks = count()?,
                "--keys" => plan.keys = count()?,
                "--faults" => {
                    plan.kinds = value
                        .split(',')
                        .map(|name| {
                            let kind = Kind::ALL.iter().find(|kind| kind.word() == name);
                            kind.copied().ok_or_else(|| format!("{name:?} is no fault\n{USAGE}"))
                        })
                        .collect::<Result<_, _>>()?;
                }
                _ => return Err(format!("{name} is unknown\n{USAGE}")),
            }
        }
        Ok(plan)
    }
}

/// Of every lock in the drill: short, so that a freeze of several leases takes little time.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);
/// As in the attribute of [`work`](crate::work).
pub(crate) const WAIT: Duration = Duration::from_secs(3);

const USAGE: &str = "drill [--seed N] [--minutes M] [--processes N] [--tasks N] [--keys N] \
                     [--faults kill,freeze,...]";
