//! A holder that slept through its lease, and the database that refuses its write.
//!
//! A process reads the stock under its lock and is frozen right there, in the middle of a poll, for
//! longer than the lease. Another one gets the lock and sells. Then the first one wakes up and runs on:
//! nothing can stop it before its next await, so it writes what it computed from the stock of long
//! ago. First into a plain row, which loses the other one's sale; then into a row that keeps the
//! highest fencing token it has seen:
//!
//! ```sql
//! UPDATE stock SET items = ?1, fence = ?2 WHERE sku_id = ?3 AND fence <= ?2
//! ```
//!
//! ```sh
//! cargo run --example fenced_store
//! ```
//!
//! It needs the Redis of `REDIS_URL`, or a `redis-server` on the PATH. The output ends with
//!
//! ```text
//! plain write:  sold 2 of 10, the stock says 9: a sale is lost
//! fenced write: sold 1 of 10, the stock says 9: the stale write was refused
//! ```
//!
//! and the exit code is 0 only if the fenced row refused the stale write.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use std::{env, thread};

use distlock::{FencingToken, LockClient, distributed_lock};
use rusqlite::{Connection, params};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use self::server::Server;

// The other example asks it for more.
#[allow(dead_code)]
#[path = "oversell/server.rs"]
mod server;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    // The process that is frozen is this very program, started with an order.
    if let Some(code) = carry_out() {
        return code;
    }
    let tell = || -> Result<(Ending, Ending)> {
        let program = env::current_exe()?;
        let program = || Command::new(&program);
        Ok((tell_the_story(Write::Plain, &program)?, tell_the_story(Write::Fenced, &program)?))
    };
    match tell() {
        Ok((plain, fenced)) => {
            println!(
                "\nplain write:  sold {} of {ITEMS}, the stock says {}: a sale is lost\n\
                 fenced write: sold {} of {ITEMS}, the stock says {}: the stale write was refused",
                plain.sold, plain.items, fenced.sold, fenced.items
            );
            if fenced.stale_refused && !plain.stale_refused {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("fenced_store: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How a sale is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Unless the row has seen a higher token.
    Fenced,
    /// Whatever the row has seen.
    Plain,
}

/// How the story ended.
#[derive(Debug)]
pub struct Ending {
    /// What the stock says.
    pub items: i64,
    /// How many sales were written.
    pub sold: u32,
    /// Whether the database refused the write of the holder that had slept.
    pub stale_refused: bool,
}

/// Tells it with one way to write. `program` starts this program again, which is to call
/// [`carry_out`].
pub fn tell_the_story(write: Write, program: &dyn Fn() -> Command) -> Result<Ending> {
    println!("\n{write:?} write");
    let folder = TempDir::with_prefix("fenced-store-")?;
    let file = folder.path().join("shop.sqlite");
    open(&file)?.execute_batch(&format!(
        "CREATE TABLE stock (sku_id INTEGER PRIMARY KEY, items INTEGER, fence INTEGER);
         INSERT INTO stock VALUES ({SKU_ID}, {ITEMS}, 0);"
    ))?;
    let server = Server::find(folder.path())?.ok_or("there is no redis-server on the PATH")?;

    let child = program()
        .env(VARIABLE, format!("{write:?} {} {}", server.url, file.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut sleeper = Sleeper(child);
    let output = sleeper.0.stdout.take().ok_or("piped")?;
    let mut lines = BufReader::new(output).lines().map_while(std::result::Result::ok);
    // Inside a test other lines come in between.
    let mut hear = |word: &str| {
        let line = lines.find(|line| line.starts_with(word) || line.starts_with("failed"));
        let line = line.filter(|line| line.starts_with(word));
        line.ok_or_else(|| format!("the first process never said {word:?}"))
    };
    println!("  {}", hear("first:")?);
    kill_process(Pid::from_child(&sleeper.0), Signal::STOP)?;
    println!("  the first process is frozen");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (token, sold) = runtime.block_on(async {
        let locks = LockClient::connect(&server.url).await?;
        let sale =
            locks.scope_default(sell(SKU_ID, &file, write, Duration::ZERO, "  second")).await?;
        locks.shutdown(Duration::from_secs(1)).await?;
        Ok::<_, Box<dyn Error>>(sale)
    })?;
    if !sold {
        return Err(format!("the write with token {token} should have been taken").into());
    }

    kill_process(Pid::from_child(&sleeper.0), Signal::CONT)?;
    println!("  the first process wakes up");
    let answer = hear("write:")?;
    println!("  its write is {}", answer.trim_start_matches("write: "));
    let stale_refused = answer.ends_with("refused");
    let items = items(&open(&file)?)?;
    Ok(Ending { items, sold: 1 + u32::from(!stale_refused), stale_refused })
}

/// The first process's side: carries out the order in the environment, if there is one.
pub fn carry_out() -> Option<ExitCode> {
    let order = env::var(VARIABLE).ok()?;
    let work = || -> Result<bool> {
        let [write, url, file] = order.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            return Err(format!("{VARIABLE} is for the example itself").into());
        };
        let write = if write == "Plain" { Write::Plain } else { Write::Fenced };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let locks = LockClient::connect(url).await?;
            let sale = sell(SKU_ID, Path::new(file), write, WORK, "first");
            Ok(locks.scope_default(sale).await?.1)
        })
    };
    match work() {
        Ok(true) => println!("write: taken"),
        Ok(false) => println!("write: refused"),
        Err(error) => println!("failed: {error}"),
    }
    Some(ExitCode::SUCCESS)
}

/// Sells one item: reads, works for a while, writes. Says whether the database took the write.
#[distributed_lock(key = "stock:lock:<sku_id>", wait = "10s", lease = "1s", guard = held)]
async fn sell(
    sku_id: i64,
    file: &Path,
    write: Write,
    work: Duration,
    name: &str,
) -> Result<(FencingToken, bool)> {
    let token = held.fencing_token().await?;
    // From here to the end there is no await: this is one poll.
    let database = open(file)?;
    let items = items(&database)?;
    println!("{name}: has the lock with token {token}, and reads {items} items");
    thread::sleep(work);
    let sql = match write {
        Write::Fenced => {
            "UPDATE stock SET items = ?1, fence = ?2 WHERE sku_id = ?3 AND fence <= ?2"
        }
        Write::Plain => "UPDATE stock SET items = ?1, fence = ?2 WHERE sku_id = ?3",
    };
    let rows = database.execute(sql, params![items - 1, token.as_i64(), sku_id])?;
    // No row: a higher token was there, so whoever has that one came after us.
    Ok((token, rows == 1))
}

fn open(file: &Path) -> rusqlite::Result<Connection> {
    Connection::open(file)
}

fn items(database: &Connection) -> rusqlite::Result<i64> {
    database.query_row("SELECT items FROM stock WHERE sku_id = ?1", [SKU_ID], |row| row.get(0))
}

/// The first process; it ends with the story.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const ITEMS: i64 = 10;
const SKU_ID: i64 = 7;
const VARIABLE: &str = "DISTLOCK_FENCED_STORE_ORDER";
/// What the first process does between read and write; it is frozen meanwhile.
const WORK: Duration = Duration::from_millis(300);
