//! What the terminal shows.

use std::time::{Duration, Instant};

use crate::run::ITEMS;
use crate::shop::Shop;

/// How a run went.
#[derive(Debug, Default)]
pub(crate) struct Row {
    /// Which instance was killed, and in which of its sales.
    pub(crate) killed: Option<(u32, u32)>,
    pub(crate) refused: u32,
    pub(crate) retries: u32,
    pub(crate) sold: u32,
    pub(crate) sold_by: Vec<(u32, u32)>,
    pub(crate) took: Duration,
}

/// The lines of a run while it goes on.
pub(crate) struct Progress<'a> {
    shop: &'a Shop,
    sku_id: u64,
    start: Instant,
    shown: Option<u32>,
}

impl<'a> Progress<'a> {
    pub(crate) fn start(shop: &'a Shop, sku_id: u64) -> Self {
        Self { shop, sku_id, start: Instant::now(), shown: None }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Shows the counts, if they have changed.
    pub(crate) fn show(&mut self) -> rusqlite::Result<()> {
        let sold = self.shop.sold(self.sku_id)?;
        if self.shown.replace(sold) != Some(sold) {
            let left = self.shop.items(self.sku_id)?;
            self.say(&format!("{sold:3} sold, {left:3} left by the shop's count"));
        }
        Ok(())
    }

    pub(crate) fn say(&self, what: &str) {
        println!("  {:4.1} s  {what}", self.elapsed().as_secs_f64());
    }

    pub(crate) fn end(&self, row: &Row) {
        if row.refused > 0 {
            self.say(&format!(
                "{} writes came too late and were refused by the store",
                row.refused
            ));
        }
        let by: Vec<_> = row
            .sold_by
            .iter()
            .map(|(instance, sold)| match row.killed {
                Some((killed, sale)) if killed == *instance => {
                    format!("{sold} by instance {instance} (killed in sale {sale})")
                }
                _ => format!("{sold} by instance {instance}"),
            })
            .collect();
        self.say(&format!("sold out: {}", by.join(", ")));
    }
}

/// Prints the runs side by side.
pub(crate) fn table(rows: &[(&str, &Row)]) {
    println!(
        "  {:<18} {:>5} {:>7} {:>9} {:>9} {:>7}",
        "", "items", "sold", "too many", "refused", "time"
    );
    for (name, row) in rows {
        println!(
            "  {name:<18} {ITEMS:>5} {:>7} {:>9} {:>9} {:>5.1} s",
            row.sold,
            row.sold.saturating_sub(ITEMS),
            row.refused,
            row.took.as_secs_f64()
        );
    }
    let retries: u32 = rows.iter().map(|(_, row)| row.retries).sum();
    if retries > 0 {
        println!("  ({retries} calls were repeated, since the lock was not obtained or was lost)");
    }
}
