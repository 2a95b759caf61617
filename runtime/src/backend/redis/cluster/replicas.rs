//! Waiting for the replicas of a node: on the line that the renewals took, since a node waits for what
//! came on the same connection.

use std::time::Duration;

use super::nodes::{Member, Purpose};
use super::renew::renew_on_node;
use super::survey::first_success;
use super::way::{Said, Trouble, Way};
use crate::backend::redis::channel::RedisChannel;
use crate::backend::redis::line::Manner;
use crate::backend::redis::reply;
use crate::backend::redis::request::Request;
use crate::backend::{
    BoxFuture, Channel, Renewal, Renewed, StoreError, StoreErrorKind, StoreResult,
};
use crate::join::all;

/// Renews locks of one node, and waits for the replicas of whichever nodes had them: of the one with
/// the fewest, how many.
pub(super) async fn renew_on_replicas(
    way: &Way,
    batch: &[Renewal],
    replicas: u32,
    within: Duration,
) -> Result<(Vec<Renewed>, u32), Trouble> {
    let (renewed, nodes) = renew_on_node(way, batch).await?;
    if !renewed.contains(&Renewed::Renewed) {
        return Ok((renewed, 0));
    }
    let counts = nodes.iter().map(|node| {
        Box::pin(async move {
            let line = way.generation.line_of(node).ok_or_else(|| lost(node))?;
            wait(way, &line, replicas, within).await
        })
    });
    let counts: Result<Vec<u32>, Trouble> = all(counts.collect()).await.into_iter().collect();
    Ok((renewed, counts?.into_iter().min().unwrap_or(0)))
}

/// Whether the nodes let us wait, by the first that answers.
pub(super) async fn try_to_wait(way: &Way) -> StoreResult<()> {
    let mut primaries = way.generation.topology().primaries().to_vec();
    primaries.sort_by_key(|address| !way.nodes.reaches(address));
    let nodes = way.nodes.clone();
    let ask = move |address| {
        let nodes = nodes.clone();
        Box::pin(async move {
            let line = nodes.line(&Member { address, purpose: Purpose::Requests }).await?;
            line.renew_on_replicas(&[], 0, Duration::from_millis(1)).await.map(drop)
        }) as BoxFuture<_>
    };
    first_success(primaries, ask).await
}

async fn wait(
    way: &Way,
    line: &RedisChannel,
    replicas: u32,
    within: Duration,
) -> Result<u32, Trouble> {
    let request = Request::wait(replicas, within);
    match way.exchange(line, &request, Manner::Plain).await? {
        Said::Answer((reply, address)) => Ok(reply::acknowledged(reply, &address)?),
        Said::Instead(_) => Err(lost(&line.line().server().name).into()),
    }
}

fn lost(node: &str) -> StoreError {
    let text = format!("redis at {node} renewed a lock, and cannot be asked for its replicas");
    StoreError::new(StoreErrorKind::Unavailable, text)
}
