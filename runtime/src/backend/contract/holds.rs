//! One owner and one key: taking, renewing, releasing, looking.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tokio::time::sleep;

use super::*;
use crate::backend::{Holder, Renewal, Renewed};

on_every_store! {
    a_batch_of_renewals_has_an_answer_for_each,
    a_dropped_request_takes_effect_before_the_next_or_never,
    a_foreign_text_with_a_ttl_is_a_holder,
    a_foreign_text_without_ttl_is_no_lock,
    a_held_lock_names_its_owner,
    a_lock_is_free_after_its_lease,
    a_renewal_never_makes_a_ttl_shorter,
    a_renewal_sets_the_ttl,
    a_request_does_nothing_before_it_is_polled,
    a_value_of_another_type_is_no_lock,
    an_inspection_tells_owner_and_time,
    every_way_a_release_can_go,
}

mod granting {
    use super::*;

    on_every_single_store! { any_key_works }
}

async fn a_held_lock_names_its_owner(world: &World) {
    let channel = world.channel().await;
    let (ours, theirs) = (lock("k", "ours"), lock("k", "theirs"));
    hold(&*channel, &ours).await;
    for asking in [&ours, &theirs] {
        let answer = channel.acquire(asking, LEASE).await.unwrap();
        assert_eq!(answer, Acquired::HeldBy("ours".into()));
    }
    assert_eq!(world.get("k").as_deref(), Some("ours"));
}

async fn a_lock_is_free_after_its_lease(world: &World) {
    let channel = world.channel().await;
    channel.acquire(&lock("k", "first"), SHORT).await.unwrap();
    sleep(2 * SHORT).await;
    hold(&*channel, &lock("k", "second")).await;
}

async fn a_renewal_sets_the_ttl(world: &World) {
    let channel = world.channel().await;
    let ours = lock("k", "ours");
    channel.acquire(&ours, LEASE / 3).await.unwrap();
    let renewal = Renewal { lock: ours, lease: LEASE };
    assert_eq!(channel.renew(&[renewal]).await.unwrap(), [Renewed::Renewed]);
    let remaining = channel.inspect(&"k".into()).await.unwrap().unwrap().remaining.unwrap();
    assert!(remaining > LEASE / 2, "{remaining:?}");
    assert!(remaining <= LEASE, "{remaining:?}");
}

/// They may arrive late, and in any order; what was confirmed once stays true.
async fn a_renewal_never_makes_a_ttl_shorter(world: &World) {
    let channel = world.channel().await;
    let ours = lock("k", "ours");
    hold(&*channel, &ours).await;
    let renewal = Renewal { lock: ours, lease: SHORT };
    assert_eq!(channel.renew(&[renewal]).await.unwrap(), [Renewed::Renewed]);
    let holder = channel.inspect(&"k".into()).await.unwrap().unwrap();
    assert!(holder.remaining.unwrap() > LEASE / 2, "{holder:?}");
}

async fn a_batch_of_renewals_has_an_answer_for_each(world: &World) {
    let channel = world.channel().await;
    for key in ["first", "last"] {
        hold(&*channel, &lock(key, "ours")).await;
    }
    hold(&*channel, &lock("taken", "theirs")).await;
    world.put_other_type("type");
    let batch = ["first", "gone", "taken", "type", "last"]
        .map(|key| Renewal { lock: lock(key, "ours"), lease: LEASE });
    assert_eq!(
        channel.renew(&batch).await.unwrap(),
        [Renewed::Renewed, Renewed::Gone, Renewed::Taken, Renewed::Foreign, Renewed::Renewed]
    );
    assert_eq!(channel.renew(&[]).await.unwrap(), []);
}

async fn every_way_a_release_can_go(world: &World) {
    let channel = world.channel().await;
    let ours = lock("k", "ours");
    hold(&*channel, &ours).await;
    let release = async |lock: &Lock| channel.release(lock, CLAIM).await.unwrap();
    assert_eq!(release(&lock("k", "theirs")).await, Released::Taken);
    assert_eq!(release(&ours).await, Released::Freed);
    assert_eq!(release(&ours).await, Released::Gone);
    world.put("text", "theirs", None);
    assert_eq!(release(&lock("text", "ours")).await, Released::Foreign);
    world.put_other_type("type");
    assert_eq!(release(&lock("type", "ours")).await, Released::Foreign);
}

async fn an_inspection_tells_owner_and_time(world: &World) {
    let channel = world.channel().await;
    let key: Arc<str> = "k".into();
    assert_eq!(channel.inspect(&key).await.unwrap(), None);
    hold(&*channel, &lock("k", "ours")).await;
    let holder = channel.inspect(&key).await.unwrap().unwrap();
    assert_eq!(&*holder.owner, "ours");
    assert!(holder.remaining.unwrap() <= LEASE);
    world.put("k", "theirs", None);
    let expected = Holder { owner: "theirs".into(), remaining: None };
    assert_eq!(channel.inspect(&key).await.unwrap(), Some(expected));
}

async fn a_foreign_text_with_a_ttl_is_a_holder(world: &World) {
    let contender = world.contender().await;
    world.put("k", "theirs", Some(LEASE));
    let ours = lock("k", "ours");
    let answer = contender.channel.acquire(&ours, LEASE).await.unwrap();
    assert_eq!(answer, Acquired::HeldBy("theirs".into()));
    let Contended::Queued { holder, remaining, ahead } = contender.contend(&ours).await else {
        panic!("not queued");
    };
    assert_eq!((&*holder, ahead), ("theirs", 0));
    assert!(remaining <= LEASE && remaining > LEASE / 2);
}

async fn a_foreign_text_without_ttl_is_no_lock(world: &World) {
    let contender = world.contender().await;
    world.put("k", "theirs", None);
    let outcome = contender.try_contend(&lock("k", "ours"), KEEP).await;
    assert_eq!(kind_of(outcome), StoreErrorKind::Foreign);
    assert_eq!(world.get("k").as_deref(), Some("theirs"));
}

async fn a_value_of_another_type_is_no_lock(world: &World) {
    let contender = world.contender().await;
    world.put_other_type("k");
    let ours = lock("k", "ours");
    let acquired = contender.channel.acquire(&ours, LEASE).await;
    assert_eq!(kind_of(acquired), StoreErrorKind::Foreign);
    assert_eq!(kind_of(contender.try_contend(&ours, KEEP).await), StoreErrorKind::Foreign);
    assert_eq!(kind_of(contender.channel.inspect(&ours.key).await), StoreErrorKind::Foreign);
    assert!(contender.channel.is_open());
}

async fn any_key_works(world: &World) {
    let (holder, contender) = (world.channel().await, world.contender().await);
    for key in ["{a}b", "a}b", "a{b", "}{", "{}x", "{a", "a", "stock:<7>", "é\n🔒", " ", "\0"] {
        let (first, second) = (lock(key, "first"), lock(key, "second"));
        hold(&*holder, &first).await;
        assert_eq!(contender.queue(&second).await, 0, "{key:?}");
        assert_eq!(holder.release(&first, CLAIM).await.unwrap(), granted_to(&second), "{key:?}");
        contender.hears(Heard::granted(&second)).await;
        assert_eq!(holder.release(&second, CLAIM).await.unwrap(), Released::Freed, "{key:?}");
    }
    assert!(world.is_empty());
}

async fn a_request_does_nothing_before_it_is_polled(world: &World) {
    let channel = world.channel().await;
    let acquiring = channel.acquire(&lock("k", "early"), LEASE);
    hold(&*channel, &lock("k", "first")).await;
    assert_eq!(acquiring.await.unwrap(), Acquired::HeldBy("first".into()));
}

async fn a_dropped_request_takes_effect_before_the_next_or_never(world: &World) {
    let contender = world.contender().await;
    let channel = &contender.channel;
    hold(&**channel, &lock("held", "holder")).await;
    for round in 0..200 {
        let owner = format!("owner {round}");
        let (free, held) = (lock("free", &owner), lock("held", &owner));
        poll_once(channel.acquire(&free, LEASE));
        poll_once(channel.contend(&held, LEASE, KEEP));
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        channel.release(&free, CLAIM).await.unwrap();
        assert_eq!(channel.release(&held, CLAIM).await.unwrap(), Released::Taken);
        assert_eq!(world.get("free"), None);
    }
    assert_eq!(channel.release(&lock("held", "holder"), CLAIM).await.unwrap(), Released::Freed);
    assert!(world.is_empty());
}

fn poll_once<T>(mut future: Pin<Box<dyn Future<Output = T> + Send>>) {
    let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}
