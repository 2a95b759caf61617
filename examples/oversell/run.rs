//! One run: all instances sell one article, from a full stock until nothing is left.

use std::error::Error;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use distlock::MemoryStore;

use crate::instance::{News, Order, Way};
use crate::process::Process;
use crate::report::{Progress, Row};
use crate::server::Server;
use crate::shop::Shop;
use crate::stand_in::StandIn;

/// Somebody who carries out an order.
pub(crate) trait Instance {
    fn go(&mut self);
    fn kill(&mut self);
    fn process_id(&self) -> Option<u32>;
}

/// Where the instances live and find their lock.
pub(crate) enum Place {
    /// Threads of this process over a store in memory.
    Memory(MemoryStore),
    /// Processes over Redis.
    Redis(Box<Server>),
}

/// What is sold, and how.
pub(crate) struct Run<'a> {
    pub(crate) place: &'a Place,
    pub(crate) file: &'a Path,
    pub(crate) sku_id: u64,
    pub(crate) way: Way,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

impl Run<'_> {
    /// Sells everything and tells how it went. Under the lock one instance is killed meanwhile.
    pub(crate) fn sell_out(&self) -> Result<Row> {
        let shop = Shop::open(self.file, 0)?;
        shop.fill(self.sku_id, ITEMS)?;
        let (told, news) = channel();
        let mut crew = (1..=INSTANCES)
            .map(|instance| self.start(instance, told.clone()))
            .collect::<Result<Vec<_>>>()?;
        for _ in &crew {
            match news.recv_timeout(LIMIT)? {
                (_, News::Ready) => {}
                (instance, told) => return Err(unexpected(instance, &told)),
            }
        }
        let mut progress = Progress::start(&shop, self.sku_id);
        crew.iter_mut().for_each(|instance| instance.go());

        let mut row = Row::default();
        let mut left = crew.len();
        while left > 0 {
            match next(&news, &mut progress)? {
                (_, News::Done { refused, retries }) => {
                    row.refused += refused;
                    row.retries += retries;
                    left -= 1;
                }
                (VICTIM, News::Stopped) => {
                    let victim = &mut *crew[VICTIM as usize - 1];
                    self.kill(victim, &shop, &progress)?;
                    row.killed = Some((VICTIM, VICTIMS_LAST_SALE));
                    left -= 1;
                }
                // What is heard of a killed process is its end.
                (VICTIM, News::Failed(_)) if row.killed.is_some() => {}
                (instance, told) => return Err(unexpected(instance, &told)),
            }
        }
        row.took = progress.elapsed();
        row.sold = shop.sold(self.sku_id)?;
        row.sold_by = (1..=INSTANCES)
            .map(|instance| Ok((instance, shop.sold_by(self.sku_id, instance)?)))
            .collect::<Result<_>>()?;
        progress.end(&row);
        Ok(row)
    }

    fn start(&self, instance: u32, news: Sender<(u32, News)>) -> Result<Box<dyn Instance>> {
        let is_victim = instance == VICTIM && self.way == Way::Locked;
        let order = Order {
            file: self.file.to_owned(),
            instance,
            sku_id: self.sku_id,
            way: self.way,
            stop_in_sale: is_victim.then_some(VICTIMS_LAST_SALE),
        };
        Ok(match self.place {
            Place::Memory(store) => Box::new(StandIn::start(&order, store, news)?),
            Place::Redis(server) => Box::new(Process::start(&order, &server.url, news)?),
        })
    }

    /// Kills an instance that has stopped between the read and the write of a sale.
    fn kill(&self, victim: &mut dyn Instance, shop: &Shop, progress: &Progress<'_>) -> Result<()> {
        let sold_before = shop.sold(self.sku_id)?;
        progress
            .say(&format!("instance {VICTIM} has read the stock and stops there, with the lock"));
        thread::sleep(LEASE * 3 / 2);
        let owner = self.owner()?;
        if let Some(process_id) = victim.process_id()
            && !owner.contains(&process_id.to_string())
        {
            return Err(
                format!("process {process_id} should hold the lock, but {owner:?} does").into()
            );
        }
        if shop.sold(self.sku_id)? != sold_before {
            return Err("another instance sold while the lock was held".into());
        }
        let lease = LEASE.as_secs_f64();
        progress
            .say(&format!("nobody else has sold: the lease of {lease} s is renewed, by {owner}"));
        victim.kill();
        let killed = Instant::now();
        progress.say(&match victim.process_id() {
            Some(id) => format!("instance {VICTIM}, process {id}, is killed with SIGKILL"),
            None => format!("instance {VICTIM} is stopped for good: nothing of it runs any more"),
        });
        while shop.sold(self.sku_id)? == sold_before {
            if killed.elapsed() > LIMIT {
                return Err("nobody got the lock after its holder was killed".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        let waited = killed.elapsed().as_secs_f64();
        progress
            .say(&format!("the dead one's lease has run out {waited:.1} s later: others sell on"));
        Ok(())
    }

    /// Who holds the lock, by the store.
    fn owner(&self) -> Result<String> {
        let key = format!("stock:lock:{}", self.sku_id);
        let owner = match self.place {
            Place::Memory(store) => store.get(&key),
            Place::Redis(server) => server.value(&key)?,
        };
        Ok(owner.ok_or("the lock is free while an instance is in its section")?)
    }
}

fn next(news: &Receiver<(u32, News)>, progress: &mut Progress<'_>) -> Result<(u32, News)> {
    loop {
        match news.recv_timeout(PROGRESS_EVERY) {
            Ok(news) => return Ok(news),
            Err(RecvTimeoutError::Timeout) => progress.show()?,
            Err(RecvTimeoutError::Disconnected) => return Err("all instances have gone".into()),
        }
        if progress.elapsed() > LIMIT {
            return Err(format!("not sold out after {LIMIT:?}").into());
        }
    }
}

fn unexpected(instance: u32, news: &News) -> Box<dyn Error> {
    match news {
        News::Failed(why) => format!("instance {instance}: {why}").into(),
        news => format!("instance {instance} says {news:?} out of turn").into(),
    }
}

pub(crate) const INSTANCES: u32 = 4;
pub(crate) const ITEMS: u32 = 100;
/// As in the attribute on `sell_locked`.
const LEASE: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(30);
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
const VICTIM: u32 = 3;
const VICTIMS_LAST_SALE: u32 = 5;
