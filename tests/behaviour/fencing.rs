//! Fencing tokens as a storage sees them: a stale holder's write is refused.

use std::sync::{Arc, Mutex};

use distlock::{FencingToken, LockClient, LockErrorKind};
use redis::AsyncCommands;

use crate::common::{LONG, LockText, freed, ms};
use crate::support::{Data, RedisServer, Store, on_every_store, unique_key};

on_every_store! {
    tokens_grow_from_hold_to_hold,
    token_is_the_same_for_all_who_are_inside,
    token_drawn_with_the_grant_and_one_drawn_later_are_in_one_order,
    stale_holder_is_refused_by_the_storage,
    lost_lock_gets_no_token,
}

/// A storage that keeps the highest token it has seen.
#[derive(Default)]
struct Fenced(Mutex<Option<FencingToken>>);

impl Fenced {
    fn write(&self, token: FencingToken) -> bool {
        let mut last = self.0.lock().unwrap();
        let accepted = last.is_none_or(|last| token >= last);
        if accepted {
            *last = Some(token);
        }
        accepted
    }
}

async fn token_of(client: &LockClient, key: &str) -> FencingToken {
    let call = client.on(key).wait(LONG).run(|held| async move { held.fencing_token().await });
    call.await.unwrap().unwrap()
}

async fn tokens_grow_from_hold_to_hold(store: Store) {
    let key = unique_key("tokens");
    let clients = [store.client(), store.client()];
    let mut last = token_of(&clients[0], &key).await;
    for round in 0..20 {
        let token = token_of(&clients[round % 2], &key).await;
        assert!(token > last, "{token:?} after {last:?}");
        last = token;
    }
    assert!(last.get() < 1 << 53);

    // Waiters of one client, to whom the lock may be passed on without a command.
    let tokens: Mutex<Vec<FencingToken>> = Mutex::default();
    let calls = (0..20).map(|_| {
        clients[0].on(&key).wait(LONG).run(|held| {
            let tokens = &tokens;
            async move {
                let token = held.fencing_token().await.unwrap();
                tokens.lock().unwrap().push(token);
            }
        })
    });
    for outcome in futures_util::future::join_all(calls).await {
        outcome.unwrap();
    }
    let tokens = tokens.into_inner().unwrap();
    assert!(tokens[0] > last && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

async fn token_is_the_same_for_all_who_are_inside(store: Store) {
    let (key, client) = (unique_key("same-token"), store.client());
    let call = client.on(&key).fencing().run(|held| async {
        let held = held;
        let nested = client.on(&key).run(|held| async move { held.fencing_token().await });
        let nested = nested.await.unwrap().unwrap();
        (held.fencing_token().await.unwrap(), nested, held.fencing_token().await.unwrap())
    });

    let (first, nested, again) = call.await.unwrap();

    assert_eq!((first, first), (nested, again));
}

async fn token_drawn_with_the_grant_and_one_drawn_later_are_in_one_order(store: Store) {
    let (key, client) = (unique_key("mixed-tokens"), store.client());
    let mut last = None;
    for round in 0..10 {
        let request = client.on(&key);
        let request = if round % 2 == 0 { request.fencing() } else { request };
        let token = request.run(|held| async move { held.fencing_token().await });
        let token = token.await.unwrap().unwrap();
        assert!(last.is_none_or(|last| token > last), "{token:?} after {last:?}");
        last = Some(token);
    }
}

/// a7, a15.
async fn stale_holder_is_refused_by_the_storage(store: Store) {
    let (key, storage) = (unique_key("stale"), Fenced::default());
    let stale = store.client().on(&key).fencing().acquire().await.unwrap();
    let token = stale.fencing_token().await.unwrap();
    assert!(storage.write(token));
    // As if the holder had been frozen past its lease.
    store.remove(&key).await;

    let next = store.client().on(&key).acquire().await.unwrap();
    assert!(storage.write(next.fencing_token().await.unwrap()));

    assert!(!storage.write(token), "the late write of the first one");
    assert!(storage.write(next.fencing_token().await.unwrap()));
}

async fn lost_lock_gets_no_token(store: Store) {
    let (key, client) = (unique_key("no-token"), store.client());
    let guard = client.on(&key).lease(ms(1_500)).acquire().await.unwrap();
    store.put_foreign(&key, "intruder", Some(ms(60_000))).await;

    // Whether the loss is known yet or not.
    assert!(guard.fencing_token().await.is_err());
    guard.lost().await;
    let error = guard.fencing_token().await.unwrap_err();

    assert_eq!(error.kind(), LockErrorKind::Lost { completed: false }, "{error}");
}

// On Redis alone.

#[tokio::test]
async fn tokens_grow_over_the_loss_of_the_counter() {
    let server = RedisServer::start();
    let client = LockClient::builder().url(server.url()).build().unwrap();
    let key = unique_key("counter");
    let first = token_of(&client, &key).await;

    let mut connection = server.connection().await;
    redis::cmd("FLUSHALL").exec_async(&mut connection).await.unwrap();
    let second = token_of(&client, &key).await;
    server.restart(Data::Lost);
    let third = token_of(&client, &key).await;

    assert!(first < second && second < third, "{first:?} {second:?} {third:?}");
}

/// R15: the grant is the first of two steps, of which the second one fails.
#[tokio::test]
async fn grant_whose_token_cannot_be_drawn_is_given_back() {
    // Its own, since the counter serves all of a server's keys.
    let server = Arc::new(RedisServer::start());
    let store = Store::Redis(Arc::clone(&server));
    let (key, client) = (unique_key("clobbered"), store.client());
    let mut connection = server.connection().await;
    let (): () = connection.rpush("distlock:fence", "no counter").await.unwrap();

    for wait in [ms(0), ms(500)] {
        let outcome = client.on(&key).fencing().wait(wait).acquire().await;
        assert!(outcome.is_err());
        freed(&store, &key).await;
    }
}
