//! Fencing tokens.

use super::*;
use crate::backend::{Drawn, StoreErrorKind};

on_every_store! {
    a_draw_may_take_a_free_lock,
    only_the_owner_draws,
    tokens_grow_from_hold_to_hold,
    tokens_of_one_key_say_nothing_of_another,
}

async fn token(channel: &dyn Channel, lock: &Lock) -> u64 {
    match channel.draw(lock, Some(LEASE)).await.unwrap() {
        Drawn::Token(token) => token,
        other => panic!("no token for {lock:?}: {other:?}"),
    }
}

async fn tokens_grow_from_hold_to_hold(world: &World) {
    let channel = world.channel().await;
    let mut last = 0;
    for owner in ["a", "b", "c"] {
        let ours = lock("k", owner);
        // More than one draw a hold, and more than one a microsecond.
        for _ in 0..20 {
            let next = token(&*channel, &ours).await;
            assert!(next > last, "{next} after {last}");
            assert!(next < 1 << 53, "{next} needs more than 53 bits");
            last = next;
        }
        channel.release(&ours, CLAIM).await.unwrap();
    }
}

async fn only_the_owner_draws(world: &World) {
    let channel = world.channel().await;
    let (ours, theirs) = (lock("k", "ours"), lock("k", "theirs"));
    assert_eq!(channel.draw(&ours, None).await.unwrap(), Drawn::Gone);
    hold(&*channel, &theirs).await;
    for take in [None, Some(LEASE)] {
        let drawn = channel.draw(&ours, take).await.unwrap();
        assert_eq!(drawn, Drawn::HeldBy("theirs".into()));
    }
    world.put_other_type("list");
    let drawn = channel.draw(&lock("list", "ours"), Some(LEASE)).await;
    assert_eq!(kind_of(drawn), StoreErrorKind::Foreign);
}

async fn a_draw_may_take_a_free_lock(world: &World) {
    let channel = world.channel().await;
    let ours = lock("k", "ours");
    token(&*channel, &ours).await;
    assert_eq!(world.get("k").as_deref(), Some("ours"));
    let remaining = channel.inspect(&"k".into()).await.unwrap().unwrap().remaining.unwrap();
    assert!(remaining > LEASE / 2 && remaining <= LEASE, "{remaining:?}");
}

async fn tokens_of_one_key_say_nothing_of_another(world: &World) {
    let channel = world.channel().await;
    for key in ["a", "{a}", "b"] {
        token(&*channel, &lock(key, "ours")).await;
    }
}
