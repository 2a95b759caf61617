//! One instance of the shop's service: two tills that sell until nothing is left.

use std::fmt;
use std::future::pending;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::sell::{Sale, SellError, sell, sell_conditionally, sell_locked};
use crate::shop::Shop;

/// How the instances of a run sell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Conditional,
    Locked,
    Unlocked,
}

/// What an instance is told.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) file: PathBuf,
    pub(crate) instance: u32,
    pub(crate) sku_id: u64,
    pub(crate) way: Way,
    /// Stop for good in the middle of this many-th sale: between the read and the write.
    pub(crate) stop_in_sale: Option<u32>,
}

/// What an instance tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Nothing is left to sell. `refused`: writes that the store refused; `retries`: calls that were
    /// repeated since the lock was not obtained, or lost.
    Done {
        refused: u32,
        retries: u32,
    },
    Failed(String),
    Ready,
    /// It has stopped in the middle of a sale.
    Stopped,
}

/// Where an instance sells: its view of the shop, and what happens between read and write.
pub(crate) struct Till {
    pub(crate) shop: Shop,
    sales: AtomicU32,
    stop_in_sale: Option<u32>,
    tell: Box<dyn Fn(News) + Send + Sync>,
}

impl Order {
    /// Sells until nothing is left. `go` starts it, so that all instances begin together.
    pub(crate) async fn carry_out(
        self,
        go: impl Future<Output = ()>,
        tell: impl Fn(News) + Send + Sync + Clone + 'static,
    ) {
        let sell = async {
            let till = Till {
                shop: Shop::open(&self.file, self.instance)?,
                sales: AtomicU32::new(0),
                stop_in_sale: self.stop_in_sale,
                tell: Box::new(tell.clone()),
            };
            tell(News::Ready);
            go.await;
            tokio::try_join!(till.sell_out(&self), till.sell_out(&self))
        };
        let result: Result<_, SellError> = sell.await;
        tell(match result {
            Ok((a, b)) => {
                News::Done { refused: a.refused + b.refused, retries: a.retries + b.retries }
            }
            Err(error) => News::Failed(error.to_string()),
        });
    }
}

#[derive(Default)]
struct Count {
    refused: u32,
    retries: u32,
}

impl Till {
    /// Takes a moment, as a payment does. Called between the read and the write of each sale.
    pub(crate) async fn charge_card(&self) {
        let milliseconds = 1 + RandomState::new().hash_one(()) % 6;
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        let sale = self.sales.fetch_add(1, Ordering::Relaxed) + 1;
        if Some(sale) == self.stop_in_sale {
            (self.tell)(News::Stopped);
            pending::<()>().await;
        }
    }

    async fn sell_out(&self, order: &Order) -> Result<Count, SellError> {
        let mut count = Count::default();
        loop {
            let sale = match order.way {
                Way::Conditional => sell_conditionally(self, order.sku_id).await,
                Way::Locked => sell_locked(self, order.sku_id).await,
                Way::Unlocked => sell(self, order.sku_id).await,
            };
            match sale {
                Ok(Sale::Refused) => count.refused += 1,
                Ok(Sale::Sold) => {}
                Ok(Sale::SoldOut) => return Ok(count),
                Err(SellError::Lock(error)) if error.is_retryable() => count.retries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

// News and ways travel as one line of text between processes.

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { refused, retries } => write!(f, "done {refused} {retries}"),
            Self::Failed(why) => write!(f, "failed {why}"),
            Self::Ready => f.write_str("ready"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

impl From<&str> for News {
    fn from(line: &str) -> Self {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number =
            |index| rest.split(' ').nth(index).and_then(|text| text.parse().ok()).unwrap_or(0);
        match word {
            "done" => Self::Done { refused: number(0), retries: number(1) },
            "failed" => Self::Failed(rest.to_owned()),
            "ready" => Self::Ready,
            "stopped" => Self::Stopped,
            _ => Self::Failed(format!("said {line:?}")),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conditional => "conditional",
            Self::Locked => "locked",
            Self::Unlocked => "unlocked",
        })
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ways = [Self::Conditional, Self::Locked, Self::Unlocked];
        let found = ways.into_iter().find(|way| way.to_string() == text);
        found.ok_or_else(|| format!("no way to sell: {text:?}"))
    }
}
