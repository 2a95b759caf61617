//! The request's own deadline cuts the wait.

use std::time::Duration;

use axum::Router;
use axum::routing::post as on_post;
use distlock::layer::{Deadline, LockLayer};
use http::StatusCode;
use tokio::time::Instant;

use crate::kit::{ANSWERED, Door, LONG, ask, grpc, hold, post, slack, with_header};
use crate::support::{CommandLog, RedisServer, on_every_store, unique_key};

fn app(layer: LockLayer, door: &Door) -> Router {
    let door = door.clone();
    let handler = move || async move { door.pass().await };
    Router::new().route("/", on_post(handler).route_layer(layer))
}

on_every_store! {
    async fn grpc_timeout_cuts_the_wait(store: Store) {
        let key = unique_key("layer");
        let door = Door::open();
        let app = app(LockLayer::new(&store.client(), key.clone()).wait(LONG), &door);
        let _held = hold(&store.client(), &key).await;

        let begun = Instant::now();
        let answer = ask(&app, with_header(grpc("/"), "grpc-timeout", "1500m")).await;
        let waited = begun.elapsed();

        assert_eq!(answer.header("grpc-status"), Some("4"));
        assert_eq!(answer.header("grpc-status-details-bin"), None);
        assert!(waited >= Duration::from_millis(1_450), "{waited:?}");
        // Under paused time to the millisecond: in time for the answer's way back.
        assert!(waited < Duration::from_millis(1_490) + slack(&store), "{waited:?}");
        assert_eq!(door.entered(), 0);
    }
}

on_every_store! {
    async fn deadline_of_a_middleware_cuts_the_wait(store: Store) {
        let key = unique_key("layer");
        let app = app(LockLayer::new(&store.client(), key.clone()).wait(LONG), &Door::open());
        let _held = hold(&store.client(), &key).await;

        let mut request = post("/");
        request.extensions_mut().insert(Deadline::after(Duration::from_millis(1_500)));
        let begun = Instant::now();
        let answer = ask(&app, request).await;

        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.text().contains("urn:distlock:deadline"), "{}", answer.text());
        assert_eq!(answer.header("retry-after"), None);
        assert!(begun.elapsed() < Duration::from_millis(1_500) + slack(&store));
    }
}

on_every_store! {
    async fn nearest_deadline_counts_and_a_far_one_changes_nothing(store: Store) {
        let key = unique_key("layer");
        let layer = LockLayer::new(&store.client(), key.clone()).wait(ANSWERED);
        let app = app(layer, &Door::open());
        let _held = hold(&store.client(), &key).await;

        let mut far = with_header(grpc("/"), "grpc-timeout", "1H");
        far.extensions_mut().insert(Deadline::after(Duration::MAX));
        assert_eq!(ask(&app, far).await.header("grpc-status"), Some("10"));
        let mut near = with_header(grpc("/"), "grpc-timeout", "1H");
        near.extensions_mut().insert(Deadline::after(ANSWERED / 2));
        assert_eq!(ask(&app, near).await.header("grpc-status"), Some("4"));
        // Not a gRPC request, and no deadline.
        let plain = with_header(post("/"), "grpc-timeout", "1n");
        assert_eq!(ask(&app, plain).await.status, StatusCode::LOCKED);
        let garbled = with_header(grpc("/"), "grpc-timeout", "soon");
        assert_eq!(ask(&app, garbled).await.header("grpc-status"), Some("10"));
    }
}

#[tokio::test]
async fn request_whose_deadline_has_passed_is_not_worth_a_command() {
    let server = RedisServer::start();
    let client = distlock::LockClient::connect(&server.url()).await.unwrap();
    let log = CommandLog::start(&server);
    let app = app(LockLayer::new(&client, "layer"), &Door::open());
    let mark = log.mark();

    let mut request = post("/");
    request.extensions_mut().insert(Deadline::at(std::time::Instant::now()));
    let answer = ask(&app, request).await;

    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(log.since(mark), [""; 0]);
}

on_every_store! {
    async fn deadline_does_not_end_a_handler_that_has_begun(store: Store) {
        let door = Door::closed();
        let app = app(LockLayer::new(&store.client(), unique_key("layer")), &door);
        let mut request = post("/");
        request.extensions_mut().insert(Deadline::after(ANSWERED));
        let asked = tokio::spawn(async move { ask(&app, request).await });
        door.wait_for_entry(1).await;
        tokio::time::sleep(ANSWERED).await;

        door.let_in(1);

        assert_eq!(asked.await.unwrap().status, StatusCode::OK);
    }
}
