//! Over real sockets: clients that leave, transfers that are cut off, a handler that calls itself.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post as on_post;
use bytes::Bytes;
use distlock::layer::{FinishLayer, Hold, LockLayer};
use distlock::{HeldLock, LockClient};
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::Instant;
use tokio_stream::StreamExt;

use crate::kit::{A_WHILE, Door, SOON, freed, grpc, post};
use crate::support::{RedisServer, Store, eventually, unique_key};
use crate::wire::{Connection, Version, fetch, serve};

fn slow(layer: LockLayer, door: &Door) -> Router {
    let door = door.clone();
    let handler = move || async move {
        door.pass().await;
        "done"
    };
    Router::new().route("/", on_post(handler).route_layer(layer))
}

/// A client that leaves while its handler works, over and over: each time the lock is free promptly.
/// Within 200 ms, it says at the end; but that is the machine's to grant, too, so what is asked for
/// here is a release.
async fn client_leaves(version: Version) {
    let (store, key) = (Store::redis(), unique_key("layer"));
    let door = Door::closed();
    let address = serve(slow(LockLayer::new(&store.client(), key.clone()), &door)).await;
    let mut times = Vec::new();
    for round in 1..=100 {
        let mut connection = Connection::open(address, version).await;
        let asked = tokio::spawn(async move { connection.send(post("/")).await.map(drop) });
        door.wait_for_entry(round).await;
        assert!(store.owner_of(&key).await.is_some());

        asked.abort();
        assert!(asked.await.is_err());

        let begun = Instant::now();
        freed(&store, &key).await;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let (median, slowest) = (times[50], times[99]);
    println!("{version:?}: free {median:.1?} after a client had left, {slowest:.1?} at the latest");
    assert_eq!(door.finished(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_leaves_over_http_1_frees_the_lock() {
    client_leaves(Version::Http1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_leaves_over_http_2_frees_the_lock() {
    client_leaves(Version::Http2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_that_is_reset_on_a_living_connection_frees_the_lock() {
    let (store, key) = (Store::redis(), unique_key("layer"));
    let door = Door::closed();
    let address = serve(slow(LockLayer::new(&store.client(), key.clone()), &door)).await;
    let mut connection = Connection::open(address, Version::Http2).await;

    tokio::select! {
        _ = connection.send(post("/")) => panic!("the door is closed"),
        () = door.wait_for_entry(1) => {}
    }

    freed(&store, &key).await;
    door.let_in(1);
    let response = connection.send(post("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_that_finishes_does_so_under_its_lock_when_its_client_leaves() {
    let (store, key) = (Store::redis(), unique_key("layer"));
    for version in [Version::Http1, Version::Http2] {
        let door = Door::closed();
        let at_door = door.clone();
        let handler = move || async move { at_door.pass().await };
        let method = on_post(handler).route_layer(FinishLayer::new());
        let method = method.route_layer(LockLayer::new(&store.client(), key.clone()));
        let address = serve(Router::new().route("/", method)).await;
        let mut connection = Connection::open(address, version).await;
        let asked = tokio::spawn(async move { connection.send(post("/")).await.map(drop) });
        door.wait_for_entry(1).await;

        asked.abort();
        tokio::time::sleep(A_WHILE).await;
        assert!(store.owner_of(&key).await.is_some());
        door.let_in(1);

        eventually("the handler is done", SOON, async || door.finished() == 1).await;
        freed(&store, &key).await;
    }
}

/// Sends a line every ten milliseconds, for as long as it is asked.
fn endless(layer: LockLayer) -> Router {
    let handler = || async {
        let ticks = tokio::time::interval(Duration::from_millis(10));
        let lines = tokio_stream::wrappers::IntervalStream::new(ticks)
            .map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"line\n"))));
        Response::new(Body::new(StreamBody::new(lines)))
    };
    Router::new().route("/", on_post(handler).route_layer(layer))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_leaves_in_mid_body_frees_the_lock() {
    let (store, key) = (Store::redis(), unique_key("layer"));
    let layer = LockLayer::new(&store.client(), key.clone()).hold(Hold::UntilBodyEnd);
    let address = serve(endless(layer)).await;
    for version in [Version::Http1, Version::Http2] {
        let mut connection = Connection::open(address, version).await;
        let mut body = connection.send(post("/")).await.unwrap().into_body();
        for _ in 0..3 {
            body.frame().await.unwrap().unwrap();
        }
        assert!(store.owner_of(&key).await.is_some());

        drop((body, connection));

        freed(&store, &key).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_lost_in_mid_body_never_looks_like_a_clean_end() {
    let (store, key) = (Store::redis(), unique_key("layer"));
    let layer = LockLayer::new(&store.client(), key.clone())
        .hold(Hold::UntilBodyEnd)
        .lease(Duration::from_millis(1_500));
    let address = serve(endless(layer)).await;
    for (version, request) in
        [(Version::Http1, post("/")), (Version::Http2, post("/")), (Version::Http2, grpc("/"))]
    {
        let mut connection = Connection::open(address, version).await;
        let mut body = connection.send(request).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();

        store.remove(&key).await;

        let end = loop {
            match body.frame().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("a clean end over {version:?}"),
            }
        };
        println!("{version:?}: {end:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_that_calls_its_own_route_is_refused_and_told_why() {
    let server = RedisServer::start();
    let client = LockClient::connect(&server.url()).await.unwrap();
    let layer = LockLayer::new(&client, "layer:self").wait(Duration::from_millis(200));
    let layer = layer.on_rejected(|rejection| {
        let mut response = Response::new(rejection.error().to_string());
        *response.status_mut() = rejection.status();
        response
    });
    // The server calls itself: what the first request holds does not travel with the second one.
    let address = std::sync::Arc::new(std::sync::OnceLock::new());
    let own = std::sync::Arc::clone(&address);
    let handler = move |_: HeldLock| async move {
        let inner = fetch(*own.get().unwrap(), post("/")).await.unwrap();
        format!("{}: {}", inner.status, inner.text())
    };
    let served = serve(Router::new().route("/", on_post(handler).route_layer(layer))).await;
    address.set(served).unwrap();

    let answer = fetch(served, post("/")).await.unwrap();

    assert!(answer.text().starts_with("423 Locked: "), "{}", answer.text());
    assert!(answer.text().contains("likely self-deadlock"), "{}", answer.text());
}
