//! What a client sees that is not let through, byte for byte.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post as on_post;
use distlock::layer::LockLayer;
use distlock::{HeldLock, LockClient, LockErrorKind, LockOptions};
use http::{Request, Response, StatusCode};

use crate::kit::{ANSWERED, Answer, Door, LONG, ask, grpc, hold, post, with_header};
use crate::support::{RedisServer, on_every_store, unique_key};

async fn key_of(held: Option<HeldLock>) -> String {
    held.map_or_else(|| "unlocked".to_owned(), |held| held.key().to_owned())
}

fn app(layer: LockLayer) -> Router {
    Router::new().route("/", on_post(key_of).layer(layer))
}

fn slow_app(layer: LockLayer, door: &Door) -> Router {
    let door = door.clone();
    let handler = move || async move { door.pass().await };
    Router::new().route("/", on_post(handler).layer(layer))
}

#[derive(Debug, PartialEq)]
struct Seen {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl From<Answer> for Seen {
    fn from(answer: Answer) -> Self {
        let headers = answer.headers.iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().into()));
        Self {
            status: answer.status.as_u16(),
            headers: headers.collect(),
            body: answer.text().into(),
        }
    }
}

fn seen(status: u16, headers: &[(&str, &str)], body: &str) -> Seen {
    let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Seen { status, headers, body: body.into() }
}

/// A lease of which between nine and ten seconds are left after a wait, on a busy machine, too.
const TEN_SECONDS_LATER: Duration = ANSWERED.saturating_add(Duration::from_millis(9_800));

on_every_store! {
    async fn busy_lock_is_423_and_aborted(store: Store) {
        let key = unique_key("layer");
        let app = app(LockLayer::new(&store.client(), key.clone()).wait(ANSWERED));
        let holder = store.builder().lease(TEN_SECONDS_LATER).build().unwrap();
        let _held = hold(&holder, &key).await;

        assert_eq!(
            Seen::from(ask(&app, post("/")).await),
            seen(
                423,
                &[
                    ("content-type", "application/problem+json"),
                    ("retry-after", "10"),
                    ("content-length", "138"),
                ],
                "{\"type\":\"urn:distlock:busy\",\"title\":\"Busy\",\"status\":423,\
                 \"detail\":\"Another request is working on this. Nothing was done; try again later.\"}",
            )
        );
        let answer = ask(&app, grpc("/")).await;
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, ""));
        assert_eq!(answer.header("content-type"), Some("application/grpc"));
        assert_eq!(answer.header("grpc-status"), Some("10"));
        assert_eq!(
            answer.header("grpc-message"),
            Some("Another request is working on this. Nothing was done; try again later.")
        );
        assert!(answer.header("grpc-status-details-bin").is_some());
    }
}

/// Sends one request of each protocol and checks what is answered.
async fn expect(app: &Router, (status, name, code): (u16, &str, &str)) {
    let answer = ask(app, post("/")).await;
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert!(answer.text().starts_with(&format!("{{\"type\":\"urn:distlock:{name}\"")));
    let answer = ask(app, grpc("/")).await;
    assert_eq!((answer.status, answer.text()), (StatusCode::OK, ""));
    assert_eq!(answer.header("grpc-status"), Some(code), "{:?}", answer.headers);
}

on_every_store! {
    async fn busy_lock_without_a_wait_is_423_too(store: Store) {
        let key = unique_key("layer");
        let _held = hold(&store.client(), &key).await;

        let layer = LockLayer::new(&store.client(), key).wait(Duration::ZERO);
        expect(&app(layer), (423, "busy", "10")).await;
    }
}

on_every_store! {
    async fn full_queue_is_429_and_resource_exhausted(store: Store) {
        let key = unique_key("layer");
        let client = store.client();
        let door = Door::closed();
        let app = slow_app(LockLayer::new(&client, key).max_waiters(0), &door);
        let first = tokio::spawn({
            let app = app.clone();
            async move { ask(&app, post("/")).await }
        });
        door.wait_for_entry(1).await;

        expect(&app, (429, "queue-full", "8")).await;
        door.let_in(1);
        assert_eq!(first.await.unwrap().status, StatusCode::OK);
    }
}

#[tokio::test]
async fn silent_store_is_503_and_unavailable_and_the_handler_does_not_run() {
    let server = RedisServer::start();
    let client = LockClient::builder().url(server.url()).build().unwrap();
    let door = Door::open();
    let layer = LockLayer::new(&client, "layer").wait(Duration::from_millis(100));
    let app = slow_app(layer.clone(), &door);

    server.kill();
    expect(&app, (503, "unavailable", "14")).await;
    assert_eq!(door.entered(), 0);

    // Failing open is written at the site, and nowhere else.
    let app = slow_app(layer.run_unlocked_if_unavailable(), &door);
    assert_eq!(ask(&app, post("/")).await.status, StatusCode::OK);
    assert_eq!(door.entered(), 1);
}

on_every_store! {
    async fn lock_lost_in_the_handler_is_503_and_aborted_and_the_handler_is_dropped(store: Store) {
        let key = unique_key("layer");
        let door = Door::closed();
        let layer = LockLayer::new(&store.client(), key.clone()).lease(Duration::from_millis(1_500));
        let app = slow_app(layer, &door);
        for (number, request) in [post("/"), grpc("/")].into_iter().enumerate() {
            let is_grpc = number == 1;
            let asked = tokio::spawn({
                let app = app.clone();
                async move { ask(&app, request).await }
            });
            door.wait_for_entry(number + 1).await;

            store.remove(&key).await;
            let answer = asked.await.unwrap();

            assert_eq!(door.finished(), 0);
            if is_grpc {
                assert_eq!(answer.header("grpc-status"), Some("10"));
                assert!(answer.header("grpc-message").unwrap().contains("is unknown"));
            } else {
                assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
                assert_eq!(
                    answer.text(),
                    "{\"type\":\"urn:distlock:lost\",\"title\":\"Interrupted\",\"status\":503,\
                     \"detail\":\"The lock was lost while the request was worked on. Whether it was \
                     carried out is unknown; check before trying again.\"}"
                );
            }
        }
    }
}

on_every_store! {
    async fn hold_limit_is_503_and_deadline_exceeded(store: Store) {
        let layer = LockLayer::new(&store.client(), unique_key("layer"))
            .lease(Duration::from_millis(1_000))
            .max_hold(Duration::from_millis(1_100));

        expect(&slow_app(layer, &Door::closed()), (503, "hold-limit", "4")).await;
    }
}

on_every_store! {
    async fn shut_down_is_503_and_unavailable(store: Store) {
        let (client, door) = (store.client(), Door::closed());
        let app = slow_app(LockLayer::new(&client, unique_key("layer")), &door);
        let running = tokio::spawn({
            let app = app.clone();
            async move { ask(&app, post("/")).await }
        });
        door.wait_for_entry(1).await;

        client.shutdown(Duration::from_millis(50)).await.unwrap();

        let stopped = running.await.unwrap();
        assert_eq!(stopped.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(stopped.text().contains("urn:distlock:shut-down"), "{}", stopped.text());
        expect(&app, (503, "shut-down", "14")).await;
    }
}

on_every_store! {
    async fn empty_part_of_the_key_is_400_and_invalid_argument(store: Store) {
        let layer = LockLayer::new(&store.client(), "layer:<header:x-tenant>");

        expect(&app(layer), (400, "invalid-key", "3")).await;
    }
}

on_every_store! {
    async fn faults_of_the_service_are_500_and_internal(store: Store) {
        let key = unique_key("layer");
        let client = store.client();
        let internal = (500, "internal", "13");

        let short = LockLayer::new(&client, key.clone()).lease(Duration::from_millis(1));
        assert_eq!(short.check().unwrap_err().kind(), LockErrorKind::Config);
        expect(&app(short), internal).await;

        let once = LockLayer::new(&client, key.clone());
        let twice = Router::new().route(
            "/",
            on_post(key_of).route_layer(once.clone().not_reentrant()).route_layer(once.clone()),
        );
        expect(&twice, internal).await;

        store.put_foreign(&key, "no lock", None).await;
        expect(&app(once), internal).await;
        assert_eq!(store.owner_of(&key).await.as_deref(), Some("no lock"));
    }
}

on_every_store! {
    async fn strict_layer_tells_that_the_lock_was_gone_at_the_end(store: Store) {
        let key = unique_key("layer");
        let door = Door::closed();
        let layer = LockLayer::new(&store.client(), key.clone()).strict();
        let app = slow_app(layer, &door);
        let asked = tokio::spawn(async move { ask(&app, post("/")).await });
        door.wait_for_entry(1).await;
        store.put_foreign(&key, "other", Some(LONG)).await;

        door.let_in(1);

        let answer = asked.await.unwrap();
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(answer.text().contains("urn:distlock:lost-completed"), "{}", answer.text());
        assert_eq!(door.finished(), 1);
    }
}

on_every_store! {
    async fn answers_name_key_and_owner_only_if_asked_to(store: Store) {
        let key = unique_key("layer\"");
        let layer = LockLayer::new(&store.client(), key.clone()).wait(Duration::ZERO);
        let other = store.client();
        let _held = hold(&other, &key).await;

        let silent = ask(&app(layer.clone()), post("/")).await;
        assert!(!silent.text().contains("layer") && !silent.text().contains(other.instance()));
        let open = app(layer.disclose_key_and_owner());
        let answer = ask(&open, post("/")).await;
        let shown = format!("\"key\":\"{}\",\"owner\":\"{}/", key.replace('"', "\\\""), other.instance());
        assert!(answer.text().contains(&shown), "{}", answer.text());
        let answer = ask(&open, grpc("/")).await;
        assert!(answer.header("grpc-message").unwrap().contains(&format!("(key: {key})")));
    }
}

on_every_store! {
    async fn answer_can_be_replaced(store: Store) {
        let key = unique_key("layer");
        let layer = LockLayer::new(&store.client(), key.clone()).wait(Duration::ZERO);
        let layer = layer.on_rejected(|rejection| {
            let wants_german = rejection.headers().get("accept-language").is_some();
            let text = if wants_german { "Besetzt." } else { "System busy, please retry." };
            let about = format!("{} {} {:?}", rejection.method(), rejection.uri(), rejection.error().kind());
            assert_eq!(about, "POST / Timeout");
            Response::builder().status(rejection.status()).header("x-own", "1").body(text).unwrap()
        });
        let _held = hold(&store.client(), &key).await;

        assert_eq!(
            Seen::from(ask(&app(layer.clone()), with_header(post("/"), "accept-language", "de")).await),
            seen(423, &[("x-own", "1"), ("content-length", "8")], "Besetzt.")
        );
        assert_eq!(ask(&app(layer), post("/")).await.text(), "System busy, please retry.");
    }
}

on_every_store! {
    async fn own_answer_may_start_from_the_usual_one(store: Store) {
        let key = unique_key("layer");
        let layer = LockLayer::new(&store.client(), key.clone()).wait(Duration::ZERO);
        let layer = layer.on_rejected(|rejection| {
            let mut response = rejection.response();
            if !rejection.is_grpc() {
                response.headers_mut().insert("retry-after", "1".parse().unwrap());
            }
            response
        });
        let _held = hold(&store.client(), &key).await;

        let answer = ask(&app(layer.clone()), post("/")).await;
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(ask(&app(layer), grpc("/")).await.header("grpc-status"), Some("10"));
    }
}

#[tokio::test]
async fn answer_to_a_browser_that_speaks_grpc_is_of_its_kind() {
    let client = LockClient::in_memory();
    let layer = LockLayer::new(&client, "layer:<header:x-tenant>");
    let mut request: Request<Body> = post("/");
    request.headers_mut().insert("content-type", "application/grpc-web+proto".parse().unwrap());

    let answer = ask(&app(layer), request).await;

    assert_eq!(answer.header("content-type"), Some("application/grpc-web+proto"));
    assert_eq!(answer.header("grpc-status"), Some("3"));
}

on_every_store! {
    async fn options_are_taken_over_as_a_whole(store: Store) {
        let key = unique_key("layer");
        let options = LockOptions::new().wait(Duration::ZERO);
        let layer = LockLayer::new(&store.client(), key.clone()).options(options).name("n");
        let _held = hold(&store.client(), &key).await;

        assert_eq!(ask(&app(layer), post("/")).await.status, StatusCode::LOCKED);
    }
}

on_every_store! {
    async fn holder_of_this_very_process_is_known_as_well(store: Store) {
        let client = store.builder().lease(TEN_SECONDS_LATER).build().unwrap();
        let key = unique_key("layer");
        let _held = hold(&client, &key).await;
        let layer = LockLayer::new(&client, key).wait(ANSWERED);

        let answer = ask(&app(layer), post("/")).await;

        assert_eq!(answer.status, StatusCode::LOCKED);
        assert_eq!(answer.header("retry-after"), Some("10"));
    }
}
