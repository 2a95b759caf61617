//! `#[distributed_lock]` on handlers of axum: extractors in their patterns, with and without
//! `#[debug_handler]`, and the lock held while they run.

#![deny(warnings)]

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router, debug_handler};
use distlock::{HeldLock, LockClient, LockError, LockKey, distributed_lock};
use http::{Request, StatusCode};
use serde::Deserialize;
use tower::ServiceExt;

struct Shop {
    locks: LockClient,
}

impl Shop {
    async fn answer(&self, key: &str) -> String {
        let held = self.locks.holder(LockKey::literal(key.to_owned())).await.unwrap().is_some();
        format!("{key} {}", if held { "held" } else { "free" })
    }
}

#[derive(Debug)]
struct Failure(LockError);

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (StatusCode::CONFLICT, self.0.to_string()).into_response()
    }
}

#[derive(Deserialize)]
struct Order {
    sku: u64,
    #[expect(dead_code, reason = "the pattern leaves it out")]
    note: String,
}

#[derive(Deserialize)]
struct Page {
    page: u32,
}

#[distributed_lock(key = "axum:<sku>:<name>", client = shop.locks)]
async fn plain(
    State(shop): State<Arc<Shop>>,
    Path(name): Path<String>,
    Json(Order { sku, .. }): Json<Order>,
) -> Result<String, Failure> {
    Ok(shop.answer(&format!("axum:{sku}:{name}")).await)
}

#[distributed_lock(key = "axum:<sku>:<name>", client = shop.locks)]
#[debug_handler]
async fn above(
    State(shop): State<Arc<Shop>>,
    Path(name): Path<String>,
    Json(Order { sku, .. }): Json<Order>,
) -> Result<String, Failure> {
    Ok(shop.answer(&format!("axum:{sku}:{name}")).await)
}

#[debug_handler]
#[distributed_lock(key = "axum:<sku>:<name>", client = shop.locks)]
async fn below(
    State(shop): State<Arc<Shop>>,
    Path(name): Path<String>,
    Json(Order { sku, .. }): Json<Order>,
) -> Result<impl IntoResponse, Failure> {
    Ok(shop.answer(&format!("axum:{sku}:{name}")).await)
}

#[distributed_lock(
    key = "axum:<page>:<name>",
    client = shop.locks,
    guard = held,
    fallback_with = |error| (StatusCode::CONFLICT, error.to_string()).into_response(),
)]
#[debug_handler]
async fn any_response(
    State(shop): State<Arc<Shop>>,
    Path((_, name)): Path<(u64, String)>,
    Query(Page { page }): Query<Page>,
    request: Request<Body>,
) -> Response {
    let held: HeldLock = held;
    assert_eq!(request.uri().query(), Some(&*format!("page={page}")));
    assert!(held.key().ends_with(&name));
    shop.answer(held.key()).await.into_response()
}

fn app() -> (Arc<Shop>, Router) {
    let shop = Arc::new(Shop { locks: LockClient::in_memory() });
    let app = Router::new()
        .route("/plain/{name}", post(plain))
        .route("/above/{name}", post(above))
        .route("/below/{name}", post(below))
        .route("/any/{id}/{name}", post(any_response))
        .with_state(Arc::clone(&shop));
    (shop, app)
}

async fn ask(app: &Router, path: &str) -> (StatusCode, String) {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(r#"{"sku": 7, "note": "n"}"#))
        .unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1024).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn handlers_run_under_the_lock_of_their_extractors() {
    let (_, app) = app();

    for path in ["/plain/x", "/above/x", "/below/x"] {
        assert_eq!(ask(&app, path).await, (StatusCode::OK, "axum:7:x held".into()), "{path}");
    }
    assert_eq!(ask(&app, "/any/1/x?page=3").await, (StatusCode::OK, "axum:3:x held".into()));
}

#[tokio::test(start_paused = true)]
async fn a_refused_lock_is_the_response_that_the_error_makes() {
    let (shop, app) = app();
    let _taken = shop
        .locks
        .lock_all(["axum:7:x", "axum:3:x"].map(LockKey::literal))
        .acquire()
        .await
        .unwrap();

    for path in ["/plain/x", "/above/x", "/below/x", "/any/1/x?page=3"] {
        assert_eq!(ask(&app, path).await.0, StatusCode::CONFLICT, "{path}");
    }
}
