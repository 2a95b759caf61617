//! Locked gRPC methods: around the whole service by metadata, and on a method by its message.
//!
//! ```sh
//! REDIS_URL=redis://127.0.0.1/ PORT=5000 cargo run --features web --example grpc_stock
//! REDIS_URL=redis://127.0.0.1/ PORT=5001 cargo run --features web --example grpc_stock
//! ```
//!
//! Without `REDIS_URL` the locks are in memory, which is enough for one instance. The example is its own
//! client, too:
//!
//! ```text
//! $ cargo run --features web --example grpc_stock -- deduct http://127.0.0.1:5000 7
//! sold: true, 99 left
//! $ cargo run --features web --example grpc_stock -- count http://127.0.0.1:5000 north
//! 9999 items, counted under stock:count:north
//! $ cargo run --features web --example grpc_stock -- count http://127.0.0.1:5000
//! InvalidArgument: A part of the request that names what to work on is missing, malformed or too long. Nothing was done.
//! ```
//!
//! While another instance sells the same article for longer than `deduct` waits:
//!
//! ```text
//! Aborted: Another request is working on this. Nothing was done; try again later.
//! ```
//!
//! `grpc_stock/stock.rs` is what `tonic-prost-build` makes of `stock.proto` (through `protox`, so that
//! no system needs `protoc`).

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use distlock::layer::LockLayer;
use distlock::{HeldLock, LockClient, distributed_lock};
use rusqlite::{Connection, OptionalExtension};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::LayerExt;
use tonic::transport::server::{Router, Server};
use tonic::{Request, Response, Status};

use stock::stock_client::StockClient;
use stock::stock_server::{Stock, StockServer};
use stock::{CountReply, CountRequest, DeductReply, DeductRequest};

#[path = "grpc_stock/stock.rs"]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod stock;

/// The service behind its lock.
pub(crate) fn server(locks: &LockClient, shop: Shop) -> Router {
    // Methods whose key is in the metadata are locked from outside. One that names what it works on
    // in its message takes its lock itself: no layer can look into a message.
    let lock = LockLayer::new(locks, "stock:count:<header:x-tenant>")
        .wait(Duration::from_secs(2))
        .when(|request| request.uri().path().ends_with("/Count"));
    Server::builder().add_service(lock.named_layer(StockServer::new(shop)))
}

#[tonic::async_trait]
impl Stock for Shop {
    async fn deduct(
        &self,
        request: Request<DeductRequest>,
    ) -> Result<Response<DeductReply>, Status> {
        let DeductRequest { sku_id, quantity } = request.into_inner();
        self.take(sku_id, quantity.max(1)).await.map(Response::new)
    }

    async fn count(&self, request: Request<CountRequest>) -> Result<Response<CountReply>, Status> {
        let held = HeldLock::of_request(request.extensions())?;
        let items = self.all_items().map_err(|error| internal(&error))?;
        let mut reply = Response::new(CountReply { items });
        let key = held.key().parse().map_err(|_| Status::internal("the key is no ASCII text"))?;
        reply.metadata_mut().insert("x-counted-under", key);
        Ok(reply)
    }
}

impl Shop {
    /// Read, decide, pay, write. The errors of the lock become a status by themselves.
    #[distributed_lock(key = "stock:lock:<sku_id>", client = self.locks, wait = "1s", lease = "9s")]
    async fn take(&self, sku_id: u64, quantity: u32) -> Result<DeductReply, Status> {
        let items = self.items(sku_id).map_err(|error| internal(&error))?;
        tokio::time::sleep(self.work).await;
        let deducted = items >= quantity;
        let left = if deducted { items - quantity } else { items };
        self.set_items(sku_id, left).map_err(|error| internal(&error))?;
        Ok(DeductReply { deducted, left })
    }
}

/// What all instances share: a table of items.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    file: PathBuf,
    locks: LockClient,
    work: Duration,
}

impl Shop {
    pub(crate) fn open(
        file: PathBuf,
        locks: &LockClient,
        work: Duration,
    ) -> rusqlite::Result<Self> {
        let shop = Self { file, locks: locks.clone(), work };
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

    fn items(&self, sku_id: u64) -> rusqlite::Result<u32> {
        let connection = self.connect()?;
        let items = connection
            .query_row("SELECT items FROM stock WHERE sku_id = ?", [sku_id], |row| row.get(0))
            .optional()?;
        Ok(items.unwrap_or(100))
    }

    fn set_items(&self, sku_id: u64, items: u32) -> rusqlite::Result<()> {
        let values = [sku_id, items.into()];
        self.connect()?
            .execute("INSERT OR REPLACE INTO stock (sku_id, items) VALUES (?, ?)", values)?;
        Ok(())
    }

    fn all_items(&self) -> rusqlite::Result<u32> {
        let sold = "SELECT coalesce(sum(100 - items), 0) FROM stock";
        let sold: u32 = self.connect()?.query_row(sold, [], |row| row.get(0))?;
        Ok(10_000 - sold)
    }
}

fn internal(error: &rusqlite::Error) -> Status {
    Status::internal(error.to_string())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["deduct", address, sku_id] => deduct(address, sku_id.parse()?).await,
        ["count", address] => count(address, None).await,
        ["count", address, tenant] => count(address, Some(tenant)).await,
        _ => serve().await,
    }
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "memory:".to_owned());
    let port: u16 = env::var("PORT").map_or(Ok(5000), |port| port.parse())?;
    let work = env::var("WORK_MS").map_or(Ok(5), |work| work.parse())?;
    let file = env::var_os("STOCK_FILE")
        .map_or_else(|| env::temp_dir().join("distlock-stock.sqlite"), PathBuf::from);

    let locks = LockClient::connect(&url).await?;
    let shop = Shop::open(file, &locks, Duration::from_millis(work))?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    let incoming = TcpListenerStream::new(listener);
    server(&locks, shop).serve_with_incoming_shutdown(incoming, stop).await?;
    locks.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

async fn deduct(address: &str, sku_id: u64) -> Result<(), Box<dyn Error>> {
    let mut client = StockClient::connect(address.to_owned()).await?;
    let reply = client.deduct(DeductRequest { sku_id, quantity: 1 }).await;
    tell(reply.map(|reply| {
        let DeductReply { deducted, left } = reply.into_inner();
        format!("sold: {deducted}, {left} left")
    }));
    Ok(())
}

async fn count(address: &str, tenant: Option<&str>) -> Result<(), Box<dyn Error>> {
    let mut client = StockClient::connect(address.to_owned()).await?;
    let mut request = Request::new(CountRequest {});
    if let Some(tenant) = tenant {
        request.metadata_mut().insert("x-tenant", tenant.parse()?);
    }
    tell(client.count(request).await.map(|reply| {
        let under = reply.metadata().get("x-counted-under").cloned();
        let items = reply.into_inner().items;
        let under = under.as_ref().and_then(|key| key.to_str().ok()).unwrap_or("no lock");
        format!("{items} items, counted under {under}")
    }));
    Ok(())
}

fn tell(outcome: Result<String, Status>) {
    match outcome {
        Ok(text) => println!("{text}"),
        Err(status) => println!("{:?}: {}", status.code(), status.message()),
    }
}
