//! `release = "background"`: the call returns when its body is done, and the lock goes all the same.

use std::sync::Mutex;

use distlock::{HeldLock, LockClient, LockErrorKind, LockRequest, Release};
use tokio::runtime::{Builder, Handle};
use tokio::time::Instant;

use crate::common::{Inside, LONG, LockText, SLACK, SOON, StandsNow, freed, literal, ms, queued};
use crate::support::{Proxy, RedisServer, Store, eventually, on_every_store, unique_key};

fn in_background(client: &LockClient, key: &str) -> LockRequest {
    client.on(key).lease(LONG).release(Release::Background)
}

on_every_store! {
    lock_is_released_soon_after_the_call,
    next_call_of_the_process_has_it_at_once,
    other_client_gets_it_by_the_release,
    callers_exclude_each_other,
    locals_are_dropped_before_the_release,
    several_keys_and_guards_are_released,
    lapsed_lock_is_no_error,
    shutdown_waits_for_releases_under_way,
    strict_is_refused,
}

async fn lock_is_released_soon_after_the_call(store: Store) {
    let (key, client) = (unique_key("background"), store.client());

    assert_eq!(in_background(&client, &key).run(|_| async { 7 }).await.unwrap(), 7);

    freed(&store, &key).await;
}

async fn next_call_of_the_process_has_it_at_once(store: Store) {
    let (key, client) = (unique_key("background-next"), store.client());
    for round in 0..200 {
        // One try each.
        let call = in_background(&client, &key).wait(ms(0)).run(|_| async {});
        call.await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        if round % 20 == 0 {
            let guard = client.on(&key).try_acquire().await.unwrap();
            guard.expect("it is free").release().await.unwrap();
        }
    }
    freed(&store, &key).await;
}

async fn other_client_gets_it_by_the_release(store: Store) {
    let (key, client, other) = (unique_key("background-other"), store.client(), store.client());
    let guard = in_background(&client, &key).acquire().await.unwrap();
    let waiter = tokio::spawn(other.on(&key).wait(LONG / 2).acquire());
    queued(&store, &key, 1).await;
    let start = Instant::now();

    guard.release().await.unwrap();

    let guard = waiter.await.unwrap().unwrap();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    guard.release().await.unwrap();
}

async fn callers_exclude_each_other(store: Store) {
    let (key, inside) = (unique_key("background-many"), Inside::default());
    let clients = [store.client(), store.client()];
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let (client, key, inside) = (clients[task % 2].clone(), key.clone(), inside.clone());
            tokio::spawn(async move {
                for _ in 0..20 {
                    let call = in_background(&client, &key).wait(LONG).run(|_| async {
                        let _visit = inside.enter();
                        tokio::task::yield_now().await;
                    });
                    call.await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }

    assert_eq!((inside.total(), inside.most()), (320, 1));
    freed(&store, &key).await;
}

/// Looks, when it is dropped, whether the key is still held by `owner`.
struct LastLook<'a> {
    stands: &'a StandsNow,
    held: HeldLock,
    seen: &'a Mutex<Vec<bool>>,
}

impl Drop for LastLook<'_> {
    fn drop(&mut self) {
        let held = self.stands.owner().as_deref() == Some(self.held.owner());
        self.seen.lock().unwrap().push(held && !self.held.is_lost());
    }
}

async fn locals_are_dropped_before_the_release(store: Store) {
    let (key, client) = (unique_key("background-order"), store.client());
    let (stands, seen) = (StandsNow::of(&store, &key), Mutex::new(Vec::new()));
    let body = |held: HeldLock| {
        let captured = LastLook { stands: &stands, held: held.clone(), seen: &seen };
        let (stands, seen) = (&stands, &seen);
        async move {
            let _local = LastLook { stands, held, seen };
            tokio::task::yield_now().await;
            let _captured = &captured;
        }
    };

    in_background(&client, &key).run(body).await.unwrap();

    assert_eq!(*seen.lock().unwrap(), [true; 2]);
    freed(&store, &key).await;
}

async fn several_keys_and_guards_are_released(store: Store) {
    let keys = ["a", "b", "c"].map(unique_key);
    let client = store.client();
    let all = || {
        let request = client.lock_all(keys.iter().map(|key| literal(key)));
        request.lease(LONG).release(Release::Background)
    };

    all().run(|_| async {}).await.unwrap();
    for key in &keys {
        freed(&store, key).await;
    }
    let guard = all().acquire().await.unwrap();
    let held = (*guard).clone();
    guard.release().await.unwrap();

    assert!(held.is_lost());
    for key in &keys {
        freed(&store, key).await;
    }
}

async fn lapsed_lock_is_no_error(store: Store) {
    let (key, client) = (unique_key("background-lapsed"), store.client());
    let call = in_background(&client, &key).run(|_| async {
        store.remove(&key).await;
        store.put_foreign(&key, "another one's", Some(LONG)).await;
        7
    });

    assert_eq!(call.await.unwrap(), 7);

    client.shutdown(SOON).await.unwrap();
    assert_eq!(store.owner_of(&key).await.as_deref(), Some("another one's"));
}

async fn shutdown_waits_for_releases_under_way(store: Store) {
    let (key, client) = (unique_key("background-shutdown"), store.client());
    in_background(&client, &key).run(|_| async {}).await.unwrap();

    client.shutdown(SOON).await.unwrap();

    assert_eq!(store.owner_of(&key).await, None);
}

async fn strict_is_refused(store: Store) {
    let (key, client) = (unique_key("background-strict"), store.client());

    let error = in_background(&client, &key).strict().acquire().await.unwrap_err();

    assert_eq!(error.kind(), LockErrorKind::Config);
    assert!(error.to_string().contains("leave one of the two out"), "{error}");
    assert!(store.builder().release(Release::Background).strict().build().is_err());
}

/// A server with a proxy in front of it, a client behind the proxy, and a key.
struct Scene {
    store: Store,
    proxy: Proxy,
    client: LockClient,
    key: String,
}

impl Scene {
    fn new() -> Self {
        let server = RedisServer::shared();
        let proxy = Proxy::start(server.address());
        let client = LockClient::builder().url(proxy.url()).response_timeout(SOON).build().unwrap();
        Self { store: Store::Redis(server), proxy, client, key: unique_key("background") }
    }

    fn request(&self) -> LockRequest {
        in_background(&self.client, &self.key)
    }

    /// Connects what the client needs, so that the next release is the test's.
    async fn warm(&self) {
        self.request().run(|_| async {}).await.unwrap();
        eventually("all is quiet", SOON, async || self.releases() == 1).await;
        freed(&self.store, &self.key).await;
    }

    fn releases(&self) -> usize {
        let requests = self.proxy.requests();
        requests.iter().filter(|request| request.contains(&self.key) && is_script(request)).count()
    }
}

fn is_script(request: &str) -> bool {
    request.to_ascii_uppercase().starts_with("EVAL")
}

#[tokio::test]
async fn call_returns_before_the_answer_to_its_release() {
    let scene = Scene::new();
    scene.warm().await;
    let gate = scene.proxy.hold_next_reply("EVALSHA");

    scene.request().run(|_| async {}).await.unwrap();

    gate.reached().await;
    freed(&scene.store, &scene.key).await;
    gate.open();
}

/// Follows its release on the same connection: a round trip for each call, though all are on one key.
#[tokio::test]
async fn call_takes_one_round_trip() {
    let scene = Scene::new();
    scene.warm().await;
    let trip = ms(800);
    scene.proxy.delay_replies(trip);
    let start = Instant::now();

    for _ in 0..4 {
        scene.request().wait(ms(0)).run(|_| async {}).await.unwrap();
    }

    let took = start.elapsed();
    assert!(took >= 4 * trip && took < 4 * trip + SLACK, "{took:?} for 4 calls");
}

/// A second task at each call would wake a second thread to share the work.
#[tokio::test]
async fn answer_to_a_release_needs_no_task() {
    let scene = Scene::new();
    scene.warm().await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    // The one that reads, and for some time after a request the one that finds out what is late.
    let of_the_connection = 2;
    eventually("no other is left", SOON, async || tasks() <= of_the_connection).await;

    for round in 0..20 {
        scene.request().run(|_| async {}).await.unwrap();
        assert!(tasks() <= of_the_connection, "{} in round {round}", tasks());
    }
    freed(&scene.store, &scene.key).await;
}

/// It takes more than one answer.
#[tokio::test]
async fn release_whose_script_the_server_forgot_goes_on() {
    let scene = Scene::new();
    scene.warm().await;
    scene.proxy.answer_next("EVALSHA", "-NOSCRIPT No matching script");

    scene.request().run(|_| async {}).await.unwrap();

    freed(&scene.store, &scene.key).await;
    eventually("it was sent in full", SOON, async || {
        let requests = scene.proxy.requests();
        requests.iter().any(|request| request.starts_with("EVAL ") && request.contains(&scene.key))
    })
    .await;
    scene.client.shutdown(SOON).await.unwrap();
}

/// Releases that get no answer by the caller's connection, for each reason that there is.
#[tokio::test]
async fn unanswered_release_is_repeated() {
    type Fault = fn(&Proxy);
    let faults: [(&str, Fault); 3] = [
        ("reply lost", |proxy| proxy.drop_next_reply("EVALSHA")),
        ("reply cut", |proxy| proxy.cut_at_next_reply("EVALSHA")),
        ("request cut", |proxy| proxy.cut_at_next_request("EVALSHA")),
    ];
    for (fault, make) in faults {
        let scene = Scene::new();
        scene.warm().await;
        make(&scene.proxy);

        scene.request().run(|_| async {}).await.unwrap();

        freed(&scene.store, &scene.key).await;
        eventually(fault, SOON, async || scene.releases() >= 3).await;
        // And it is over with that.
        scene.client.shutdown(SOON).await.unwrap();
    }
}

/// Another connection overtakes the release: what it meets there is on its way out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_that_overtakes_the_release_waits_for_it() {
    let scene = Scene::new();
    scene.warm().await;
    let gate = scene.proxy.hold_next_request("EVALSHA");
    scene.request().run(|_| async {}).await.unwrap();
    gate.reached().await;
    let (client, key) = (scene.client.clone(), scene.key.clone());

    let other_runtime = tokio::task::spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let guard = client.on(&key).try_acquire().await.unwrap();
            guard.expect("nobody else wants it").release().await.unwrap();
        });
    });

    other_runtime.await.unwrap();
    gate.open();
}
