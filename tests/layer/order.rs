//! Where the lock stands in a stack: what comes before it, what it keeps together, what it outlives.
//!
//! From the outside in: trace, authentication, rate limit, **lock**, time-out, transaction, handler.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post as on_post;
use bytes::Bytes;
use distlock::LockClient;
use distlock::layer::LockLayer;
use http::StatusCode;
use http_body_util::Empty;
use tokio::sync::Semaphore;
use tower::retry::{Policy, RetryLayer};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_http::timeout::TimeoutLayer;

use crate::kit::{A_WHILE, Door, SOON, ask, freed, hold, post, with_header};
use crate::support::{CommandLog, RedisServer, eventually, on_every_store, unique_key};

/// Tries again for as long as the answer is 503, each time once the test lets it.
#[derive(Clone, Debug)]
struct WhenTold(Arc<Semaphore>);

impl WhenTold {
    fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    fn tell(&self, tries: usize) {
        self.0.add_permits(tries);
    }
}

impl<B> Policy<http::Request<()>, http::Response<B>, Infallible> for WhenTold {
    type Future = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn retry(
        &mut self,
        _request: &mut http::Request<()>,
        result: &mut Result<http::Response<B>, Infallible>,
    ) -> Option<Self::Future> {
        let failed = result.as_ref().is_ok_and(|r| r.status() == StatusCode::SERVICE_UNAVAILABLE);
        let told = Arc::clone(&self.0);
        failed.then(|| {
            Box::pin(async move { told.acquire().await.unwrap().forget() }) as Self::Future
        })
    }

    fn clone_request(&mut self, _request: &http::Request<()>) -> Option<http::Request<()>> {
        Some(http::Request::new(()))
    }
}

/// Notes for each moment between two tries whether the key is held: by a service that fails twice.
macro_rules! failing_twice {
    ($tries:expr) => {{
        let tries = Arc::clone(&$tries);
        service_fn(move |_: http::Request<()>| {
            let number = tries.fetch_add(1, Ordering::SeqCst);
            async move {
                let mut response = Response::new(Empty::<Bytes>::new());
                if number < 2 {
                    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                }
                Ok::<_, Infallible>(response)
            }
        })
    }};
}

on_every_store! {
    async fn retry_around_the_lock_lets_others_in_between_tries(store: Store) {
        let key = unique_key("layer");
        let (tries, retry) = (Arc::new(AtomicU64::new(0)), WhenTold::new());
        let service = ServiceBuilder::new()
            .layer(RetryLayer::new(retry.clone()))
            .layer(LockLayer::new(&store.client(), key.clone()))
            .service(failing_twice!(tries));
        let asked = tokio::spawn(service.oneshot(http::Request::new(())));

        for number in 1..=2 {
            eventually("a try", SOON, async || tries.load(Ordering::SeqCst) == number).await;
            freed(&store, &key).await;
            hold(&store.client(), &key).await.release().await.unwrap();
            retry.tell(1);
        }

        assert_eq!(asked.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

on_every_store! {
    async fn retry_inside_the_lock_keeps_it_between_tries(store: Store) {
        let key = unique_key("layer");
        let (tries, retry) = (Arc::new(AtomicU64::new(0)), WhenTold::new());
        let service = ServiceBuilder::new()
            .layer(LockLayer::new(&store.client(), key.clone()))
            .layer(RetryLayer::new(retry.clone()))
            .service(failing_twice!(tries));
        let asked = tokio::spawn(service.oneshot(http::Request::new(())));

        eventually("a try", SOON, async || tries.load(Ordering::SeqCst) == 1).await;
        let owner = store.owner_of(&key).await;
        assert!(owner.is_some());
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(store.owner_of(&key).await, owner);
        retry.tell(1);
        eventually("a try", SOON, async || tries.load(Ordering::SeqCst) == 2).await;
        assert_eq!(store.owner_of(&key).await, owner);
        retry.tell(1);

        assert_eq!(asked.await.unwrap().unwrap().status(), StatusCode::OK);
        assert_eq!(store.owner_of(&key).await, None);
    }
}

on_every_store! {
    async fn retry_around_the_lock_also_tries_again_for_the_lock(store: Store) {
        let key = unique_key("layer");
        let lock = LockLayer::new(&store.client(), key.clone()).wait(Duration::ZERO);
        // The answers of the lock are told from those of the service by the user's own status.
        let (refusals, retry) = (Arc::new(AtomicU64::new(0)), WhenTold::new());
        let refused = Arc::clone(&refusals);
        let lock = lock.on_rejected(move |_| {
            refused.fetch_add(1, Ordering::SeqCst);
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
        });
        let service = ServiceBuilder::new()
            .layer(RetryLayer::new(retry.clone()))
            .layer(lock)
            .service(failing_twice!(Arc::new(AtomicU64::new(2))));
        let held = hold(&store.client(), &key).await;
        let asked = tokio::spawn(service.oneshot(http::Request::new(())));
        for number in 1..=3 {
            eventually("a refusal", SOON, async || refusals.load(Ordering::SeqCst) == number).await;
            if number < 3 {
                retry.tell(1);
            }
        }

        held.release().await.unwrap();
        retry.tell(1);

        assert_eq!(asked.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

/// A stock with transactions: what a handler writes is there for others once it is committed.
#[derive(Clone, Default)]
struct Table {
    committed: Arc<Mutex<u64>>,
}

/// Opens a transaction around the handler and commits it afterwards, which takes its time.
async fn in_transaction(table: Table, request: Request, next: Next) -> Response {
    let pending = Arc::new(Mutex::new(None::<u64>));
    let mut request = request;
    request.extensions_mut().insert(Arc::clone(&pending));
    let response = next.run(request).await;
    tokio::time::sleep(Duration::from_millis(2)).await;
    if let Some(value) = pending.lock().unwrap().take() {
        *table.committed.lock().unwrap() = value;
    }
    response
}

/// The classic bug, were it not for the lock: read, think, write.
async fn add_one(table: Table, request: Request) -> &'static str {
    let read = *table.committed.lock().unwrap();
    tokio::task::yield_now().await;
    let pending = request.extensions().get::<Arc<Mutex<Option<u64>>>>().unwrap();
    *pending.lock().unwrap() = Some(read + 1);
    "added"
}

#[derive(Clone, Copy)]
enum Place {
    AroundTheTransaction,
    InsideTheTransaction,
}

fn counter(table: &Table, lock: LockLayer, place: Place) -> Router {
    let (of_handler, of_layer) = (table.clone(), table.clone());
    let transaction = from_fn(move |request, next| in_transaction(of_layer.clone(), request, next));
    let method = on_post(move |request: Request| add_one(of_handler, request));
    let method = match place {
        Place::AroundTheTransaction => method.route_layer(transaction).route_layer(lock),
        Place::InsideTheTransaction => method.route_layer(lock).route_layer(transaction),
    };
    Router::new().route("/", method)
}

/// What is in the table after 100 additions by two clients.
async fn add_up(app: Router, table: &Table) -> u64 {
    let clients = [(); 2].map(|()| {
        let app = app.clone();
        tokio::spawn(async move {
            for _ in 0..50 {
                assert_eq!(ask(&app, post("/")).await.text(), "added");
            }
        })
    });
    for client in clients {
        client.await.unwrap();
    }
    *table.committed.lock().unwrap()
}

on_every_store! {
    async fn lock_outlives_the_commit_of_a_transaction_inside_it(store: Store) {
        let table = Table::default();
        let lock = LockLayer::new(&store.client(), unique_key("layer"));
        assert_eq!(add_up(counter(&table, lock, Place::AroundTheTransaction), &table).await, 100);

        // Why the order matters: the other way round an addition reads before the last one's commit.
        let table = Table::default();
        let lock = LockLayer::new(&store.client(), unique_key("layer"));
        assert!(add_up(counter(&table, lock, Place::InsideTheTransaction), &table).await < 100);
    }
}

on_every_store! {
    async fn time_out_inside_the_lock_counts_the_work_and_frees_the_lock(store: Store) {
        let key = unique_key("layer");
        let door = Door::closed();
        let at_door = door.clone();
        let limit = Duration::from_millis(150);
        let handler = move || async move { at_door.pass().await };
        let app = Router::new().route(
            "/",
            on_post(handler)
                .route_layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, limit))
                .route_layer(LockLayer::new(&store.client(), key.clone())),
        );
        let held = hold(&store.client(), &key).await;
        let asked = tokio::spawn(async move { ask(&app, post("/")).await });
        // Longer than the limit: waiting for the lock is no work.
        tokio::time::sleep(limit * 2).await;
        held.release().await.unwrap();
        door.wait_for_entry(1).await;

        assert_eq!(asked.await.unwrap().status, StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(store.owner_of(&key).await, None);
        assert_eq!((door.inside(), door.finished()), (0, 0));
    }
}

on_every_store! {
    async fn time_out_around_the_lock_counts_the_wait_and_leaves_nothing(store: Store) {
        let key = unique_key("layer");
        let door = Door::open();
        let at_door = door.clone();
        let limit = Duration::from_millis(50);
        let handler = move || async move { at_door.pass().await };
        let app = Router::new().route(
            "/",
            on_post(handler)
                .route_layer(LockLayer::new(&store.client(), key.clone()))
                .route_layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, limit)),
        );
        let held = hold(&store.client(), &key).await;

        assert_eq!(ask(&app, post("/")).await.status, StatusCode::GATEWAY_TIMEOUT);

        held.release().await.unwrap();
        freed(&store, &key).await;
        assert_eq!(door.entered(), 0);
    }
}

async fn only_with_a_pass(request: Request, next: Next) -> Response {
    match request.headers().get("x-pass") {
        Some(_) => next.run(request).await,
        None => StatusCode::UNAUTHORIZED.into_response(),
    }
}

#[tokio::test]
async fn what_stands_before_the_lock_turns_requests_away_without_a_command() {
    let server = RedisServer::start();
    let client = LockClient::connect(&server.url()).await.unwrap();
    let log = CommandLog::start(&server);
    let method = on_post(|| async { "done" })
        .route_layer(LockLayer::new(&client, "layer:all"))
        .route_layer(from_fn(only_with_a_pass));
    let app = Router::new().route("/", method);

    let mark = log.mark();
    assert_eq!(ask(&app, post("/")).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(log.since(mark), [""; 0]);
    assert_eq!(ask(&app, with_header(post("/"), "x-pass", "1")).await.text(), "done");
    assert_ne!(log.since(mark), [""; 0]);
}

#[tokio::test]
async fn lock_around_a_limit_holds_a_place_only_of_its_own_key() {
    // A limit inside the lock: who waits for the lock keeps the place that it was ready with, so the
    // limit belongs outside, where it bounds those who wait as well.
    let client = LockClient::in_memory();
    let door = Door::closed();
    let at_door = door.clone();
    let handler = service_fn(move |_: http::Request<()>| {
        let door = at_door.clone();
        async move {
            door.pass().await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let service = ServiceBuilder::new()
        .concurrency_limit(2)
        .layer(LockLayer::new(&client, "layer:<header:x-tenant>"))
        .service(handler);
    let call = |tenant: &str| {
        let request = http::Request::builder().header("x-tenant", tenant).body(()).unwrap();
        tokio::spawn(service.clone().oneshot(request))
    };
    let calls = [call("a"), call("a")];
    door.wait_for_entry(1).await;
    // Both places are taken: by the one at work, and by the one that waits for it.
    let third = call("b");
    tokio::task::yield_now().await;
    assert_eq!(door.entered(), 1);

    door.let_in(3);

    for call in calls.into_iter().chain([third]) {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn two_layers_of_two_keys_are_held_together() {
    let client = LockClient::in_memory();
    let inner = LockLayer::new(&client, "layer:b");
    let outer = LockLayer::new(&client, "layer:a");
    let holders = client.clone();
    let service = outer.layer(inner.layer(service_fn(move |_: http::Request<()>| {
        let client = holders.clone();
        async move {
            for key in ["layer:a", "layer:b"] {
                let key = distlock::LockKey::literal(key);
                assert!(client.holder(key).await.unwrap().is_some());
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    })));

    service.oneshot(http::Request::new(())).await.unwrap();
}
