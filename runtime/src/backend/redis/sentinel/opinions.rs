//! What the sentinels say, and whom to believe.

use super::ask::Answer;
use super::{Named, Sentinels};
use crate::backend::{StoreError, StoreErrorKind, StoreResult};

/// The answers so far.
#[derive(Debug)]
pub(super) struct Opinions {
    asked: usize,
    answers: Vec<Answer>,
    impatient: bool,
    /// What this client knows already: an answer of less is behind.
    newest: u64,
}

impl Opinions {
    pub(super) fn of(asked: usize, newest: u64) -> Self {
        Self { asked, answers: Vec::with_capacity(asked), impatient: false, newest }
    }

    pub(super) fn add(&mut self, answer: Answer) {
        self.answers.push(answer);
    }

    pub(super) fn is_impatient(&self) -> bool {
        self.impatient
    }

    /// From here on a single answer is enough.
    pub(super) fn lose_patience(&mut self) {
        self.impatient = true;
    }

    /// Whether no more answers need to be waited for: a majority has named a master, so that at least
    /// one of them took part in the last failover, or there is one answer and no patience. A majority
    /// may yet be behind what this client knows from the sentinel that led the failover.
    pub(super) fn suffice(&self) -> bool {
        let named = self.named().count();
        let up_to_date = self.named().any(|named| named.epoch >= self.newest);
        (named > self.asked / 2 && up_to_date) || (self.impatient && named > 0)
    }

    /// The master of the highest epoch, or why there is none.
    pub(super) fn result(self, sentinels: &Sentinels) -> StoreResult<Named> {
        if let Some(named) = self.named().max_by_key(|named| named.epoch) {
            return Ok(named.clone());
        }
        if let Some(unknown) = self.unknown(sentinels) {
            return Err(unknown);
        }
        let failures: Vec<_> = self
            .answers
            .iter()
            .filter_map(|answer| match answer {
                Answer::Failed(error) => Some(error),
                _ => None,
            })
            .collect();
        let refused = failures.iter().all(|error| error.kind == StoreErrorKind::Refused);
        // What is refused by some and unreachable at others may pass.
        let kind = if refused && !failures.is_empty() {
            StoreErrorKind::Refused
        } else {
            StoreErrorKind::Unavailable
        };
        let reasons: Vec<_> = failures.iter().map(|error| &*error.message).collect();
        let text = format!("nobody told the master of {sentinels}: {}", reasons.join("; "));
        Err(StoreError::new(kind, text))
    }

    fn named(&self) -> impl Iterator<Item = &Named> {
        self.answers.iter().filter_map(|answer| match answer {
            Answer::Named(named) => Some(named),
            _ => None,
        })
    }

    fn unknown(&self, sentinels: &Sentinels) -> Option<StoreError> {
        let mut known: Vec<_> = self
            .answers
            .iter()
            .filter_map(|answer| match answer {
                Answer::Unknown(known) => Some(known),
                _ => None,
            })
            .collect();
        let known = known.pop()?;
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let text = format!(
            "the sentinels do not know a service {:?}, but: {known} (a service is what a sentinel's \
             configuration monitors; asked for {sentinels})",
            sentinels.service
        );
        Some(StoreError::new(StoreErrorKind::Refused, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_epoch_of_a_majority_counts() {
        let mut opinions = Opinions::of(3, 0);
        opinions.add(named("old", 1));
        assert!(!opinions.suffice());
        opinions.add(named("new", 2));
        assert!(opinions.suffice());
        assert_eq!(opinions.result(&sentinels()).unwrap().host, "new");
    }

    #[test]
    fn a_majority_that_is_behind_what_is_known_is_not_enough() {
        let mut opinions = Opinions::of(3, 2);
        opinions.add(named("old", 1));
        opinions.add(named("old", 1));
        assert!(!opinions.suffice());
        opinions.add(named("new", 2));
        assert!(opinions.suffice());
        assert_eq!(opinions.result(&sentinels()).unwrap().host, "new");
    }

    #[test]
    fn one_answer_is_enough_only_without_patience() {
        let mut opinions = Opinions::of(3, 0);
        opinions.add(Answer::Failed(failure(StoreErrorKind::Unavailable)));
        opinions.add(named("only", 1));
        assert!(!opinions.suffice());
        opinions.lose_patience();
        assert!(opinions.suffice());
    }

    #[test]
    fn an_unknown_service_is_named_with_those_that_are_known() {
        let mut opinions = Opinions::of(2, 0);
        opinions.add(Answer::Failed(failure(StoreErrorKind::Unavailable)));
        opinions.add(Answer::Unknown(vec!["orders".into(), "carts".into()]));
        let error = opinions.result(&sentinels()).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused);
        assert!(error.message.contains("\"s\", but: orders, carts"), "{error}");
    }

    #[test]
    fn refused_by_all_is_refused_and_by_some_may_pass() {
        use StoreErrorKind::{Refused, Unavailable};

        for (kinds, expected) in
            [([Refused, Refused], Refused), ([Refused, Unavailable], Unavailable)]
        {
            let mut opinions = Opinions::of(2, 0);
            kinds.into_iter().for_each(|kind| opinions.add(Answer::Failed(failure(kind))));
            assert_eq!(opinions.result(&sentinels()).unwrap_err().kind, expected);
        }
    }

    fn named(host: &str, epoch: u64) -> Answer {
        Answer::Named(Named { host: host.to_owned(), port: 1, epoch })
    }

    fn failure(kind: StoreErrorKind) -> StoreError {
        StoreError::new(kind, "no")
    }

    fn sentinels() -> Sentinels {
        Sentinels::read("h/s", false).unwrap()
    }
}
