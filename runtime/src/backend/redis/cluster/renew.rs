//! Renewals of many locks: one script for each node, whatever slots their keys are in.
//!
//! A node lets a script touch the keys of any slots that it serves, if none of them is declared. A
//! key that it does not serve, or only in part by now, is asked for alone.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::way::{Trouble, Way};
use crate::backend::redis::line::within;
use crate::backend::redis::reply;
use crate::backend::redis::request::Request;
use crate::backend::redis::slot::slot;
use crate::backend::{Renewal, Renewed, StoreError, StoreErrorKind, StoreResult};
use crate::join::all;

/// Renews the locks of each node apart, all at once, and puts the answers in the batch's order.
pub(super) async fn renew(way: &Way, batch: &[Renewal]) -> StoreResult<Vec<Renewed>> {
    let mut nodes: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (index, renewal) in batch.iter().enumerate() {
        let node = way.generation.topology().owner(slot(renewal.lock.key.as_bytes()));
        nodes.entry(node).or_default().push(index);
    }
    let parts = nodes.values().map(|indexes| {
        let part = indexes.iter().map(|index| batch[*index].clone()).collect::<Vec<_>>();
        Box::pin(async move { renew_on_node(way, &part).await })
    });
    let answers = all(parts.collect()).await;
    let mut renewed = vec![Renewed::Unanswered; batch.len()];
    let mut failure = None;
    for (indexes, answer) in nodes.values().zip(answers) {
        match answer {
            Ok((part, _)) => {
                indexes.iter().zip(part).for_each(|(index, code)| renewed[*index] = code);
            }
            Err(error) => failure = Some(error),
        }
    }
    if !batch.is_empty() && renewed.iter().all(|code| *code == Renewed::Unanswered) {
        let nobody = || {
            let text = "no node of the cluster answered for any of these locks";
            StoreError::new(StoreErrorKind::Unavailable, text)
        };
        return Err(failure.unwrap_or_else(nobody));
    }
    Ok(renewed)
}

/// Renews locks whose keys one node serves as far as is known. Names those that answered.
pub(super) async fn renew_on_node(
    way: &Way,
    batch: &[Renewal],
) -> StoreResult<(Vec<Renewed>, BTreeSet<Arc<str>>)> {
    let [first, others @ ..] = batch else { return Ok(Default::default()) };
    if others.is_empty() {
        let (code, node) = renew_one(way, first).await?;
        return Ok((vec![code], BTreeSet::from([node])));
    }
    let (mut renewed, node) = renew_together(way, batch).await?;
    let mut nodes = BTreeSet::from([node]);
    let left: Vec<_> =
        (0..batch.len()).filter(|index| renewed[*index] == Renewed::Unanswered).collect();
    if left.is_empty() {
        return Ok((renewed, nodes));
    }
    // The others' answers must not be late for these.
    let patience = batch.iter().map(|renewal| renewal.lease / 8).min().unwrap_or(Duration::ZERO);
    let alone = left.iter().map(|index| {
        let request = renew_one(way, &batch[*index]);
        Box::pin(async move { within(patience, pin!(request)).await })
    });
    for (index, answer) in left.iter().zip(all(alone.collect()).await) {
        if let Some(Ok((code, node))) = answer {
            renewed[*index] = code;
            nodes.insert(node);
        }
    }
    Ok((renewed, nodes))
}

/// By one script. `Unanswered` for the keys that the node could not look at.
async fn renew_together(way: &Way, batch: &[Renewal]) -> StoreResult<(Vec<Renewed>, Arc<str>)> {
    let request = Request::renew_together(batch);
    let departure = way.nodes.endings.depart("", request.role());
    let slot = slot(batch[0].lock.key.as_bytes());
    let (reply, address) = way.ask(slot, &request, departure).await?;
    let Value::Array(codes) = reply else { return Err(unreadable(&address)) };
    let codes = codes.into_iter().map(|code| match code {
        Value::Int(5) => Some(Renewed::Unanswered),
        code => reply::renewed(&Value::Array(vec![code]), 1, &address).ok()?.pop(),
    });
    // One answer each, or none: a missing one must not shift the others.
    let codes: Option<Vec<_>> = codes.collect();
    let codes = codes.filter(|codes| codes.len() == batch.len());
    Ok((codes.ok_or_else(|| unreadable(&address))?, address))
}

async fn renew_one(way: &Way, renewal: &Renewal) -> Result<(Renewed, Arc<str>), Trouble> {
    let request = Request::renew(std::slice::from_ref(renewal));
    let departure = way.nodes.endings.depart("", request.role());
    let (reply, address) = way.ask(slot(renewal.lock.key.as_bytes()), &request, departure).await?;
    let renewed = reply::renewed(&reply, 1, &address)?.pop();
    Ok((renewed.ok_or_else(|| unreadable(&address))?, address))
}

fn unreadable(address: &Arc<str>) -> StoreError {
    let text = format!("redis at {address} did not answer renewals one for one");
    StoreError::new(StoreErrorKind::Unavailable, text)
}
