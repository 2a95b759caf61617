//! A batch of renewals on a server that takes one slot a script: a node of a cluster, or a proxy in
//! front of one.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::slot::slot;
use crate::backend::{Renewal, Renewed, StoreResult};

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

/// Waits for all, so that they share one round trip.
pub(super) async fn all<F: Future + ?Sized>(mut futures: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
