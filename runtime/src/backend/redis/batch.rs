//! A batch of renewals on a server that takes one slot a script: a node of a cluster, or a proxy in
//! front of one.

use std::collections::BTreeMap;
use std::future::Future;

use super::slot::slot;
use crate::backend::{Renewal, Renewed, StoreResult};
use crate::join::all;

/// Renews the keys of each slot apart, all at once, and puts the answers in the batch's order.
pub(super) async fn renew_by_slot<F>(
    batch: &[Renewal],
    renew: impl Fn(&[Renewal]) -> F,
) -> StoreResult<Vec<Renewed>>
where
    F: Future<Output = StoreResult<Vec<Renewed>>>,
{
    let mut slots: BTreeMap<u16, (Vec<usize>, Vec<Renewal>)> = BTreeMap::new();
    for (index, renewal) in batch.iter().enumerate() {
        let (indexes, renewals) = slots.entry(slot(renewal.lock.key.as_bytes())).or_default();
        indexes.push(index);
        renewals.push(renewal.clone());
    }
    let requests = slots.values().map(|(_, renewals)| Box::pin(renew(renewals))).collect();
    let mut answers = Vec::with_capacity(batch.len());
    for ((indexes, _), renewed) in slots.values().zip(all(requests).await) {
        answers.extend(indexes.iter().copied().zip(renewed?));
    }
    answers.sort_unstable_by_key(|(index, _)| *index);
    Ok(answers.into_iter().map(|(_, renewed)| renewed).collect())
}
