//! The lock in the handler's hands.

use std::time::Duration;

use axum::Router;
use axum::routing::post as on_post;
use distlock::layer::LockLayer;
use distlock::{HeldLock, LockClient, LockError, LockErrorKind, OnLost, distributed_lock};
use http::{Extensions, StatusCode};

use crate::kit::{ask, hold, post};
use crate::support::{on_every_store, unique_key};

on_every_store! {
    async fn handler_learns_of_the_loss_if_it_is_only_signalled(store: Store) {
        let key = unique_key("layer");
        let layer = LockLayer::new(&store.client(), key.clone())
            .lease(Duration::from_millis(1_500))
            .on_lost(OnLost::Signal);
        let (other, its_key) = (store.clone(), key.clone());
        let handler = move |held: HeldLock| async move {
            other.remove(&its_key).await;
            held.lost().await;
            format!("{} {:?}", held.is_lost(), held.remaining())
        };
        let app = Router::new().route("/", on_post(handler).route_layer(layer));

        assert_eq!(ask(&app, post("/")).await.text(), "true 0ns");
    }
}

on_every_store! {
    async fn handler_has_a_fencing_token_that_grows_with_each_request(store: Store) {
        let key = unique_key("layer");
        let layer = LockLayer::new(&store.client(), key).fencing();
        let handler = |held: HeldLock| async move {
            held.fencing_token().await.map(|token| token.get().to_string())
        };
        let app = Router::new().route("/", on_post(handler).route_layer(layer));

        let mut tokens = Vec::new();
        for _ in 0..3 {
            tokens.push(ask(&app, post("/")).await.text().parse::<u64>().unwrap());
        }

        assert!(tokens[0] < tokens[1] && tokens[1] < tokens[2], "{tokens:?}");
    }
}

#[tokio::test]
async fn innermost_of_several_locks_is_the_one_in_hand() {
    let client = LockClient::in_memory();
    let handler = |held: HeldLock| async move { held.key().to_owned() };
    let method = on_post(handler)
        .route_layer(LockLayer::new(&client, "layer:inner"))
        .route_layer(LockLayer::new(&client, "layer:outer"));

    let answer = ask(&Router::new().route("/", method), post("/")).await;

    assert_eq!(answer.text(), "layer:inner");
}

#[test]
fn request_without_a_lock_says_how_to_mount_one() {
    let error = HeldLock::of_request(&Extensions::new()).unwrap_err();

    assert_eq!(error.kind(), LockErrorKind::Config);
    assert!(error.to_string().contains("route_layer(LockLayer::new("), "{error}");
}

#[distributed_lock(key = "layer:attribute", client = client, wait = "0s")]
async fn attributed(client: &LockClient) -> Result<&'static str, LockError> {
    let _ = client;
    Ok("done")
}

on_every_store! {
    async fn error_of_an_attribute_is_answered_like_one_of_the_layer(store: Store) {
        let client = store.client();
        // Tests run side by side on one server: the key of an attribute is fixed.
        let client = match &store {
            crate::support::Store::Memory(_) | crate::support::Store::Quorum(_) => client,
            crate::support::Store::Redis(_) => {
                store.builder().namespace(unique_key("layer")).build().unwrap()
            }
        };
        let inner = client.clone();
        let handler = move || {
            let client = inner.clone();
            async move { attributed(&client).await }
        };
        let app = Router::new().route("/", on_post(handler));
        assert_eq!(ask(&app, post("/")).await.text(), "done");

        let _held = hold(&client, "layer:attribute").await;
        let answer = ask(&app, post("/")).await;

        assert_eq!(answer.status, StatusCode::LOCKED);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    }
}
