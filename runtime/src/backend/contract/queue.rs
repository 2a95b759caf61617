//! Several contenders for one key.

use super::*;
use crate::backend::Drawn;

mod everywhere {
    use super::*;

    on_every_store! {
        a_contender_takes_a_free_lock,
        contending_needs_a_listening_channel,
        nothing_stays_behind,
        nothing_stays_behind_of_the_dead,
    }
}

mod told {
    use super::*;

    on_every_single_store! {
        a_counter_is_raised_by_the_owner_only_and_never_lowered,
        a_release_with_a_claim_of_zero_frees_and_tells_nobody,
        a_round_has_its_contenders_place,
        the_first_two_in_line_are_told_of_a_free_lock,
        who_cannot_hear_is_not_told_of_a_free_lock,
    }
}

on_every_single_store! {
    a_grant_lasts_for_the_claim,
    a_place_ends_with_its_time,
    a_refresh_keeps_the_place,
    a_release_by_a_waiting_owner_gives_up_its_place,
    an_owner_that_contends_again_has_the_lock,
    an_owner_with_a_place_leaves_it_with_the_lock,
    contenders_get_the_lock_in_order,
    many_contenders_all_get_their_turn,
    only_the_one_concerned_is_told,
    the_contender_after_the_next_is_told_of_the_claim,
    with_nobody_in_reach_the_first_one_gets_the_lock,
    who_is_out_of_reach_is_passed_over_and_keeps_its_place,
}

async fn a_contender_takes_a_free_lock(world: &World) {
    let contender = world.contender().await;
    let ours = lock("k", "ours");
    assert_eq!(contender.contend(&ours).await, Contended::Granted);
    assert_eq!(world.get("k").as_deref(), Some("ours"));
}

async fn an_owner_that_contends_again_has_the_lock(world: &World) {
    let contender = world.contender().await;
    let (first, second) = (lock("k", "first"), lock("k", "second"));
    hold(&*contender.channel, &first).await;
    contender.queue(&second).await;
    assert_eq!(contender.contend(&first).await, Contended::Mine);
    contender.channel.release(&first, CLAIM).await.unwrap();
    assert_eq!(contender.contend(&second).await, Contended::Mine);
}

/// Its first try took effect late, when it had contended since.
async fn an_owner_with_a_place_leaves_it_with_the_lock(world: &World) {
    let contender = world.contender().await;
    let [holder, first, last] = ["holder", "first", "last"].map(|owner| lock("k", owner));
    for late in [&first, &last] {
        hold(&*contender.channel, &holder).await;
        contender.queue(&first).await;
        contender.queue(&last).await;
        contender.channel.release(&holder, Duration::ZERO).await.unwrap();
        hold(&*contender.channel, late).await;
        let other = if late == &first { &last } else { &first };

        assert_eq!(contender.channel.release(late, CLAIM).await.unwrap(), granted_to(other));

        assert_eq!(contender.channel.release(other, CLAIM).await.unwrap(), Released::Freed);
    }
}

async fn contending_needs_a_listening_channel(world: &World) {
    let channel = world.channel().await;
    let outcome = channel.contend(&lock("k", "ours"), LEASE, KEEP).await;
    assert_eq!(kind_of(outcome), StoreErrorKind::Refused);
    assert_eq!(world.get("k"), None);
}

async fn contenders_get_the_lock_in_order(world: &World) {
    let holder = lock("k", "holder");
    hold(&*world.channel().await, &holder).await;
    let mut last = (world.contender().await, holder);
    let mut queue = Vec::new();
    for place in 0..4 {
        let (contender, lock) = (world.contender().await, lock("k", &format!("owner {place}")));
        assert_eq!(contender.queue(&lock).await, place);
        queue.push((contender, lock));
    }
    for next in queue {
        let (contender, lock) = &last;
        let released = contender.channel.release(lock, CLAIM).await.unwrap();
        assert_eq!(released, granted_to(&next.1));
        next.0.hears(Heard::granted(&next.1)).await;
        last = next;
    }
    assert_eq!(last.0.channel.release(&last.1, CLAIM).await.unwrap(), Released::Freed);
}

async fn a_refresh_keeps_the_place(world: &World) {
    let contender = world.contender().await;
    let [holder, first, second] = ["holder", "first", "second"].map(|owner| lock("k", owner));
    hold(&*contender.channel, &holder).await;
    contender.queue(&first).await;
    contender.queue(&second).await;
    assert_eq!(contender.queue(&first).await, 0);
    assert_eq!(contender.queue(&second).await, 1);
    let released = contender.channel.release(&holder, CLAIM).await.unwrap();
    assert_eq!(released, granted_to(&first));
}

async fn a_place_ends_with_its_time(world: &World) {
    let contender = world.contender().await;
    let [holder, dead, live] = ["holder", "dead", "live"].map(|owner| lock("k", owner));
    hold(&*contender.channel, &holder).await;
    contender.try_contend(&dead, SHORT).await.unwrap();
    contender.queue(&live).await;
    sleep(2 * SHORT).await;
    // The dead one no longer counts as ahead, nor does it get the lock.
    assert_eq!(contender.queue(&live).await, 0);
    let released = contender.channel.release(&holder, CLAIM).await.unwrap();
    assert_eq!(released, granted_to(&live));
}

async fn a_release_by_a_waiting_owner_gives_up_its_place(world: &World) {
    let contender = world.contender().await;
    let [holder, leaves, stays] = ["holder", "leaves", "stays"].map(|owner| lock("k", owner));
    hold(&*contender.channel, &holder).await;
    contender.queue(&leaves).await;
    contender.queue(&stays).await;
    let left = contender.channel.release(&leaves, CLAIM).await.unwrap();
    assert_eq!(left, Released::Taken);
    assert_eq!(contender.queue(&stays).await, 0);
    let released = contender.channel.release(&holder, CLAIM).await.unwrap();
    assert_eq!(released, granted_to(&stays));
}

async fn a_grant_lasts_for_the_claim(world: &World) {
    let contender = world.contender().await;
    let [holder, granted, late] = ["holder", "granted", "late"].map(|owner| lock("k", owner));
    hold(&*contender.channel, &holder).await;
    contender.queue(&granted).await;
    contender.queue(&late).await;
    let released = contender.channel.release(&holder, SHORT).await.unwrap();
    assert_eq!(released, granted_to(&granted));
    sleep(2 * SHORT).await;
    // Not confirmed: whoever looks first has it.
    assert_eq!(contender.contend(&late).await, Contended::Granted);
}

async fn who_is_out_of_reach_is_passed_over_and_keeps_its_place(world: &World) {
    let (away, here) = (world.contender().await, world.contender().await);
    let [holder, first, second] = ["holder", "first", "second"].map(|owner| lock("k", owner));
    hold(&*here.channel, &holder).await;
    away.queue(&first).await;
    here.queue(&second).await;
    let process = away.go_out_of_reach();
    world.listeners(1).await;
    assert_eq!(here.channel.release(&holder, CLAIM).await.unwrap(), granted_to(&second));
    here.hears(Heard::granted(&second)).await;
    // It comes back to the place that it had.
    let back = Contender::on(process).await;
    assert_eq!(back.queue(&first).await, 0);
    assert_eq!(here.channel.release(&second, CLAIM).await.unwrap(), granted_to(&first));
    back.hears(Heard::granted(&first)).await;
}

async fn with_nobody_in_reach_the_first_one_gets_the_lock(world: &World) {
    let channel = world.channel().await;
    let holder = lock("k", "holder");
    hold(&*channel, &holder).await;
    let queued = ["first", "second"].map(|owner| lock("k", owner));
    for lock in &queued {
        let contender = world.contender().await;
        contender.queue(lock).await;
        contender.go_out_of_reach();
    }
    world.listeners(0).await;
    assert_eq!(channel.release(&holder, CLAIM).await.unwrap(), granted_to(&queued[0]));
    assert_eq!(channel.release(&queued[0], CLAIM).await.unwrap(), granted_to(&queued[1]));
}

async fn the_contender_after_the_next_is_told_of_the_claim(world: &World) {
    let [next, after] = [world.contender().await, world.contender().await];
    let [holder, first, second] = ["holder", "first", "second"].map(|owner| lock("k", owner));
    hold(&*next.channel, &holder).await;
    next.queue(&first).await;
    after.queue(&second).await;
    next.channel.release(&holder, CLAIM).await.unwrap();
    after.hears(Heard::next(&second)).await;
}

async fn only_the_one_concerned_is_told(world: &World) {
    let [next, other] = [world.contender().await, world.contender().await];
    let [holder, first] = ["holder", "first"].map(|owner| lock("k", owner));
    hold(&*next.channel, &holder).await;
    next.queue(&first).await;
    next.channel.release(&holder, CLAIM).await.unwrap();
    next.hears(Heard::granted(&first)).await;
    assert_eq!((next.heard(), other.heard()), (1, 0));
}

async fn many_contenders_all_get_their_turn(world: &World) {
    // More than one run of the script looks at.
    let contender = world.contender().await;
    let mut last = lock("k", "holder");
    hold(&*contender.channel, &last).await;
    let queued: Vec<_> = (0..150).map(|place| lock("k", &format!("owner {place}"))).collect();
    for (place, lock) in queued.iter().enumerate() {
        assert_eq!(contender.queue(lock).await, place);
    }
    for lock in queued {
        assert_eq!(contender.channel.release(&last, CLAIM).await.unwrap(), granted_to(&lock));
        last = lock;
    }
    assert_eq!(contender.channel.release(&last, CLAIM).await.unwrap(), Released::Freed);
    assert!(world.is_empty());
}

async fn nothing_stays_behind(world: &World) {
    let contender = world.contender().await;
    let [holder, gives_up] = ["holder", "gives up"].map(|owner| lock("k", owner));
    hold(&*contender.channel, &holder).await;
    contender.queue(&gives_up).await;
    contender.channel.release(&gives_up, CLAIM).await.unwrap();
    contender.channel.release(&holder, CLAIM).await.unwrap();
    assert!(world.is_empty());
}

async fn nothing_stays_behind_of_the_dead(world: &World) {
    let contender = world.contender().await;
    let [holder, first, second] = ["holder", "first", "second"].map(|owner| lock("k", owner));
    contender.channel.acquire(&holder, 10 * SHORT).await.unwrap();
    contender.try_contend(&first, 20 * SHORT).await.unwrap();
    contender.try_contend(&second, 10 * SHORT).await.unwrap();
    eventually("everything expires", || world.is_empty()).await;
}

async fn a_release_with_a_claim_of_zero_frees_and_tells_nobody(world: &World) {
    let contender = world.contender().await;
    let [holder, waits] = ["holder", "waits"].map(|owner| lock("k", owner));
    hold(&*contender.channel, &holder).await;
    contender.queue(&waits).await;
    let released = contender.channel.release(&holder, Duration::ZERO).await.unwrap();
    assert_eq!((released, world.get("k")), (Released::FreedUntold, None));
    // Its place is still there.
    hold(&*contender.channel, &holder).await;
    assert_eq!(contender.channel.release(&holder, CLAIM).await.unwrap(), granted_to(&waits));
    contender.hears(Heard::granted(&waits)).await;
    assert_eq!(contender.heard(), 1);
}

async fn a_round_has_its_contenders_place(world: &World) {
    let contender = world.contender().await;
    let [holder, first, again, other] =
        ["holder", "a~1", "a~2", "b~1"].map(|owner| lock("k", owner));
    hold(&*contender.channel, &holder).await;
    assert_eq!(contender.queue(&first).await, 0);
    assert_eq!(contender.queue(&other).await, 1);
    assert_eq!(contender.queue(&again).await, 0);
    let released = contender.channel.release(&holder, Duration::ZERO).await.unwrap();
    assert_eq!(released, Released::FreedUntold);
    assert_eq!(contender.contend(&again).await, Contended::Granted);
    assert_eq!(world.get("k").as_deref(), Some("a~2"));
    assert_eq!(contender.queue(&other).await, 0);
    // A delete of an earlier round does not hit a later one.
    assert_eq!(contender.channel.release(&first, CLAIM).await.unwrap(), Released::Taken);
    contender.channel.release(&other, CLAIM).await.unwrap();
    let released = contender.channel.release(&again, Duration::ZERO).await.unwrap();
    assert_eq!(released, Released::Freed);
    assert!(world.is_empty());
}

async fn the_first_two_in_line_are_told_of_a_free_lock(world: &World) {
    let [first, second] = [world.contender().await, world.contender().await];
    let [holder, a, b, c] = ["holder", "a", "b", "c"].map(|owner| lock("k", owner));
    assert!(!first.channel.wake(&a.key, CLAIM).await.unwrap());
    hold(&*first.channel, &holder).await;
    first.queue(&a).await;
    second.queue(&b).await;
    second.queue(&c).await;
    first.channel.release(&holder, Duration::ZERO).await.unwrap();
    assert!(first.channel.wake(&a.key, CLAIM).await.unwrap());
    let now = Heard::NextInLine { key: "k".into(), owner: "a".into(), claim: Duration::ZERO };
    first.hears(now).await;
    second.hears(Heard::next(&b)).await;
    assert_eq!((first.heard(), second.heard()), (1, 1));
    assert_eq!(world.get("k"), None);
}

async fn who_cannot_hear_is_not_told_of_a_free_lock(world: &World) {
    let [away, here] = [world.contender().await, world.contender().await];
    let [holder, a, b] = ["holder", "a", "b"].map(|owner| lock("k", owner));
    hold(&*here.channel, &holder).await;
    away.queue(&a).await;
    here.queue(&b).await;
    away.go_out_of_reach();
    world.listeners(1).await;
    assert!(here.channel.wake(&b.key, CLAIM).await.unwrap());
    let now = Heard::NextInLine { key: "k".into(), owner: "b".into(), claim: Duration::ZERO };
    here.hears(now).await;
}

async fn a_counter_is_raised_by_the_owner_only_and_never_lowered(world: &World) {
    let channel = world.channel().await;
    let [ours, theirs] = ["ours", "theirs"].map(|owner| lock("k", owner));
    assert_eq!(channel.raise(&ours, 7).await.unwrap(), Drawn::Gone);
    let Drawn::Token(drawn) = channel.draw(&ours, Some(LEASE)).await.unwrap() else {
        panic!("no token");
    };
    let far = drawn + 1_000_000_000_000;
    let raise = async |lock, token| channel.raise(lock, token).await.unwrap();
    assert_eq!(raise(&theirs, far).await, Drawn::HeldBy("ours".into()));
    assert_eq!(raise(&ours, far).await, Drawn::Token(far));
    assert_eq!(raise(&ours, drawn).await, Drawn::Token(drawn));
    let next = channel.draw(&ours, None).await.unwrap();
    assert_eq!(next, Drawn::Token(far + 1));
}
