//! What the bodies of the drill tell the witness: one line of text each.

use std::fmt;
use std::str::FromStr;

use crate::clock::Moment;

/// A call of a worker: the process, which start of it, and a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) process: u32,
    pub(crate) start: u32,
    pub(crate) number: u64,
}

/// Something that happened in a call, when, and in which poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) call: Call,
    pub(crate) key: u32,
    pub(crate) at: Moment,
    pub(crate) poll: Poll,
    pub(crate) what: What,
}

/// The poll of the task from inside of which a report was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poll {
    pub(crate) begun: Moment,
    /// How much of it the thread neither ran nor slept of its own will, in nanoseconds.
    pub(crate) stalled: u64,
    /// Whether the lock, if it was there already, was valid by the local deadline when it began.
    pub(crate) valid: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The lock is asked for.
    Began,
    /// The body got its fencing token.
    Drew(u64),
    /// The call returned.
    Ended(Outcome),
    /// The body began, in the hold of this owner.
    Entered(String),
    /// The call takes far longer than its bounds allow.
    Hangs,
    /// The body came to its end.
    Returned,
    /// The body works on.
    Ticked,
    /// The body writes to the fenced store, with its token.
    Wrote(u64),
    /// The body was dropped.
    Dropped,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Outcome {
    /// The body came to its end and the lock was released.
    Done,
    /// The lock was lost while the body ran.
    Lost,
    /// Another owner held the lock.
    Busy,
    /// The store did not answer, or refused.
    Backend,
    /// No lock stands under the key.
    Foreign,
    /// The caller gave up.
    GaveUp,
    /// The refusal came far later than `wait` allows.
    Late,
    /// What must not happen in the drill.
    Unexpected,
}

impl Outcome {
    const ALL: &[Self] = &[
        Self::Done,
        Self::Lost,
        Self::Busy,
        Self::Backend,
        Self::Foreign,
        Self::GaveUp,
        Self::Late,
        Self::Unexpected,
    ];
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Done => "done",
            Self::Lost => "lost",
            Self::Busy => "busy",
            Self::Backend => "backend",
            Self::Foreign => "foreign",
            Self::GaveUp => "gave-up",
            Self::Late => "late",
            Self::Unexpected => "unexpected",
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.process, self.start, self.number)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, key, at, poll: Poll { begun, stalled, valid }, what } = self;
        let valid = u8::from(*valid);
        let head = format_args!(
            "{} {} {} {key} {at} {begun} {stalled} {valid}",
            call.process, call.start, call.number
        );
        match what {
            What::Began => write!(f, "{head} began"),
            What::Drew(token) => write!(f, "{head} drew {token}"),
            What::Ended(outcome) => write!(f, "{head} ended {outcome}"),
            What::Entered(owner) => write!(f, "{head} entered {owner}"),
            What::Hangs => write!(f, "{head} hangs"),
            What::Returned => write!(f, "{head} returned"),
            What::Ticked => write!(f, "{head} ticked"),
            What::Wrote(token) => write!(f, "{head} wrote {token}"),
            What::Dropped => write!(f, "{head} dropped"),
        }
    }
}

impl FromStr for Report {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let mut next = || number().ok_or(());
        let small = |number: u64| u32::try_from(number).map_err(|_| ());
        let call = Call { process: small(next()?)?, start: small(next()?)?, number: next()? };
        let (key, at) = (small(next()?)?, next()?);
        let poll = Poll { begun: next()?, stalled: next()?, valid: next()? == 1 };
        let (word, rest) = (words.next().ok_or(())?, words.next().unwrap_or_default());
        let what = match word {
            "began" => What::Began,
            "drew" => What::Drew(rest.parse().map_err(|_| ())?),
            "ended" => {
                let outcome = Outcome::ALL.iter().find(|outcome| outcome.to_string() == rest);
                What::Ended(*outcome.ok_or(())?)
            }
            "entered" => What::Entered(rest.to_owned()),
            "hangs" => What::Hangs,
            "returned" => What::Returned,
            "ticked" => What::Ticked,
            "wrote" => What::Wrote(rest.parse().map_err(|_| ())?),
            "dropped" => What::Dropped,
            _ => return Err(()),
        };
        Ok(Self { call, key, at, poll, what })
    }
}
