//! What the layer costs a request: the same handler with and without it, on both stores.
//!
//! ```sh
//! cargo bench -p distlock-bench --bench layer
//! REDIS_URL=redis://127.0.0.1/ cargo bench -p distlock-bench --bench layer
//! ```
//!
//! Requests go straight into the router, without sockets, so that only the layer is measured. One after
//! the other each has a key of its own; beside them stand the lock alone, without a layer, and on Redis
//! the two round trips that a lock cannot do without. Then many at once, for the throughput. Without
//! `REDIS_URL` only the store in memory is measured.

use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::post;
use distlock::layer::{FinishLayer, Hold, LockLayer};
use distlock::{LockClient, lock_key};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tower::ServiceExt;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let plain = app(None);
    println!("{:<44} {:>9} {:>9} {:>9}", "one after the other", "median", "p90", "p99");
    row("handler alone", &times(MEMORY_CALLS, |number| ask(&plain, number)).await);
    let off = LockLayer::new(&LockClient::in_memory(), TEMPLATE).enabled(false);
    let off = app(Some(off));
    row("layer, switched off", &times(MEMORY_CALLS, |number| ask(&off, number)).await);
    measure("memory", &LockClient::in_memory(), MEMORY_CALLS).await;
    let redis = match env::var("REDIS_URL") {
        Ok(url) => {
            round_trips(&url).await?;
            let locks = LockClient::connect(&url).await?;
            measure("redis", &locks, REDIS_CALLS).await;
            Some(locks)
        }
        Err(_) => None,
    };

    println!("\n{:<44} {:>9}", "32 at once, keys of their own", "per second");
    rate("handler alone", &plain, MEMORY_CALLS).await;
    rate("layer, memory", &layered(&LockClient::in_memory()), MEMORY_CALLS).await;
    if let Some(locks) = &redis {
        rate("layer, redis", &layered(locks), MEMORY_CALLS).await;
    }
    Ok(())
}

async fn measure(store: &str, locks: &LockClient, calls: usize) {
    let run = async |number: usize| {
        let handler = async |_held| StatusCode::OK;
        locks.lock(lock_key!("bench:<number>")).run(handler).await.expect("nobody else is here")
    };
    row(&format!("lock alone, {store}"), &times(calls, run).await);
    let apps = [
        ("layer", layered(locks)),
        (
            "layer until the body's end",
            app(Some(LockLayer::new(locks, TEMPLATE).hold(Hold::UntilBodyEnd))),
        ),
        ("layer and FinishLayer", finishing(locks)),
    ];
    for (what, app) in apps {
        row(&format!("{what}, {store}"), &times(calls, |number| ask(&app, number)).await);
    }
}

/// What one acquire and one release cost on the wire.
async fn round_trips(url: &str) -> Result<(), Box<dyn Error>> {
    let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let two = async |_number| {
        for _ in 0..2 {
            let mut connection = connection.clone();
            redis::cmd("PING").exec_async(&mut connection).await.expect("the server answers");
        }
        StatusCode::OK
    };
    row("two round trips, redis", &times(REDIS_CALLS, two).await);
    Ok(())
}

fn app(layer: Option<LockLayer>) -> Router {
    let method = post(|Path(sku_id): Path<u64>| async move { sku_id.to_string() });
    let method = match layer {
        Some(layer) => method.route_layer(layer),
        None => method,
    };
    Router::new().route("/skus/{sku_id}", method)
}

fn layered(locks: &LockClient) -> Router {
    app(Some(LockLayer::new(locks, TEMPLATE)))
}

fn finishing(locks: &LockClient) -> Router {
    let method = post(|Path(sku_id): Path<u64>| async move { sku_id.to_string() });
    let method = method.route_layer(FinishLayer::new());
    Router::new().route("/skus/{sku_id}", method.route_layer(LockLayer::new(locks, TEMPLATE)))
}

async fn ask(app: &Router, number: usize) -> StatusCode {
    let request = Request::post(format!("/skus/{number}")).body(Body::empty()).expect("a request");
    let Ok(response) = app.clone().oneshot(request).await;
    let status = response.status();
    response.into_body().collect().await.expect("a whole body");
    status
}

/// How long each call took, sorted. The first tenth warms up and does not count.
async fn times(calls: usize, call: impl AsyncFn(usize) -> StatusCode) -> Vec<Duration> {
    let mut times = Vec::with_capacity(calls);
    for number in 0..calls + calls / 10 {
        let begun = Instant::now();
        assert_eq!(call(number).await, StatusCode::OK);
        if number >= calls / 10 {
            times.push(begun.elapsed());
        }
    }
    times.sort_unstable();
    times
}

async fn rate(what: &str, app: &Router, calls: usize) {
    let begun = Instant::now();
    let workers = (0..WORKERS).map(|worker| {
        let app = app.clone();
        tokio::spawn(async move {
            for number in 0..calls / WORKERS {
                assert_eq!(ask(&app, worker * calls + number).await, StatusCode::OK);
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("no panic");
    }
    println!("{what:<44} {:>9.0}", calls as f64 / begun.elapsed().as_secs_f64());
}

fn row(what: &str, times: &[Duration]) {
    let at = |share: usize| format!("{:.1?}", times[times.len() * share / 100]);
    println!("{what:<44} {:>9} {:>9} {:>9}", at(50), at(90), at(99));
}

const TEMPLATE: &str = "bench:<sku_id as u64>";
const MEMORY_CALLS: usize = 32_000;
const REDIS_CALLS: usize = 5_000;
const WORKERS: usize = 32;
