//! Where the server is: looked up anew for each connection.

use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionInfo;

use super::dial::Dialer;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use crate::backend::StoreResult;

#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Always there.
    Fixed(ConnectionInfo),
    /// Wherever the sentinels say, who may change their mind.
    #[cfg(feature = "sentinel")]
    Sentinels(Sentinels),
}

/// A server that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) info: ConnectionInfo,
    /// For messages: it holds no password.
    pub(super) address: Arc<str>,
    /// How many times the place had moved before. Zero where it cannot.
    pub(super) epoch: u64,
}

impl Place {
    /// For messages, while nobody knows where the server is.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Fixed(info) => info.addr().to_string(),
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => sentinels.to_string(),
        }
    }

    /// Finds the server, in a part of `limit`, which bounds finding and connecting together;
    /// `newest` is the latest epoch that is known.
    #[cfg_attr(not(feature = "sentinel"), expect(clippy::unused_async, unused_variables))]
    pub(super) async fn find(
        &self,
        dialer: &Dialer,
        limit: Duration,
        newest: u64,
    ) -> StoreResult<Found> {
        match self {
            Self::Fixed(info) => {
                let address = info.addr().to_string().into();
                Ok(Found { info: info.clone(), address, epoch: 0 })
            }
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => sentinels.find(dialer, limit, newest).await,
        }
    }

    /// Whether the server must say that it is the master.
    pub(super) fn wants_master(&self) -> bool {
        !matches!(self, Self::Fixed(_))
    }

    /// Every server that is named, once each.
    #[cfg_attr(not(any(test, feature = "cluster", feature = "tls")), expect(dead_code))]
    pub(super) fn infos(&self) -> impl Iterator<Item = &ConnectionInfo> {
        match self {
            Self::Fixed(info) => std::slice::from_ref(info).iter().chain(&[]),
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => sentinels.infos(),
        }
    }
}
