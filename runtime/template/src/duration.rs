//! How a duration is spelled: `500ms`, `2s`, `1m30s`, `1.5s`, `2h`. The unit is part of it, always.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Reads a duration. Largest unit first, each at most once; the last number may have a fraction.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(distlock_template::duration("1m30s"), Ok(Duration::from_secs(90)));
/// assert_eq!(
///     distlock_template::duration("10").unwrap_err().to_string(),
///     "`10` has no unit; did you mean `10s`?"
/// );
/// ```
///
/// # Errors
///
/// No number, no unit, an unknown unit, a sign, a space, units out of order, or more than 365 days.
/// The text says what to write.
pub fn duration(text: &str) -> Result<Duration, DurationError> {
    if text.trim().is_empty() {
        return Err(DurationError::new(format!("a duration is empty; {EXAMPLES}")));
    }
    if text.starts_with('-') {
        return Err(DurationError::new(format!("`{text}` is negative; {EXAMPLES}")));
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    let mut previous: Option<&Unit> = None;
    while !rest.is_empty() {
        let part = Part::take(text, rest)?;
        if let Some(previous) = previous.filter(|previous| previous.nanos <= part.unit.nanos) {
            return Err(DurationError::new(format!(
                "`{text}` has `{}` after `{}`; write the largest unit first and each one once, as \
                 in `1m30s`",
                part.unit.name, previous.name
            )));
        }
        if part.has_fraction && !part.rest.is_empty() {
            return Err(DurationError::new(format!(
                "`{text}` has a fraction before its last unit; write whole numbers there, as in \
                 `1m30s`"
            )));
        }
        total = part.value.and_then(|value| total.checked_add(value)).unwrap_or(Duration::MAX);
        previous = Some(part.unit);
        rest = part.rest;
    }
    if total > MAX_DURATION {
        return Err(DurationError::new(format!(
            "`{text}` is too long; a duration may be at most 365 days (`8760h`)"
        )));
    }
    Ok(total)
}

/// The longest duration that [`duration`] reads.
pub const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What is wrong with a duration, and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurationError(Cow<'static, str>);

impl DurationError {
    fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for DurationError {}

/// A number and its unit, from the front of a duration.
struct Part<'t> {
    /// `None`: too long to count.
    value: Option<Duration>,
    unit: &'static Unit,
    has_fraction: bool,
    rest: &'t str,
}

impl<'t> Part<'t> {
    fn take(text: &str, rest: &'t str) -> Result<Self, DurationError> {
        let (number, after) = split_at_first(rest, |c| !(c.is_ascii_digit() || c == '.'));
        let (whole, fraction) =
            number.split_once('.').map_or((number, None), |(w, f)| (w, Some(f)));
        let malformed = whole.is_empty()
            || fraction.is_some_and(|fraction| {
                fraction.is_empty() || fraction.contains('.') || fraction.len() > 9
            });
        if malformed {
            return Err(DurationError::new(format!("`{text}` is no duration; {EXAMPLES}")));
        }
        let before = &text[..text.len() - rest.len()];
        let (unit, rest) = split_at_first(after, |c| c.is_ascii_digit());
        let known = UNITS.iter().find(|known| known.name == unit);
        let unit = known.ok_or_else(|| no_unit(text, before, number, unit))?;
        Ok(Self {
            value: scale(whole, fraction, unit),
            unit,
            has_fraction: fraction.is_some(),
            rest,
        })
    }
}

/// Says what is wrong with `unit`, which stands in `text` after `before` and `number`.
fn no_unit(text: &str, before: &str, number: &str, unit: &str) -> DurationError {
    let is_last = text.len() == before.len() + number.len() + unit.len();
    let bare = unit.trim().trim_end_matches('.').to_lowercase();
    let meant = UNITS.iter().find(|known| known.name == bare || known.spellings.contains(&&*bare));
    DurationError::new(match meant {
        _ if unit.is_empty() => {
            let meant = previous_unit_below(before).unwrap_or("s");
            format!("`{text}` has no unit; did you mean `{text}{meant}`?")
        }
        Some(meant) if is_last => {
            let fault = if unit.contains(char::is_whitespace) {
                String::from("a space in it")
            } else {
                format!("the unit `{unit}`")
            };
            format!("`{text}` has {fault}; did you mean `{before}{number}{}`?", meant.name)
        }
        _ => format!("`{text}` has the unknown unit `{unit}`; {EXAMPLES}"),
    })
}

/// The unit that is missing in `1m30`: the one below the last that is there.
fn previous_unit_below(before: &str) -> Option<&'static str> {
    let at = UNITS.iter().position(|unit| {
        before
            .strip_suffix(unit.name)
            .is_some_and(|rest| rest.ends_with(|c: char| c.is_ascii_digit()))
    })?;
    UNITS.get(at + 1).map(|unit| unit.name)
}

/// `whole.fraction` of `unit`. Whole numbers only: an `f64` would make 0.1s one nanosecond off.
fn scale(whole: &str, fraction: Option<&str>, unit: &Unit) -> Option<Duration> {
    let mut nanos = whole.parse::<u128>().ok()?.checked_mul(unit.nanos)?;
    if let Some(fraction) = fraction {
        // At most nine digits, so neither the number nor the power of ten overflows.
        let parts = fraction.parse::<u128>().ok()?;
        let of = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        nanos = nanos.checked_add(parts.checked_mul(unit.nanos)? / of)?;
    }
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).ok()?;
    let rest = u32::try_from(nanos % NANOS_PER_SECOND).ok()?;
    Some(Duration::new(seconds, rest))
}

fn split_at_first(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

struct Unit {
    name: &'static str,
    nanos: u128,
    /// What people write for it elsewhere.
    spellings: &'static [&'static str],
}

/// Largest first.
const UNITS: &[Unit] = &[
    Unit { name: "h", nanos: 3600 * NANOS_PER_SECOND, spellings: &["hr", "hrs", "hour", "hours"] },
    Unit {
        name: "m",
        nanos: 60 * NANOS_PER_SECOND,
        spellings: &["min", "mins", "minute", "minutes"],
    },
    Unit { name: "s", nanos: NANOS_PER_SECOND, spellings: &["sec", "secs", "second", "seconds"] },
    Unit {
        name: "ms",
        nanos: 1_000_000,
        spellings: &["msec", "msecs", "milli", "millis", "millisecond", "milliseconds"],
    },
];

const NANOS_PER_SECOND: u128 = 1_000_000_000;

const EXAMPLES: &str = "write a number and a unit, as in `500ms`, `10s`, `1m30s` or `2h`";
