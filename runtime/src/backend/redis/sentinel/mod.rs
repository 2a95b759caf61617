//! Sentinels: which server is the master of a service, asked anew for each connection.
//!
//! The client crate's own support asks one sentinel after the other without a bound for each, and
//! judges by the first answer. Here all are asked at once, and among the answers of a majority the one
//! with the highest epoch counts: a sentinel that was cut off knows an old one. `watch` closes what
//! still leads to a master that was replaced.

use std::fmt;
use std::iter::Chain;
use std::pin::pin;
use std::slice::{self, Iter};
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::ask::{Answer, ask_once};
use self::opinions::Opinions;
use super::dial::Dialer;
use super::line::within;
use super::place::Found;
use crate::backend::StoreResult;

mod ask;
mod opinions;
mod url;
mod watch;

pub(super) use self::watch::Watch;

/// The sentinels of a service.
#[derive(Clone, Debug)]
pub(crate) struct Sentinels {
    service: Arc<str>,
    sentinels: Arc<[ConnectionInfo]>,
    /// How to connect to and sign in at the service's servers, whose address is not this one.
    server: Arc<ConnectionInfo>,
}

/// A master, as a sentinel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    host: String,
    port: u16,
    /// How often the service was given another master, as far as that sentinel knows.
    epoch: u64,
}

impl Sentinels {
    /// Reads what follows the scheme of a URL.
    pub(super) fn read(rest: &str, tls: bool) -> Result<Self, String> {
        url::read(rest, tls)
    }

    pub(super) fn infos(&self) -> Chain<Iter<'_, ConnectionInfo>, Iter<'_, ConnectionInfo>> {
        slice::from_ref(&*self.server).iter().chain(self.sentinels.iter())
    }

    /// Asks for the master, in at most half of `limit`. `newest` is the latest epoch that is known.
    pub(super) async fn find(
        &self,
        dialer: &Dialer,
        limit: Duration,
        newest: u64,
    ) -> StoreResult<Found> {
        let mut asking = JoinSet::new();
        for sentinel in self.sentinels.iter() {
            let (dialer, sentinel) = (dialer.clone(), sentinel.clone());
            let service = Arc::clone(&self.service);
            asking.spawn(async move {
                let asked = ask_once(&dialer, &sentinel, &service);
                let answer = within(limit / 2, pin!(asked)).await;
                answer.unwrap_or_else(|| Answer::silent(&sentinel, limit / 2))
            });
        }
        let mut opinions = Opinions::of(self.sentinels.len(), newest);
        let mut patience = pin!(sleep(limit / 4));
        while !opinions.suffice() {
            tokio::select! {
                answer = asking.join_next() => match answer {
                    Some(Ok(answer)) => opinions.add(answer),
                    // One that panicked said nothing.
                    Some(Err(_)) => {}
                    None => break,
                },
                // From now on one answer is enough.
                () = &mut patience, if !opinions.is_impatient() => opinions.lose_patience(),
            }
        }
        opinions.result(self).map(|named| self.at(&named))
    }

    fn at(&self, named: &Named) -> Found {
        let (host, port) = (named.host.clone(), named.port);
        let addr = match self.server.addr() {
            ConnectionAddr::TcpTls { .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let address = format!("{addr} (the master of {:?})", self.service).into();
        let info = ConnectionInfo::clone(&self.server).set_addr(addr);
        Found { info, address, epoch: named.epoch }
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> =
            self.sentinels.iter().map(|sentinel| sentinel.addr().to_string()).collect();
        write!(f, "{:?} by the sentinels {}", self.service, addresses.join(", "))
    }
}
