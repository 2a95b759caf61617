//! The examples as they are meant to run: several processes over one Redis, one of them killed at work.

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::StatusCode;
use tempfile::TempDir;
use tokio::time::Instant;
use tonic::Code;

use crate::grpc_stock::stock::DeductRequest;
use crate::grpc_stock::stock::stock_client::StockClient;
use crate::kit::{SOON, get, post};
use crate::support::{RedisServer, Store, eventually};
use crate::wire::fetch;
use crate::{axum_stock, grpc_stock};

/// An instance of an example; killed when this is dropped.
struct Instance {
    child: Child,
    address: SocketAddr,
}

impl Instance {
    fn start(example: &str, redis: &RedisServer, stock: &Path, work: Duration) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "processes::instance", "--nocapture"])
            .env(EXAMPLE, example)
            .env("PORT", "0")
            .env("REDIS_URL", redis.url())
            .env("STOCK_FILE", stock)
            .env("WORK_MS", work.as_millis().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("listening on http://")?.1.parse().ok())
            .expect("the example says where it listens");
        Self { child, address }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test, but what [`Instance`] starts: this binary again, as one of the examples.
#[test]
fn instance() {
    match env::var(EXAMPLE).as_deref() {
        Ok("axum_stock") => axum_stock::main().unwrap(),
        Ok("grpc_stock") => grpc_stock::main().unwrap(),
        Ok(other) => panic!("no such example: {other}"),
        Err(_) => {}
    }
}

const EXAMPLE: &str = "DISTLOCK_TEST_EXAMPLE";
const MOMENT: Duration = Duration::from_millis(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_the_axum_example_sell_each_item_once_though_one_is_killed() {
    let redis = std::sync::Arc::new(RedisServer::start());
    let store = Store::Redis(std::sync::Arc::clone(&redis));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("stock.sqlite");
    let instances = [(); 3].map(|()| Instance::start("axum_stock", &redis, &file, MOMENT));
    let addresses = [0, 1, 2].map(|number: usize| instances[number].address);

    // Three clients, one at each instance, with three spellings of one number.
    let clients = [0, 1, 2].map(|number: usize| {
        let uri = ["/skus/7/deduct", "/skus/007/deduct", "/skus/+7/deduct"][number];
        tokio::spawn(async move {
            let mut sold = Vec::new();
            for _ in 0..20 {
                let answer = fetch(addresses[number], post(uri)).await.unwrap();
                sold.push(answer.text().to_owned());
            }
            sold
        })
    });
    let mut sold = Vec::new();
    for client in clients {
        sold.extend(client.await.unwrap());
    }
    let expected: BTreeSet<_> =
        (40..100).map(|left| format!("sold: {left} left, under stock:lock:7\n")).collect();
    assert_eq!(sold.iter().cloned().collect::<BTreeSet<_>>(), expected);
    assert_eq!(sold.len(), 60);

    // One is killed at work; the lock is its own until the lease is over, and then the others'.
    let [mut doomed, alive, _] = instances;
    let asked = tokio::spawn(fetch(doomed.address, post("/skus/7/deduct?work_ms=60000")));
    let is_held = async || store.owner_of("stock:lock:7").await.is_some();
    eventually("it is at work", SOON, is_held).await;
    doomed.child.kill().unwrap();
    assert!(asked.await.unwrap().is_err());
    let refused = fetch(alive.address, post("/skus/7/deduct")).await.unwrap();
    assert_eq!(refused.status, StatusCode::LOCKED);
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=9).contains(&seconds), "{seconds}");

    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let answer = fetch(alive.address, post("/skus/7/deduct")).await.unwrap();
    assert_eq!(answer.text(), "sold: 39 left, under stock:lock:7\n");
    assert_eq!(fetch(alive.address, get("/skus/7")).await.unwrap().text(), "39\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_the_grpc_example_sell_each_item_once_though_one_is_killed() {
    let redis = std::sync::Arc::new(RedisServer::start());
    let store = Store::Redis(std::sync::Arc::clone(&redis));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("stock.sqlite");
    let start = |work| Instance::start("grpc_stock", &redis, &file, work);
    let (first, second) = (start(MOMENT), start(MOMENT));
    let connect = async |instance: &Instance| {
        StockClient::connect(format!("http://{}", instance.address)).await.unwrap()
    };
    let message = || DeductRequest { sku_id: 7, quantity: 1 };

    let clients = [connect(&first).await, connect(&second).await].map(|mut client| {
        tokio::spawn(async move {
            let mut left = Vec::new();
            for _ in 0..20 {
                left.push(client.deduct(message()).await.unwrap().into_inner().left);
            }
            left
        })
    });
    let mut left = Vec::new();
    for client in clients {
        left.extend(client.await.unwrap());
    }
    left.sort_unstable();
    assert_eq!(left, (60..100).collect::<Vec<_>>());

    let mut doomed = start(Duration::from_secs(60));
    let mut client = connect(&doomed).await;
    let asked = tokio::spawn(async move { client.deduct(message()).await });
    let is_held = async || store.owner_of("stock:lock:7").await.is_some();
    eventually("it is at work", SOON, is_held).await;
    doomed.child.kill().unwrap();
    assert!(asked.await.unwrap().is_err());
    let mut client = connect(&first).await;
    let begun = Instant::now();
    let left = loop {
        match client.deduct(message()).await {
            Ok(reply) => break reply.into_inner().left,
            Err(status) => assert_eq!(status.code(), Code::Aborted, "{status:?}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(30));
    };
    assert_eq!(left, 59);
    // Two thirds of ten seconds at least, had the last renewal been in time.
    assert!(begun.elapsed() > Duration::from_secs(3), "the lease of the dead one was respected");
}
