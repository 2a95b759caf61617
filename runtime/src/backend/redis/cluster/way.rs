//! The way of a request in a cluster: to the node of its key's slot.
//!
//! A node that does not serve a slot says so instead of executing the request (MOVED, ASK), which
//! is then sent on to the node that it names. Nothing else is ever sent twice.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::endings::Departure;
use super::generation::Generation;
use super::nodes::{Member, Nodes, Purpose};
use super::topology::Address;
use crate::backend::redis::channel::RedisChannel;
use crate::backend::redis::error::Redirect;
use crate::backend::redis::line::{Manner, within};
use crate::backend::redis::pulse::READING_TIME;
use crate::backend::redis::request::Request;
use crate::backend::redis::server::Server;
use crate::backend::{StoreError, StoreErrorKind, StoreResult};

/// One runtime's lines as one generation uses them.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) nodes: Arc<Nodes>,
    pub(super) generation: Arc<Generation>,
}

/// A reply, and who gave it.
pub(super) type Reply = (Value, Arc<str>);

/// Why a request had no effect that is known.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The keys of the request are on two nodes for the moment. It was not executed.
    Split(StoreError),
    Store(StoreError),
}

impl Way {
    /// Sends `request`, which `departure` was noted for, to the node of `slot`, and on to wherever
    /// that one says.
    pub(super) async fn ask(
        &self,
        slot: u16,
        request: &Request,
        departure: Departure<'_>,
    ) -> Result<Reply, Trouble> {
        let owner = self.owner(slot)?;
        let address = &self.generation.topology().primaries()[owner];
        // Almost always: the line is open, and nothing comes in between.
        let redirect = match self.generation.line_at(owner) {
            None => None,
            Some(line) => {
                let exchange = self.exchange(line, request, Manner::Plain);
                match departure.send(exchange).await.unwrap_or_else(|| Err(overtaken().into()))? {
                    Said::Answer(reply) => return Ok(reply),
                    Said::Instead(redirect) => Some(redirect),
                }
            }
        };
        let limit = self.patience();
        // Rare, so its space is not in every request's future.
        let mut on = Box::pin(self.ask_on(address, redirect, request, departure.out_of_turn()));
        within(limit, on.as_mut()).await.unwrap_or_else(|| {
            let text =
                format!("the nodes of the cluster did not find slot {slot} within {limit:?}");
            Err(StoreError::new(StoreErrorKind::Unavailable, text).into())
        })
    }

    /// The same, out of turn.
    async fn ask_on(
        &self,
        address: &Address,
        mut redirect: Option<Redirect>,
        request: &Request,
        departure: Departure<'_>,
    ) -> Result<Reply, Trouble> {
        let mut address = address.clone();
        for _ in 0..MOST_HOPS {
            let manner = match redirect {
                None => Manner::Plain,
                Some(Redirect::Moved(to)) => {
                    address = redirected(&to, &address)?;
                    self.nodes.look_around_soon(Some(address.clone()));
                    Manner::Plain
                }
                Some(Redirect::Ask(to)) => {
                    address = redirected(&to, &address)?;
                    Manner::Asking
                }
            };
            let line = self.line(&address).await?;
            let exchange = self.exchange(&line, request, manner);
            match departure.send(exchange).await.unwrap_or_else(|| Err(overtaken().into()))? {
                Said::Answer(reply) => return Ok(reply),
                Said::Instead(other) => redirect = Some(other),
            }
        }
        let text = format!("the nodes of the cluster do not agree on who serves a slot: {address}");
        Err(StoreError::new(StoreErrorKind::Unavailable, text).into())
    }

    /// How long a request may take that has to find its node.
    fn patience(&self) -> Duration {
        let config = &self.nodes.atlas.config().node;
        config.connect_timeout + config.response_timeout + READING_TIME
    }

    /// How long a request may take, if it is tried where the map says before.
    pub(super) fn limit(&self) -> Duration {
        self.nodes.atlas.config().node.response_timeout + READING_TIME + self.patience()
    }

    /// Keeps a request of several steps within the time of one.
    pub(super) async fn in_time<T>(
        &self,
        steps: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        let limit = self.limit();
        // Rare, so its space is not in every request's future.
        let mut steps = Box::pin(steps);
        within(limit, steps.as_mut()).await.unwrap_or_else(|| {
            let text = format!("the nodes of the cluster did not answer within {limit:?}");
            Err(StoreError::new(StoreErrorKind::Unavailable, text).into())
        })
    }

    pub(super) async fn exchange(
        &self,
        line: &RedisChannel,
        request: &Request,
        manner: Manner,
    ) -> Result<Said, Trouble> {
        let mut connection = line.connection();
        let failure = match line.line().converse(&mut connection, request, manner).await {
            Ok(reply) => {
                return Ok(Said::Answer((reply, Arc::clone(&line.line().server().name))));
            }
            Err(failure) => failure,
        };
        match failure.redirect {
            Some(redirect) => Ok(Said::Instead(redirect)),
            None if failure.is_split => Err(Trouble::Split(failure.error)),
            None => {
                if failure.error.kind == StoreErrorKind::Unavailable {
                    // Perhaps another node serves the slot by now.
                    self.nodes.look_around_soon(None);
                }
                Err(Trouble::Store(failure.error))
            }
        }
    }

    /// The line that requests to the node take.
    async fn line(&self, address: &Address) -> Result<Arc<RedisChannel>, Trouble> {
        if let Some(line) = self.generation.line(address) {
            return Ok(line);
        }
        let member = Member { address: address.clone(), purpose: Purpose::Requests };
        let opened = self.nodes.line(&member).await;
        if opened.is_err() {
            self.nodes.look_around_soon(None);
        }
        Ok(self.generation.bind(address, opened?))
    }

    /// Names the node that serves `slot` by its place in the map.
    pub(super) fn owner(&self, slot: u16) -> Result<usize, Trouble> {
        self.generation.topology().owner(slot).ok_or_else(|| {
            self.nodes.look_around_soon(None);
            let text = format!("no node of the cluster serves slot {slot}");
            StoreError::new(StoreErrorKind::Unavailable, text).into()
        })
    }

    /// What is known of the node that serves `slot`.
    pub(super) fn server(&self, slot: u16) -> Result<Arc<Server>, Trouble> {
        let owner = self.owner(slot)?;
        if let Some(line) = self.generation.line_at(owner) {
            return Ok(Arc::clone(line.line().server()));
        }
        let address = &self.generation.topology().primaries()[owner];
        Ok(self.nodes.atlas.server(address))
    }
}

/// What a node said to a request.
pub(super) enum Said {
    Answer(Reply),
    /// It did not execute it.
    Instead(Redirect),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Split(error) | Trouble::Store(error) => error,
        }
    }
}

fn redirected(to: &str, by: &Address) -> StoreResult<Address> {
    Address::of_redirection(to, by).ok_or_else(|| {
        let text = format!("redis at {by} named a node that is no host:port: {to:?}");
        StoreError::new(StoreErrorKind::Unavailable, text)
    })
}

fn overtaken() -> StoreError {
    let text = "the request had to wait for a node of the cluster, and was not sent since a \
                release had followed it";
    StoreError::new(StoreErrorKind::Unavailable, text)
}

/// A slot moved, was moved on, and one more of the kind.
const MOST_HOPS: usize = 5;
