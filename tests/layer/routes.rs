//! The layer on routes of axum: which requests are locked, and by which key.

use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::{MethodRouter, any, get as on_get, post as on_post};
use distlock::layer::{LockLayer, RequestHead};
use distlock::{HeldLock, LockClient, LockError, distributed_lock, lock_key};
use http::{Method, StatusCode};

use crate::kit::{Door, ask, get, hold, post, request, with_header};
use crate::support::{CommandLog, RedisServer, on_every_store, unique_key};

/// Answers with the key that the request is locked by.
async fn key_of(held: Option<HeldLock>) -> String {
    held.map_or_else(|| "unlocked".to_owned(), |held| held.key().to_owned())
}

fn locked(layer: LockLayer) -> MethodRouter {
    on_post(key_of).route_layer(layer)
}

on_every_store! {
    async fn parameter_is_typed_decoded_and_part_of_the_key(store: Store) {
        let prefix = unique_key("layer");
        let layer = |what: &str| LockLayer::new(&store.client(), format!("{prefix}:{what}"));
        let app = Router::new()
            .route("/skus/{sku_id}", locked(layer("<sku_id as u64>")))
            .route("/orders/{order}", locked(layer("<order as uuid>")))
            .route("/names/{name}", locked(layer("<name>")))
            .route("/files/{*path}", locked(layer("<path>:<method>")))
            .route("/search", locked(layer("<query:q>:<header:x-tenant>")));

        let cases = [
            ("/skus/7", "7"),
            ("/skus/007", "7"),
            ("/skus/+7", "7"),
            ("/orders/0F1B2C3D4E5F60718293A4B5C6D7E8F9", "0f1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"),
            ("/names/a%20b%253A", "a%20b%253A"),
            ("/names/%C3%BC", "ü"),
            ("/files/a%62/c", "%2Ffiles%2Fab%2Fc:POST"),
            ("/search?x=1&q=a+b%2F", "a%20b%2F:north"),
        ];
        for (uri, key) in cases {
            let answer = ask(&app, with_header(post(uri), "x-tenant", "north")).await;
            assert_eq!(answer.text(), format!("{prefix}:{key}"), "{uri}");
        }
    }
}

on_every_store! {
    async fn value_that_makes_no_key_is_refused_with_400(store: Store) {
        let prefix = unique_key("layer");
        let layer = |what: &str| LockLayer::new(&store.client(), format!("{prefix}:{what}"));
        let app = Router::new()
            .route("/skus/{sku_id}", locked(layer("<sku_id as u8>")))
            .route("/names/{name}", locked(layer("<name>")))
            .route("/search", locked(layer("<query:q>")))
            .route("/tenant", locked(layer("<header:x-tenant>")));
        let long = format!("/names/{}", "x".repeat(600));

        let requests = [
            post("/skus/256"),
            post("/skus/-1"),
            post("/skus/seven"),
            post("/names/%20"),
            post("/names/%FF"),
            post(&long),
            post("/search"),
            post("/search?q="),
            post("/search?q=1&q=2"),
            post("/tenant"),
            with_header(with_header(post("/tenant"), "x-tenant", "a"), "x-tenant", "b"),
        ];
        for request in requests {
            let uri = request.uri().clone();
            let answer = ask(&app, request).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{uri}");
            assert!(answer.text().contains("urn:distlock:invalid-key"), "{}", answer.text());
        }
    }
}

#[distributed_lock(key = "layer:reenter:<sku_id>", client = client, wait = "0s")]
async fn deduct(client: &LockClient, sku_id: u64) -> Result<u64, LockError> {
    Ok(sku_id)
}

on_every_store! {
    async fn spellings_of_one_number_are_one_lock_that_the_attribute_reenters(store: Store) {
        let client = store.client();
        let (inner, door) = (client.clone(), Door::closed());
        let at_door = door.clone();
        let handler = move |Path(sku_id): Path<u64>| async move {
            let sku_id = deduct(&inner, sku_id).await.unwrap();
            at_door.pass().await;
            sku_id.to_string()
        };
        let layer = LockLayer::new(&client, "layer:reenter:<sku_id as u64>");
        let app = Router::new().route("/skus/{sku_id}", on_post(handler).route_layer(layer));

        let requests = ["/skus/7", "/skus/007", "/skus/+7"].map(|uri| {
            let app = app.clone();
            tokio::spawn(async move { ask(&app, post(uri)).await })
        });
        for number in 1..=3 {
            door.wait_for_entry(number).await;
            door.let_in(1);
        }

        for request in requests {
            assert_eq!(request.await.unwrap().text(), "7");
        }
        assert_eq!(door.most(), 1);
    }
}

on_every_store! {
    async fn nested_routers_keep_parameters_and_the_whole_path(store: Store) {
        let prefix = unique_key("layer");
        let client = store.client();
        let shelf = Router::new()
            .route("/skus/{sku}", locked(LockLayer::new(&client, format!("{prefix}:<shop as u32>:<sku as u32>"))))
            .route("/all", locked(LockLayer::new(&client, format!("{prefix}:<path>"))));
        let app = Router::new().nest("/shops/{shop}", shelf);

        assert_eq!(ask(&app, post("/shops/01/skus/02")).await.text(), format!("{prefix}:1:2"));
        let whole = ask(&app, post("/shops/1/all")).await;
        assert_eq!(whole.text(), format!("{prefix}:%2Fshops%2F1%2Fall"));
    }
}

/// An app whose layer stands in one of the places that a user may try.
fn mounted(place: &str, layer: LockLayer) -> Router {
    let skus = || Router::new().route("/skus/{sku_id}", on_post(key_of));
    match place {
        "route" => Router::new().route("/skus/{sku_id}", locked(layer)),
        "method router" => Router::new().route("/skus/{sku_id}", on_post(key_of).layer(layer)),
        "router" => skus().layer(layer),
        "router's routes" => skus().route_layer(layer),
        "inner router" => Router::new().nest("/shop", skus().layer(layer)),
        "outer router" => Router::new().nest("/shop", skus()).layer(layer),
        "before" => Router::new().layer(layer).route("/skus/{sku_id}", on_post(key_of)),
        place => unreachable!("{place}"),
    }
}

#[tokio::test]
async fn unmatched_path_sends_no_lock_command_wherever_the_layer_stands() {
    let server = RedisServer::start();
    let client = LockClient::connect(&server.url()).await.unwrap();
    let log = CommandLog::start(&server);
    for template in ["layer:<sku_id as u64>", "layer:<method>", "layer:all"] {
        for place in
            ["route", "method router", "router", "router's routes", "inner router", "outer router"]
        {
            let app = mounted(place, LockLayer::new(&client, template));
            for uri in ["/unknown", "/", "/skus", "/shop/unknown"] {
                let mark = log.mark();
                let answer = ask(&app, post(uri)).await;
                assert_eq!(answer.status, StatusCode::NOT_FOUND, "{place}: {uri}");
                assert_eq!(log.since(mark), [""; 0], "{place}: {uri}");
            }
            // And the layer does lock there.
            let uri =
                if place.starts_with("inner") || place.starts_with("outer") { "/shop" } else { "" };
            let answer = ask(&app, post(&format!("{uri}/skus/7"))).await;
            assert!(answer.text().starts_with("layer:"), "{place}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn wrong_method_sends_no_lock_command_at_the_route_or_with_a_method_filter() {
    let server = RedisServer::start();
    let client = LockClient::connect(&server.url()).await.unwrap();
    let log = CommandLog::start(&server);
    let layer = LockLayer::new(&client, "layer:<sku_id as u64>");
    let filtered = layer.clone().methods([Method::POST]);
    let apps = [
        mounted("route", layer.clone()),
        mounted("router's routes", filtered.clone()),
        mounted("router", filtered.clone()),
        mounted("method router", filtered),
    ];
    for app in &apps {
        let mark = log.mark();
        let answer = ask(app, get("/skus/7")).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(log.since(mark), [""; 0]);
        assert_eq!(ask(app, post("/skus/7")).await.text(), "layer:7");
    }
    // Why the docs name the place: elsewhere the layer sees the method's own fallback as well.
    let mark = log.mark();
    let answer = ask(&mounted("router", layer), get("/skus/7")).await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_ne!(log.since(mark), [""; 0]);
}

#[tokio::test]
async fn layer_added_before_the_routes_protects_nothing_and_the_handler_can_refuse() {
    let client = LockClient::in_memory();
    let app = mounted("before", LockLayer::new(&client, "layer:<sku_id as u64>"));
    assert_eq!(ask(&app, post("/skus/7")).await.text(), "unlocked");

    let demanding = |held: HeldLock| async move { held.key().to_owned() };
    let layer = LockLayer::new(&client, "layer:<sku_id as u64>");
    let app = Router::new().layer(layer).route("/skus/{sku_id}", on_post(demanding));
    let answer = ask(&app, post("/skus/7")).await;

    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer.text().contains("post(handler).route_layer("), "{}", answer.text());
}

#[tokio::test]
async fn parameter_that_the_route_lacks_is_a_fault_of_the_service() {
    let client = LockClient::in_memory();
    let layer = LockLayer::new(&client, "layer:<sku_id as u64>");
    let app = Router::new().route("/orders/{order_id}", locked(layer.clone()));
    assert_eq!(ask(&app, post("/orders/7")).await.status, StatusCode::INTERNAL_SERVER_ERROR);

    // Around the whole router nobody knows a route yet.
    let service = tower::Layer::layer(&layer, mounted("route", layer.clone()));
    let answer = ask(&service, post("/skus/7")).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer.text().contains("urn:distlock:internal"), "{}", answer.text());
}

#[tokio::test]
async fn fallback_is_locked_if_the_layer_says_so() {
    let client = LockClient::in_memory();
    let layer = LockLayer::new(&client, "layer:<path>");
    let with = |layer| Router::new().fallback(key_of).layer(layer);

    assert_eq!(ask(&with(layer.clone()), post("/x")).await.text(), "unlocked");
    assert_eq!(ask(&with(layer.lock_unmatched()), post("/x")).await.text(), "layer:%2Fx");
}

on_every_store! {
    async fn condition_and_switch_leave_requests_unlocked(store: Store) {
        let (client, key) = (store.client(), unique_key("layer"));
        let layer = LockLayer::new(&client, key.clone()).wait(Duration::ZERO);
        let not_get = |request: &RequestHead<'_>| request.method() != Method::GET;
        let app = |layer| Router::new().route("/", any(key_of).layer(layer));
        let _other = hold(&store.client(), &key).await;

        let sometimes = app(layer.clone().when(not_get));
        assert_eq!(ask(&sometimes, get("/")).await.text(), "unlocked");
        assert_eq!(ask(&sometimes, post("/")).await.status, StatusCode::LOCKED);
        let by_method = app(layer.clone().methods([Method::PUT, Method::DELETE]));
        assert_eq!(ask(&by_method, post("/")).await.text(), "unlocked");
        assert_eq!(ask(&by_method, request("PUT", "/")).await.status, StatusCode::LOCKED);
        assert_eq!(ask(&app(layer.clone().enabled(false)), post("/")).await.text(), "unlocked");
        assert_eq!(ask(&app(layer.enabled(true)), post("/")).await.status, StatusCode::LOCKED);
    }
}

#[tokio::test]
async fn function_makes_the_key_of_what_the_request_says() {
    let client = LockClient::in_memory();
    let key = |request: &RequestHead<'_>| {
        let tenant = request.header("x-tenant")?.to_lowercase();
        let page = request.query("page")?;
        let sku_id: u64 = request.parameter("sku_id")?.parse().unwrap_or_default();
        Ok(lock_key!("layer:<tenant>:<sku_id>:<page>"))
    };
    let layer = LockLayer::with_key(&client, key);
    let app = Router::new().route("/skus/{sku_id}", locked(layer));

    let answer = ask(&app, with_header(post("/skus/07?page=a+b"), "x-tenant", "North")).await;
    assert_eq!(answer.text(), "layer:north:7:a%20b");
    assert_eq!(ask(&app, post("/skus/7?page=1")).await.status, StatusCode::BAD_REQUEST);
}

distlock::lock_template! {
    /// One item of the stock, declared for attribute, code and routes.
    STOCK = "layer:declared:<sku_id as u64>", wait = "0s"
}

#[tokio::test]
async fn declared_lock_brings_its_settings() {
    let client = LockClient::in_memory();
    let app = Router::new().route("/skus/{sku_id}", locked(LockLayer::new(&client, STOCK)));

    assert_eq!(ask(&app, post("/skus/07")).await.text(), STOCK.key(&7).as_str());
    let _held = client.lock(STOCK.key(&7)).acquire().await.unwrap();
    // Its `wait` of zero holds: nothing else would end this call.
    assert_eq!(ask(&app, post("/skus/7")).await.status, StatusCode::LOCKED);
}

#[tokio::test]
async fn handler_sees_its_lock_and_a_get_route_serves_head() {
    let client = LockClient::in_memory();
    let layer = LockLayer::new(&client, "layer:<sku_id as u64>");
    let handler = |held: HeldLock| async move {
        assert!(!held.is_lost() && held.remaining() > Duration::ZERO);
        held.owner().to_owned()
    };
    let app = Router::new().route("/skus/{sku_id}", on_get(handler).route_layer(layer));

    assert!(ask(&app, get("/skus/7")).await.text().starts_with(client.instance()));
    assert_eq!(ask(&app, request("HEAD", "/skus/7")).await.status, StatusCode::OK);
}
