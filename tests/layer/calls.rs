//! The lock around services that do not speak HTTP.

use std::convert::Infallible;
use std::time::Duration;

use distlock::layer::LockCallsLayer;
use distlock::{LockClient, LockError, LockErrorKind, LockKey, LockOptions, lock_key};
use tower::{Layer, ServiceExt, service_fn};

use crate::kit::{Door, SOON, hold};
use crate::support::{eventually, on_every_store, unique_key};

on_every_store! {
    async fn calls_of_one_key_run_one_at_a_time(store: Store) {
        let prefix = unique_key("layer");
        let door = Door::closed();
        let at_door = door.clone();
        let service = service_fn(move |id: u64| {
            let door = at_door.clone();
            async move {
                door.pass().await;
                Ok::<_, LockError>(id)
            }
        });
        let key = move |id: &u64| {
            let (prefix, id) = (LockKey::literal(prefix.clone()), *id);
            lock_key!("<prefix>:<id>")
        };
        let service = LockCallsLayer::new(&store.client(), key, Err).layer(service);
        let calls = [7, 7, 7].map(|id| tokio::spawn(service.clone().oneshot(id)));
        for number in 1..=3 {
            door.wait_for_entry(number).await;
            door.let_in(1);
        }

        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), 7);
        }
        assert_eq!(door.most(), 1);
    }
}

on_every_store! {
    async fn refusal_and_loss_are_made_an_outcome_by_the_fallback(store: Store) {
        let key = unique_key("layer");
        let fixed = key.clone();
        let service = service_fn(|()| std::future::pending::<Result<_, Infallible>>());
        let layer = LockCallsLayer::new(
            &store.client(),
            move |(): &()| Ok::<_, LockError>(LockKey::literal(fixed.clone())),
            |error: LockError| Ok(error.kind()),
        );
        let options = LockOptions::new().wait(Duration::ZERO).lease(Duration::from_millis(1_500));
        let service = layer.options(options).layer(service);

        let held = hold(&store.client(), &key).await;
        assert_eq!(service.clone().oneshot(()).await, Ok(LockErrorKind::Timeout));
        held.release().await.unwrap();
        let running = tokio::spawn(service.clone().oneshot(()));
        eventually("it runs", SOON, async || store.owner_of(&key).await.is_some()).await;
        store.remove(&key).await;
        let lost = running.await.unwrap();
        assert_eq!(lost, Ok(LockErrorKind::Lost { completed: false }));
    }
}

#[tokio::test]
async fn dropped_call_releases() {
    let client = LockClient::in_memory();
    let service = service_fn(|()| std::future::pending::<Result<(), Infallible>>());
    let layer = LockCallsLayer::new(&client, |(): &()| LockKey::literal("layer:calls"), |_| Ok(()));
    let call = tokio::spawn(layer.layer(service).oneshot(()));
    let holder = async || client.holder(LockKey::literal("layer:calls")).await.unwrap();
    eventually("it runs", SOON, async || holder().await.is_some()).await;

    call.abort();

    eventually("the lock is free", SOON, async || holder().await.is_none()).await;
}
