//! The shop: its stock and its sales, in a SQLite file that every instance opens.

use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rusqlite::{Connection, Result, TransactionBehavior, params};

/// One instance's view of the shop.
pub(crate) struct Shop {
    database: Mutex<Connection>,
    instance: u32,
}

impl Shop {
    /// Opens the shop's file, and sets the shop up if the file is new.
    pub(crate) fn open(file: &Path, instance: u32) -> Result<Self> {
        let database = Connection::open(file)?;
        database.busy_timeout(Duration::from_secs(10))?;
        // Fast rather than safe from a power failure: the file is gone after the run anyway. A killed
        // process leaves it whole all the same.
        database.pragma_update(None, "journal_mode", "WAL")?;
        database.pragma_update(None, "synchronous", "OFF")?;
        database.execute_batch(
            "CREATE TABLE IF NOT EXISTS stock (sku_id INTEGER PRIMARY KEY, items INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS sale (sku_id INTEGER NOT NULL, instance INTEGER NOT NULL);",
        )?;
        Ok(Self { database: Mutex::new(database), instance })
    }

    /// Puts items of an article into stock.
    pub(crate) fn fill(&self, sku_id: u64, items: u32) -> Result<()> {
        self.database().execute("INSERT INTO stock VALUES (?1, ?2)", params![sku_id, items])?;
        Ok(())
    }

    /// How many items are left, by the shop's own count.
    pub(crate) fn items(&self, sku_id: u64) -> Result<u32> {
        let sql = "SELECT items FROM stock WHERE sku_id = ?1";
        self.database().query_row(sql, [sku_id], |row| row.get(0))
    }

    /// How many sales were made.
    pub(crate) fn sold(&self, sku_id: u64) -> Result<u32> {
        let sql = "SELECT count(*) FROM sale WHERE sku_id = ?1";
        self.database().query_row(sql, [sku_id], |row| row.get(0))
    }

    /// How many sales an instance made.
    pub(crate) fn sold_by(&self, sku_id: u64, instance: u32) -> Result<u32> {
        let sql = "SELECT count(*) FROM sale WHERE sku_id = ?1 AND instance = ?2";
        self.database().query_row(sql, [sku_id, instance.into()], |row| row.get(0))
    }

    /// Writes a sale: sets the stock to `items`, whatever it is now. All of it or nothing is written.
    pub(crate) fn write_sale(&self, sku_id: u64, items: u32) -> Result<()> {
        let sql = "UPDATE stock SET items = ?2 WHERE sku_id = ?1";
        self.sale(sku_id, |database| database.execute(sql, params![sku_id, items]))?;
        Ok(())
    }

    /// Writes a sale if an item is left; says whether there was. The store itself checks, in the same
    /// step as it writes.
    pub(crate) fn write_sale_if_in_stock(&self, sku_id: u64) -> Result<bool> {
        let sql = "UPDATE stock SET items = items - 1 WHERE sku_id = ?1 AND items > 0";
        self.sale(sku_id, |database| database.execute(sql, [sku_id]))
    }

    /// Runs `update` and, if it changed a row, notes the sale in the same transaction.
    fn sale(&self, sku_id: u64, update: impl Fn(&Connection) -> Result<usize>) -> Result<bool> {
        let mut database = self.database();
        let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let is_sold = update(&transaction)? == 1;
        if is_sold {
            let sql = "INSERT INTO sale VALUES (?1, ?2)";
            transaction.execute(sql, [sku_id, self.instance.into()])?;
        }
        transaction.commit()?;
        Ok(is_sold)
    }

    fn database(&self) -> MutexGuard<'_, Connection> {
        self.database.lock().expect("nothing panics under this lock")
    }
}
