//! What is to go wrong: the state of the network, and the rules for single requests.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;

use super::gate::Keeper;

/// What the handle of the proxy and its connections share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    rules: Mutex<Rules>,
    state: watch::Sender<State>,
}

/// The network as it is now; each connection compares the counters with those of its beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) accepted: usize,
    pub(super) blackhole: bool,
    /// How many black holes there were.
    pub(super) holes: usize,
    /// How often all connections were cut.
    pub(super) cuts: usize,
    /// Whether the last cut is a reset.
    pub(super) reset: bool,
    pub(super) stalled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) delay_requests: Duration,
    pub(super) delay_replies: Duration,
    pub(super) bytes_per_second: Option<u32>,
    pub(super) requests: Vec<String>,
    next: Vec<(Vec<String>, Fate)>,
}

/// What is to happen to one request or its reply.
#[derive(Debug)]
pub(super) enum Fate {
    Answer(Vec<u8>),
    CutReply,
    CutRequest,
    DelayReply(Duration),
    DelayRequest(Duration),
    HoldReply(Keeper),
    HoldRequest(Keeper),
    Silence,
}

impl Shared {
    pub(super) fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().expect("nothing panics under this lock")
    }

    pub(super) fn state(&self) -> watch::Ref<'_, State> {
        self.state.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(change);
    }
}

impl Rules {
    pub(super) fn add(&mut self, command: &str, fate: Fate) {
        self.next.push((command.split_whitespace().map(str::to_owned).collect(), fate));
    }

    /// Notes a request and takes out the oldest rule for it.
    pub(super) fn meet(&mut self, words: &[String]) -> Option<Fate> {
        self.requests.push(words.iter().map(|word| shortened(word)).collect::<Vec<_>>().join(" "));
        let meets = |rule: &[String]| {
            rule.len() <= words.len()
                && rule.iter().zip(words).all(|(rule, word)| rule.eq_ignore_ascii_case(word))
        };
        let index = self.next.iter().position(|(rule, _)| meets(rule))?;
        Some(self.next.remove(index).1)
    }

    pub(super) fn heal(&mut self) {
        let requests = std::mem::take(&mut self.requests);
        *self = Self { requests, ..Self::default() };
    }
}

/// A script is a word of a request, too.
fn shortened(word: &str) -> Cow<'_, str> {
    match word.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => Cow::Owned(format!("{}...", &word[..end])),
        None => Cow::Borrowed(word),
    }
}

const SHOWN_CHARACTERS: usize = 100;
