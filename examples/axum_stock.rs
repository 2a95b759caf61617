//! A locked route: two instances of a shop sell from one stock, and each item is sold once.
//!
//! ```sh
//! REDIS_URL=redis://127.0.0.1/ PORT=3000 cargo run --features web --example axum_stock
//! REDIS_URL=redis://127.0.0.1/ PORT=3001 cargo run --features web --example axum_stock
//! ```
//!
//! Without `REDIS_URL` the locks are in memory, which is enough for one instance. The stock is a SQLite
//! file (`STOCK_FILE`, else `distlock-stock.sqlite` in the temporary folder) of 100 items each.
//!
//! ```text
//! $ curl -X POST localhost:3000/skus/7/deduct
//! sold: 99 left, under stock:lock:7
//! $ curl -X POST localhost:3001/skus/007/deduct
//! sold: 98 left, under stock:lock:7
//! $ curl -X POST 'localhost:3000/skus/7/deduct?work_ms=9000' &
//! $ curl -i -X POST localhost:3001/skus/7/deduct
//! HTTP/1.1 423 Locked
//! content-type: application/problem+json
//! retry-after: 7
//!
//! {"type":"urn:distlock:busy","title":"Busy","status":423,"detail":"Another request is working on this. Nothing was done; try again later."}
//! $ curl localhost:3000/skus/7
//! 97
//! $ curl -i -X POST localhost:3000/skus/seven/deduct
//! HTTP/1.1 400 Bad Request
//! ```
//!
//! Kill the instance that works (`kill -9`): the other one sells when the lease has run out.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use distlock::layer::LockLayer;
use distlock::{HeldLock, LockClient, LockError, distributed_lock};
use rusqlite::{Connection, OptionalExtension};
use tokio::net::TcpListener;

/// All routes of the shop.
pub(crate) fn app(locks: &LockClient, shop: Shop) -> Router {
    let lock = LockLayer::new(locks, "stock:lock:<sku_id as u64>")
        .wait(Duration::from_secs(2))
        .lease(Duration::from_secs(9));
    Router::new()
        .route("/skus/{sku_id}", get(count))
        // On the method, so that neither an unknown path nor a wrong method asks for the lock.
        .route("/skus/{sku_id}/deduct", post(deduct).route_layer(lock))
        .with_state(shop)
}

/// Sells one item. Only with the lock in hand: mounted without the layer, it does not run.
async fn deduct(
    State(shop): State<Shop>,
    Path(sku_id): Path<u64>,
    Query(Work { work_ms }): Query<Work>,
    lock: HeldLock,
) -> Result<Response, ShopError> {
    Ok(match shop.sell(sku_id, Duration::from_millis(work_ms)).await? {
        Some(left) => format!("sold: {left} left, under {}\n", lock.key()).into_response(),
        None => (StatusCode::CONFLICT, "sold out\n").into_response(),
    })
}

/// A look needs no lock.
async fn count(State(shop): State<Shop>, Path(sku_id): Path<u64>) -> Result<String, ShopError> {
    Ok(format!("{}\n", shop.items(sku_id)?))
}

#[derive(serde::Deserialize)]
struct Work {
    #[serde(default = "moment")]
    work_ms: u64,
}

fn moment() -> u64 {
    5
}

/// What all instances share: a table of items.
#[derive(Clone)]
pub(crate) struct Shop {
    file: PathBuf,
    locks: LockClient,
}

impl Shop {
    pub(crate) fn open(file: PathBuf, locks: &LockClient) -> rusqlite::Result<Self> {
        let shop = Self { file, locks: locks.clone() };
        shop.connect()?.execute_batch(
            "CREATE TABLE IF NOT EXISTS stock (sku_id INTEGER PRIMARY KEY, items INTEGER NOT NULL)",
        )?;
        Ok(shop)
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(&self.file)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        Ok(connection)
    }

    fn items(&self, sku_id: u64) -> rusqlite::Result<u64> {
        let connection = self.connect()?;
        let items = connection
            .query_row("SELECT items FROM stock WHERE sku_id = ?", [sku_id], |row| row.get(0))
            .optional()?;
        Ok(items.unwrap_or(100))
    }

    /// Read, decide, pay, write. The attribute has the key of the route, so below the route it enters
    /// that lock; called from elsewhere it takes the lock itself.
    #[distributed_lock(key = "stock:lock:<sku_id>", client = self.locks)]
    async fn sell(&self, sku_id: u64, work: Duration) -> Result<Option<u64>, ShopError> {
        let items = self.items(sku_id)?;
        tokio::time::sleep(work).await;
        let Some(left) = items.checked_sub(1) else { return Ok(None) };
        let values = [sku_id, left];
        self.connect()?
            .execute("INSERT OR REPLACE INTO stock (sku_id, items) VALUES (?, ?)", values)?;
        Ok(Some(left))
    }
}

/// Errors of a handler: those of a lock answer for themselves.
enum ShopError {
    Lock(LockError),
    Stock(rusqlite::Error),
}

impl From<LockError> for ShopError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<rusqlite::Error> for ShopError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Stock(error)
    }
}

impl IntoResponse for ShopError {
    fn into_response(self) -> Response {
        match self {
            Self::Lock(error) => error.into_response(),
            Self::Stock(error) => {
                (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
            }
        }
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "memory:".to_owned());
    let port: u16 = env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let file = env::var_os("STOCK_FILE")
        .map_or_else(|| env::temp_dir().join("distlock-stock.sqlite"), PathBuf::from);

    let locks = LockClient::connect(&url).await?;
    let shop = Shop::open(file, &locks)?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, app(&locks, shop)).with_graceful_shutdown(stop).await?;
    locks.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}
