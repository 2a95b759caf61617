//! What the answers of the nodes add up to: plain code, without nodes.
//!
//! A verdict comes as soon as the outcome is certain, whatever those do who have not answered yet. It
//! says that a lock is ours only if more than half of all nodes said so, those that are down
//! counted; and that it is not ours only if more than half can no longer say so.

use std::sync::Arc;

use crate::backend::{Released, Renewed, StoreErrorKind};

/// How many of `nodes` are more than half.
pub(super) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// One node's answer to a round that takes a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    /// No answer, for this reason.
    Failed(StoreErrorKind),
    Granted,
    HeldBy(Arc<str>),
    /// It was ours before this round: ownership, not validity.
    Mine,
}

/// What a round that takes a lock comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The store as a whole could not be asked, for this reason.
    Failed(StoreErrorKind),
    Granted,
    /// Others have it, or each of several has a part: the one with the largest part, and whether
    /// that is the lock.
    HeldBy {
        owner: Arc<str>,
        whole: bool,
    },
    Mine,
}

/// The answers to a round that takes a lock.
#[derive(Clone, Debug)]
pub(super) struct Votes {
    nodes: usize,
    votes: Vec<Vote>,
}

impl Votes {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, votes: Vec::with_capacity(nodes) }
    }

    pub(super) fn add(&mut self, vote: Vote) {
        self.votes.push(vote);
    }

    /// The outcome, once it is certain.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        let majority = majority(self.nodes);
        let pending = self.nodes - self.votes.len();
        let granted = self.count(|vote| *vote == Vote::Granted);
        let ours = granted + self.count(|vote| *vote == Vote::Mine);
        if granted >= majority {
            return Some(Verdict::Granted);
        }
        // A grant of this very round is worth more: it has a start.
        if ours >= majority && granted + pending < majority {
            return Some(Verdict::Mine);
        }
        (ours + pending < majority).then(|| self.refusal(pending))
    }

    /// Why it is not ours. If more than half answer, the store is there, and what they say of the
    /// lock is the reason.
    fn refusal(&self, pending: usize) -> Verdict {
        let majority = majority(self.nodes);
        let failed = |kind| self.count(|vote| *vote == Vote::Failed(kind));
        let foreign = failed(StoreErrorKind::Foreign);
        let refused = failed(StoreErrorKind::Refused);
        if foreign + majority > self.nodes {
            return Verdict::Failed(StoreErrorKind::Foreign);
        }
        let answering = self.nodes - refused - failed(StoreErrorKind::Unavailable);
        debug_assert!(answering >= pending, "who is pending may answer yet");
        match self.largest_holder() {
            Some((owner, count)) if answering >= majority => {
                Verdict::HeldBy { owner, whole: count >= majority }
            }
            _ if refused + majority > self.nodes => Verdict::Failed(StoreErrorKind::Refused),
            _ => Verdict::Failed(StoreErrorKind::Unavailable),
        }
    }

    /// Of several with equal parts the first that was named.
    fn largest_holder(&self) -> Option<(Arc<str>, usize)> {
        let mut largest: Option<(&Arc<str>, usize)> = None;
        for vote in &self.votes {
            let Vote::HeldBy(owner) = vote else { continue };
            let count = self.count(|vote| matches!(vote, Vote::HeldBy(other) if other == owner));
            if largest.is_none_or(|(_, most)| count > most) {
                largest = Some((owner, count));
            }
        }
        largest.map(|(owner, count)| (Arc::clone(owner), count))
    }

    fn count(&self, condition: impl Fn(&Vote) -> bool) -> usize {
        self.votes.iter().filter(|vote| condition(vote)).count()
    }
}

/// The answers to one renewal; `None` for a node that gave none.
pub(super) fn renewed(nodes: usize, answers: &[Option<Renewed>]) -> Option<Renewed> {
    let majority = majority(nodes);
    let pending = nodes - answers.len();
    let count = |answer| answers.iter().filter(|given| **given == Some(answer)).count();
    let silent = answers.iter().filter(|given| given.is_none()).count();
    let ours = count(Renewed::Renewed);
    if ours >= majority {
        return Some(Renewed::Renewed);
    }
    if ours + pending + silent < majority {
        // A node that was silent may still have it: only what was said counts against us.
        let taken = count(Renewed::Taken) > 0;
        let foreign = count(Renewed::Foreign) > 0;
        return Some(match (taken, foreign) {
            (true, _) => Renewed::Taken,
            (false, true) => Renewed::Foreign,
            (false, false) => Renewed::Gone,
        });
    }
    (pending == 0).then_some(Renewed::Unanswered)
}

/// The answers to one release; `None` for a node that gave none, and as a whole if the outcome stays
/// unknown.
pub(super) fn released(nodes: usize, answers: &[Option<Released>]) -> Option<Option<Released>> {
    let majority = majority(nodes);
    let pending = nodes - answers.len();
    let count =
        |answer: &Released| answers.iter().filter(|given| given.as_ref() == Some(answer)).count();
    let silent = answers.iter().filter(|given| given.is_none()).count();
    let freed = count(&Released::Freed);
    if freed >= majority {
        return Some(Some(Released::Freed));
    }
    if freed + pending + silent < majority {
        let taken = count(&Released::Taken) > 0;
        let foreign = count(&Released::Foreign) > 0;
        return Some(Some(match (taken, foreign) {
            (true, _) => Released::Taken,
            (false, true) => Released::Foreign,
            (false, false) => Released::Gone,
        }));
    }
    (pending == 0).then_some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Vec<Vote> {
        let mut kinds = vec![Vote::Granted, Vote::Mine];
        kinds.extend(["b", "c"].map(|owner| Vote::HeldBy(owner.into())));
        kinds.extend(
            [StoreErrorKind::Foreign, StoreErrorKind::Refused, StoreErrorKind::Unavailable]
                .map(Vote::Failed),
        );
        kinds
    }

    /// Every sequence of `length` of `kinds`.
    fn sequences<T: Clone>(kinds: &[T], length: usize) -> Vec<Vec<T>> {
        (0..length).fold(vec![Vec::new()], |shorter, _| {
            let longer = |start: &Vec<T>| {
                let start = start.clone();
                kinds.iter().map(move |kind| [start.clone(), vec![kind.clone()]].concat())
            };
            shorter.iter().flat_map(longer).collect()
        })
    }

    fn verdict(nodes: usize, votes: &[Vote]) -> Option<Verdict> {
        let mut tally = Votes::new(nodes);
        votes.iter().cloned().for_each(|vote| tally.add(vote));
        tally.verdict()
    }

    fn count(votes: &[Vote], wanted: impl Fn(&Vote) -> bool) -> usize {
        votes.iter().filter(|vote| wanted(vote)).count()
    }

    fn is_won(verdict: Option<&Verdict>) -> bool {
        matches!(verdict, Some(Verdict::Granted | Verdict::Mine))
    }

    #[test]
    fn a_round_is_won_exactly_by_more_than_half_of_all_nodes() {
        for nodes in [3, 4, 5] {
            for votes in sequences(&kinds(), nodes) {
                let ours = count(&votes, |vote| matches!(vote, Vote::Granted | Vote::Mine));
                let granted = count(&votes, |vote| *vote == Vote::Granted);
                let verdict = verdict(nodes, &votes).expect("all have voted");
                assert_eq!(is_won(Some(&verdict)), ours > nodes / 2, "{votes:?}");
                assert_eq!(verdict == Verdict::Granted, granted > nodes / 2, "{votes:?}");
            }
        }
    }

    #[test]
    fn an_early_verdict_is_what_no_later_vote_could_change() {
        for nodes in [3, 5] {
            for length in 0..nodes {
                for votes in sequences(&kinds(), length) {
                    let early = verdict(nodes, &votes);
                    let every_end = |won: bool| {
                        sequences(&[Vote::Granted, Vote::HeldBy("b".into())], nodes - length)
                            .into_iter()
                            .all(|rest| {
                                let all = [votes.clone(), rest].concat();
                                is_won(verdict(nodes, &all).as_ref()) == won
                            })
                    };
                    match &early {
                        Some(verdict) => assert!(every_end(is_won(Some(verdict))), "{votes:?}"),
                        // Undecided only where it still depends, or where grants may make it more.
                        None => assert!(
                            !every_end(false)
                                && (!every_end(true)
                                    || count(&votes, |vote| *vote == Vote::Mine) > 0),
                            "{votes:?}"
                        ),
                    }
                }
            }
        }
    }

    #[test]
    fn no_two_owners_win_on_the_same_nodes() {
        // Each node goes to one of two, or to nobody.
        for nodes in [3, 4, 5] {
            for owners in sequences(&["a", "b", ""], nodes) {
                let won = |me: &str| {
                    let vote = |owner: &&str| match *owner {
                        "" => Vote::Failed(StoreErrorKind::Unavailable),
                        owner if owner == me => Vote::Granted,
                        owner => Vote::HeldBy(owner.into()),
                    };
                    let votes: Vec<_> = owners.iter().map(vote).collect();
                    is_won(verdict(nodes, &votes).as_ref())
                };
                assert!(!(won("a") && won("b")), "{owners:?}");
            }
        }
    }

    #[test]
    fn a_refusal_names_the_holder_if_more_than_half_answer_and_the_trouble_if_not() {
        let held = |owner: &str| Vote::HeldBy(owner.into());
        let down = || Vote::Failed(StoreErrorKind::Unavailable);
        let by = |owner: &str, whole| Some(Verdict::HeldBy { owner: owner.into(), whole });
        let failed = |kind| Some(Verdict::Failed(kind));
        for (votes, expected) in [
            (vec![held("b"), held("b")], by("b", true)),
            (vec![held("b"), held("c")], by("b", false)),
            (vec![Vote::Granted, held("b"), down()], by("b", false)),
            (vec![down(), held("b")], by("b", false)),
            (vec![down(), down()], failed(StoreErrorKind::Unavailable)),
            (vec![Vote::Granted, down(), down()], failed(StoreErrorKind::Unavailable)),
            (
                vec![Vote::Failed(StoreErrorKind::Refused), down(), Vote::Granted],
                failed(StoreErrorKind::Unavailable),
            ),
            (vec![Vote::Failed(StoreErrorKind::Refused); 2], failed(StoreErrorKind::Refused)),
            (vec![Vote::Failed(StoreErrorKind::Foreign); 2], failed(StoreErrorKind::Foreign)),
            (
                vec![Vote::Failed(StoreErrorKind::Foreign), down(), Vote::Granted],
                failed(StoreErrorKind::Unavailable),
            ),
        ] {
            assert_eq!(verdict(3, &votes), expected, "{votes:?}");
        }
    }

    #[test]
    fn a_renewal_is_told_by_more_than_half_and_else_unknown() {
        let kinds = [
            Some(Renewed::Renewed),
            Some(Renewed::Gone),
            Some(Renewed::Taken),
            Some(Renewed::Foreign),
            None,
        ];
        for nodes in [3, 4, 5] {
            for length in 0..=nodes {
                for answers in sequences(&kinds, length) {
                    let ours = answers.iter().filter(|a| **a == Some(Renewed::Renewed)).count();
                    let against =
                        answers.iter().flatten().filter(|a| **a != Renewed::Renewed).count();
                    let expected_lost = against + majority(nodes) > nodes;
                    match renewed(nodes, &answers) {
                        Some(Renewed::Renewed) => assert!(ours > nodes / 2, "{answers:?}"),
                        Some(Renewed::Unanswered) => {
                            assert!(length == nodes && ours <= nodes / 2 && !expected_lost);
                        }
                        Some(_) => assert!(expected_lost, "{answers:?}"),
                        None => {
                            assert!(length < nodes && ours <= nodes / 2 && !expected_lost);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_release_is_told_by_more_than_half_and_else_unknown() {
        let kinds = [
            Some(Released::Freed),
            Some(Released::Gone),
            Some(Released::Taken),
            Some(Released::Foreign),
            None,
        ];
        for nodes in [3, 5] {
            for length in 0..=nodes {
                for answers in sequences(&kinds, length) {
                    let freed = answers.iter().filter(|a| **a == Some(Released::Freed)).count();
                    let against = answers.iter().flatten().count() - freed;
                    let had_none = against + majority(nodes) > nodes;
                    match released(nodes, &answers) {
                        Some(Some(Released::Freed)) => assert!(freed > nodes / 2, "{answers:?}"),
                        Some(Some(_)) => assert!(had_none, "{answers:?}"),
                        Some(None) => assert!(length == nodes && freed <= nodes / 2 && !had_none),
                        None => assert!(length < nodes && freed <= nodes / 2 && !had_none),
                    }
                }
            }
        }
    }
}
