//! Who has a lock, as more than half of the nodes see it.

use std::sync::Arc;
use std::time::Duration;

use super::asked::{Asked, Decide, early};
use super::channel::Round;
use super::tally::majority;
use super::trouble::Trouble;
use crate::backend::{BoxFuture, Holder, StoreErrorKind, StoreResult, contender_of};

pub(super) fn inspect(round: Round, key: Arc<str>) -> BoxFuture<StoreResult<Option<Holder>>> {
    early(move |mut decide: Decide<Option<Holder>>| async move {
        let mut trouble = Trouble::new(round.ways.len());
        let mut asked = Asked::new();
        for (node, way) in round.ways.iter().enumerate() {
            let Some(channel) = way.channel_or_open() else {
                trouble.add(way.node.down());
                continue;
            };
            let (way, key) = (Arc::clone(way), Arc::clone(&key));
            asked.add(node, async move { way.ask(channel.inspect(&key)).await });
        }
        let mut seen = Vec::new();
        let mut foreign = 0;
        loop {
            if foreign + majority(round.ways.len()) > round.ways.len() {
                decide.decide(Err(trouble.error(StoreErrorKind::Foreign)));
            } else if let Some(holder) = holder(round.ways.len(), &seen) {
                decide.decide(Ok(holder));
            }
            let Some((_, answer)) = asked.next().await else { break };
            match answer {
                Ok(holder) => seen.push(holder),
                Err(error) => {
                    foreign += usize::from(error.kind == StoreErrorKind::Foreign);
                    trouble.add(error);
                }
            }
        }
        decide.decide(Err(trouble.no_majority()));
    })
}

/// The holder of more than half of `nodes`, or that nobody is, as soon as what was `seen` says so.
fn holder(nodes: usize, seen: &[Option<Holder>]) -> Option<Option<Holder>> {
    let majority = majority(nodes);
    let unseen = nodes - seen.len();
    let mut most = 0;
    for holder in seen.iter().flatten() {
        let owner = contender_of(&holder.owner);
        let of_owner = seen.iter().flatten().filter(|other| contender_of(&other.owner) == owner);
        let mut remaining: Vec<Option<Duration>> =
            of_owner.map(|holder| holder.remaining).collect();
        most = most.max(remaining.len());
        if remaining.len() >= majority {
            // None, a value without TTL, lasts longest.
            remaining.sort_unstable_by_key(|remaining| remaining.unwrap_or(Duration::MAX));
            let remaining = remaining.into_iter().rev().nth(majority - 1).flatten();
            return Some(Some(Holder { owner: owner.into(), remaining }));
        }
    }
    (most + unseen < majority).then_some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(owner: &str, seconds: u64) -> Option<Holder> {
        Some(Holder { owner: owner.into(), remaining: Some(Duration::from_secs(seconds)) })
    }

    #[test]
    fn more_than_half_name_the_holder_who_is_one_in_all_rounds() {
        for (seen, expected) in [
            (vec![held("a~1", 9), held("a~2", 7)], Some(held("a", 7))),
            (vec![held("a~1", 9), None, held("a~1", 7)], Some(held("a", 7))),
            (vec![held("a~1", 9), held("b~1", 9)], None),
            (vec![held("a~1", 9), held("b~1", 9), None], Some(None)),
            (vec![None, None], Some(None)),
            (vec![None], None),
            (vec![], None),
        ] {
            assert_eq!(holder(3, &seen), expected, "{seen:?}");
        }
    }

    #[test]
    fn a_lock_is_held_until_too_few_nodes_have_it() {
        let seen = [held("a~1", 1), held("a~1", 5), held("a~1", 9)];
        assert_eq!(holder(3, &seen), Some(held("a", 5)));
    }

    #[test]
    fn a_text_without_ttl_on_more_than_half_is_shown_as_such() {
        let text = Some(Holder { owner: "x".into(), remaining: None });
        assert_eq!(holder(3, &[text.clone(), text.clone()]), Some(text));
    }
}
