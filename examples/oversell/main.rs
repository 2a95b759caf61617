//! A shop that sells more than it has, and the attribute that stops it.
//!
//! A shop has 100 items. Four instances of its service sell them at once by the classic bug: read the
//! stock, check it, charge the card, write the stock. First as it is, then with `#[distributed_lock]`
//! on the same function while one instance is killed with the lock in its hands, and at last without a
//! lock but with a conditional write, the last line of defence behind any lock.
//!
//! ```sh
//! cargo run --example oversell
//! ```
//!
//! The instances are processes over real Redis: the server of `REDIS_URL`, else a `redis-server` from
//! the PATH, started for the run and stopped after it. Without either they are threads over the store
//! in memory. The stock is a SQLite file in a temporary folder. The output ends with
//!
//! ```text
//!                      items    sold  too many   refused    time
//!   without lock         100     800       700         0   0.5 s
//!   with lock            100     100         0         0   3.3 s
//!   conditional write    100     100         0         7   0.1 s
//!
//! without lock: sold 800 of 100
//! with lock: sold 100 of 100
//! ```
//!
//! and the exit code is 0 only if the last line holds.

use std::env;
use std::error::Error;
use std::process::ExitCode;

use distlock::MemoryStore;
use tempfile::TempDir;

use crate::instance::Way;
use crate::report::table;
use crate::run::{INSTANCES, ITEMS, Place, Run};
use crate::server::Server;

mod instance;
mod process;
mod report;
mod run;
mod sell;
mod server;
mod shop;
mod stand_in;

fn main() -> ExitCode {
    // An instance is this very program, started with an order.
    if let Some(code) = process::carry_out(env::args().skip(1)) {
        return code;
    }
    match tell_the_story() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("oversell: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell_the_story() -> Result<ExitCode, Box<dyn Error>> {
    let folder = TempDir::with_prefix("oversell-")?;
    let place = match Server::find(folder.path())? {
        Some(server) => Place::Redis(Box::new(server)),
        None => Place::Memory(MemoryStore::new()),
    };
    println!(
        "A shop has {ITEMS} items of each article; {INSTANCES} instances with 2 tills each sell them."
    );
    match &place {
        Place::Memory(_) => println!(
            "There is no REDIS_URL and no redis-server on the PATH, so the instances are threads of \
             this\nprocess over the store in memory. With Redis they are processes."
        ),
        Place::Redis(server) if server.is_own() => {
            println!(
                "The instances are processes over a redis-server started for this: {}",
                server.url
            );
        }
        Place::Redis(_) => println!("The instances are processes over the Redis of REDIS_URL."),
    }

    let file = folder.path().join("shop.sqlite");
    let run = |title, sku_id, way| {
        println!("\n{title}");
        Run { place: &place, file: &file, sku_id, way }.sell_out()
    };
    let unlocked = run(
        "1. Without a lock: read the stock, check it, charge the card, write the stock",
        1,
        Way::Unlocked,
    )?;
    let locked = run(
        "2. With #[distributed_lock(key = \"stock:lock:<sku_id>\")] on the same function",
        2,
        Way::Locked,
    )?;
    let conditional = run(
        "3. Without a lock, but the write says UPDATE ... WHERE items > 0",
        3,
        Way::Conditional,
    )?;

    println!();
    table(&[
        ("without lock", &unlocked),
        ("with lock", &locked),
        ("conditional write", &conditional),
    ]);
    println!("\nwithout lock: sold {} of {ITEMS}", unlocked.sold);
    println!("with lock: sold {} of {ITEMS}", locked.sold);
    let holds = locked.sold == ITEMS && locked.killed.is_some();
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
