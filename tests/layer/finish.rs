//! `FinishLayer`: a handler that has begun runs to its end, whoever leaves.

use std::time::Duration;

use axum::Router;
use axum::routing::post as on_post;
use distlock::layer::{FinishLayer, Hold, LockLayer};
use distlock::{LockClient, LockKey, OnLost};
use http::StatusCode;

use crate::kit::{A_WHILE, Door, SOON, ask, freed, hold, post};
use crate::support::{Store, eventually, on_every_store, unique_key};

fn app(layer: LockLayer, door: &Door) -> Router {
    let door = door.clone();
    let handler = move || async move {
        door.pass().await;
        "finished"
    };
    Router::new().route("/", on_post(handler).route_layer(FinishLayer::new()).route_layer(layer))
}

async fn is_free(store: &Store, key: &str) -> bool {
    store.owner_of(key).await.is_none()
}

on_every_store! {
    async fn handler_whose_client_leaves_finishes_under_its_lock(store: Store) {
        let key = unique_key("layer");
        for until in [Hold::UntilResponse, Hold::UntilBodyEnd] {
            let door = Door::closed();
            let app = app(LockLayer::new(&store.client(), key.clone()).hold(until), &door);
            let asked = tokio::spawn(async move { ask(&app, post("/")).await });
            door.wait_for_entry(1).await;

            asked.abort();
            assert!(asked.await.is_err());
            tokio::time::sleep(A_WHILE).await;
            assert!(!is_free(&store, &key).await);
            door.let_in(1);

            eventually("the handler is done", SOON, async || door.finished() == 1).await;
            freed(&store, &key).await;
        }
    }
}

on_every_store! {
    async fn client_that_stays_gets_the_response_and_the_lock_is_free_by_then(store: Store) {
        let key = unique_key("layer");
        let app = app(LockLayer::new(&store.client(), key.clone()), &Door::open());

        assert_eq!(ask(&app, post("/")).await.text(), "finished");
        assert!(is_free(&store, &key).await);
    }
}

on_every_store! {
    async fn client_that_leaves_while_it_waits_ends_the_wait(store: Store) {
        let key = unique_key("layer");
        let door = Door::open();
        let app = app(LockLayer::new(&store.client(), key.clone()).wait(SOON), &door);
        let held = hold(&store.client(), &key).await;
        let asked = tokio::spawn(async move { ask(&app, post("/")).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        asked.abort();
        assert!(asked.await.is_err());

        held.release().await.unwrap();

        freed(&store, &key).await;
        assert_eq!(door.entered(), 0);
    }
}

on_every_store! {
    async fn lost_lock_stops_the_handler_with_and_without_a_client(store: Store) {
        let key = unique_key("layer");
        let door = Door::closed();
        let layer = LockLayer::new(&store.client(), key.clone()).lease(Duration::from_millis(1_500));
        let app = app(layer, &door);
        for client_stays in [true, false] {
            let entered = door.entered();
            let asked = tokio::spawn({
                let app = app.clone();
                async move { ask(&app, post("/")).await }
            });
            door.wait_for_entry(entered + 1).await;
            if !client_stays {
                asked.abort();
            }

            store.remove(&key).await;

            eventually("the handler is dropped", SOON, async || door.inside() == 0).await;
            if client_stays {
                let answer = asked.await.unwrap();
                assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
                assert!(answer.text().contains("urn:distlock:lost"), "{}", answer.text());
            }
        }
        assert_eq!(door.finished(), 0);
    }
}

on_every_store! {
    async fn handler_runs_on_after_a_loss_that_is_only_signalled(store: Store) {
        let key = unique_key("layer");
        let door = Door::closed();
        let layer = LockLayer::new(&store.client(), key.clone()).lease(Duration::from_millis(1_500));
        let app = app(layer.on_lost(OnLost::Signal), &door);
        let asked = tokio::spawn(async move { ask(&app, post("/")).await });
        door.wait_for_entry(1).await;

        store.remove(&key).await;
        // By then it is lost, by a renewal or since none was confirmed.
        tokio::time::sleep(Duration::from_millis(1_600)).await;
        door.let_in(1);

        assert_eq!(asked.await.unwrap().text(), "finished");
    }
}

on_every_store! {
    async fn task_reenters_the_lock(store: Store) {
        let (client, key) = (store.client(), unique_key("layer"));
        let nested = (client.clone(), key.clone());
        let handler = move || {
            let (client, key) = nested.clone();
            let request = client.lock(LockKey::literal(key)).wait(Duration::ZERO);
            async move { request.run(|held| async move { held.owner().to_owned() }).await.unwrap() }
        };
        let method = on_post(handler).route_layer(FinishLayer::new());
        let app = Router::new().route("/", method.route_layer(LockLayer::new(&client, key)));

        assert!(ask(&app, post("/")).await.text().starts_with(client.instance()));
    }
}

on_every_store! {
    async fn task_reenters_the_lock_after_its_client_has_left(store: Store) {
        let (client, key) = (store.client(), unique_key("layer"));
        let (entered, door) = (Door::open(), Door::closed());
        let nested = (client.clone(), key.clone(), entered.clone(), door.clone());
        let handler = move || {
            let (client, key, entered, door) = nested.clone();
            async move {
                door.pass().await;
                let request = client.lock(LockKey::literal(key)).wait(Duration::ZERO);
                request.run(|_| async move { entered.pass().await }).await.unwrap();
            }
        };
        let method = on_post(handler).route_layer(FinishLayer::new());
        let app = Router::new().route("/", method.route_layer(LockLayer::new(&client, key.clone())));
        let asked = tokio::spawn(async move { ask(&app, post("/")).await });
        door.wait_for_entry(1).await;

        asked.abort();
        assert!(asked.await.is_err());
        door.let_in(1);

        eventually("it has entered", SOON, async || entered.finished() == 1).await;
        freed(&store, &key).await;
    }
}

#[tokio::test]
async fn panic_in_the_task_is_the_caller_s() {
    let client = LockClient::in_memory();
    let method = on_post(|| async {
        if true {
            panic!("the handler's own")
        }
    });
    let method = method.route_layer(FinishLayer::new());
    let app = Router::new().route("/", method.route_layer(LockLayer::new(&client, "layer")));

    let asked = tokio::spawn(async move { ask(&app, post("/")).await }).await;

    assert!(asked.unwrap_err().is_panic());
}

#[tokio::test]
async fn request_without_a_lock_is_passed_on_as_it_is() {
    let client = LockClient::in_memory();
    let door = Door::closed();
    let app = app(LockLayer::new(&client, "layer").enabled(false), &door);
    let asked = tokio::spawn(async move { ask(&app, post("/")).await });
    door.wait_for_entry(1).await;

    asked.abort();

    eventually("the handler is dropped", SOON, async || door.inside() == 0).await;
    assert_eq!(door.finished(), 0);
}
