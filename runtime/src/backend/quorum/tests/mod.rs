//! What a quorum does with nodes that are down, silent, slow, or restarted without data: on nodes in
//! memory behind a network of the test's own, under paused time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use self::faulty::{Fate, Faulty, What};
use super::QuorumBackend;
use crate::backend::contract::{CLAIM, Contender, LEASE, lock};
use crate::backend::{
    Acquired, Backend, Channel, Contended, Drawn, Lock, Released, Renewal, Renewed, StoreErrorKind,
    contender_of,
};

mod client;
mod faulty;
mod nemesis;

const TIMEOUT: Duration = Duration::from_millis(250);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn nodes<const N: usize>() -> [Faulty; N] {
    std::array::from_fn(|_| Faulty::new())
}

/// A new client of the nodes.
fn quorum(nodes: &[Faulty]) -> Arc<QuorumBackend> {
    Arc::new(QuorumBackend::new(nodes.iter().map(Faulty::backend).collect(), TIMEOUT))
}

async fn channel(quorum: &QuorumBackend) -> Arc<dyn Channel> {
    match quorum.channel() {
        Some(channel) => channel,
        None => quorum.open().await.unwrap(),
    }
}

/// The owner on each node.
fn owners(nodes: &[Faulty], key: &str) -> Vec<Option<String>> {
    let owner = |value: String| contender_of(&value).to_owned();
    nodes.iter().map(|node| node.store.get(key).map(owner)).collect()
}

fn of(owner: &str, on: &[bool]) -> Vec<Option<String>> {
    on.iter().map(|stands| stands.then(|| owner.to_owned())).collect()
}

async fn renew(channel: &dyn Channel, lock: &Lock) -> Renewed {
    let renewal = Renewal { lock: lock.clone(), lease: LEASE };
    channel.renew(&[renewal]).await.unwrap()[0]
}

fn owed(quorum: &QuorumBackend) -> usize {
    quorum.0.nodes.iter().map(|node| node.owes()).sum()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_refused_or_silent_costs_no_time() {
    let nodes = nodes::<3>();
    let quorum = quorum(&nodes);
    let start = Instant::now();
    for fault in ["refused", "silent", "unanswered"] {
        match fault {
            "refused" => nodes[0].cut(true),
            "silent" => {
                nodes[0].cut(false);
                nodes[0].all(Fate::LOST);
            }
            _ => nodes[0].all(Fate::UNANSWERED),
        }
        for round in 0..100 {
            let ours = lock("k", &format!("{fault} {round}"));
            let channel = channel(&quorum).await;
            assert_eq!(channel.acquire(&ours, LEASE).await.unwrap(), Acquired::Granted);
            assert_eq!(renew(&*channel, &ours).await, Renewed::Renewed);
            assert_eq!(channel.release(&ours, CLAIM).await.unwrap(), Released::Freed);
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "{fault}");
    }
    nodes[0].all(Fate::PROMPT);
    sleep(2 * LEASE).await;
    assert_eq!(owners(&nodes, "k"), of("", &[false; 3]));
    assert_eq!(owed(&quorum), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_the_store_is_unavailable_within_one_time_out() {
    let nodes = nodes::<5>();
    let quorum = quorum(&nodes);
    let channel = channel(&quorum).await;
    nodes[..3].iter().for_each(|node| node.all(Fate::UNANSWERED));
    let (start, ours) = (Instant::now(), lock("k", "ours"));

    let error = channel.acquire(&ours, LEASE).await.unwrap_err();

    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.message.contains("3 of the 5 nodes"), "{}", error.message);
    assert!(start.elapsed() < 2 * TIMEOUT, "{:?}", start.elapsed());
    // What they did without an answer is undone, soon.
    nodes.iter().for_each(|node| node.all(Fate::PROMPT));
    sleep(ms(1_500)).await;
    assert_eq!(owners(&nodes, "k"), of("", &[false; 5]));
    sleep(LEASE).await;
    assert_eq!(owed(&quorum), 0);
}

#[tokio::test(start_paused = true)]
async fn places_on_a_node_that_was_silent_go_once_it_is_back() {
    let nodes = nodes::<3>();
    let held = channel(&quorum(&nodes)).await;
    held.acquire(&lock("k", "a"), LEASE).await.unwrap();
    let (quorum, waits) = (quorum(&nodes), lock("k", "b"));
    let contender = Contender::on(Arc::clone(&quorum) as Arc<dyn Backend>).await;
    contender.contend(&waits).await;
    nodes[0].all(Fate::LOST);
    held.release(&lock("k", "a"), CLAIM).await.unwrap();
    assert_eq!(contender.contend(&waits).await, Contended::Granted);
    contender.channel().release(&waits, CLAIM).await.unwrap();
    nodes[0].all(Fate::PROMPT);
    sleep(ms(3_000)).await;
    assert!(nodes.iter().all(|node| node.store.is_empty()));
    sleep(LEASE).await;
    assert_eq!(owed(&quorum), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_round_was_granted_is_given_back_at_once() {
    let nodes = nodes::<3>();
    nodes[1].store.insert_foreign("k", "other/1", Some(LEASE));
    nodes[2].store.insert_foreign("k", "other/1", Some(LEASE));
    let channel = channel(&quorum(&nodes)).await;

    let acquired = channel.acquire(&lock("k", "ours"), LEASE).await.unwrap();

    assert_eq!(acquired, Acquired::HeldBy("other/1".into()));
    assert_eq!(owners(&nodes, "k"), of("other/1", &[false, true, true]));
}

/// f93: the delete of a lost round arrives when the next round has the lock.
#[tokio::test(start_paused = true)]
async fn a_late_delete_does_not_hit_the_next_round() {
    let nodes = nodes::<3>();
    let theirs = ["other/1", "other/2"];
    for (node, owner) in nodes[1..].iter().zip(theirs) {
        node.store.insert_foreign("k", owner, Some(LEASE));
    }
    // On a connection that ends before the answer.
    nodes[0].fates(|what| match what {
        What::Release => Fate { to_node: Some(ms(600)), back: None },
        _ => Fate::PROMPT,
    });
    let (quorum, ours) = (quorum(&nodes), lock("k", "ours"));
    let first = channel(&quorum).await;
    assert!(matches!(first.acquire(&ours, LEASE).await.unwrap(), Acquired::HeldBy(_)));
    nodes[0].cut(false);
    nodes[0].all(Fate::PROMPT);
    nodes.iter().for_each(|node| node.store.remove("k"));

    let second = channel(&quorum).await;
    assert_eq!(second.acquire(&ours, LEASE).await.unwrap(), Acquired::Granted);
    sleep(ms(2_000)).await;

    assert_eq!(owners(&nodes, "k"), of("ours", &[true; 3]));
    second.release(&ours, CLAIM).await.unwrap();
    assert_eq!(owners(&nodes, "k"), of("", &[false; 3]));
}

/// f93: what an earlier round left on a node does not stop the next one, and goes.
#[tokio::test(start_paused = true)]
async fn left_overs_of_an_earlier_round_do_not_block_the_next() {
    let nodes = nodes::<3>();
    nodes[1].store.insert_foreign("k", "other/1", Some(LEASE));
    nodes[2].store.insert_foreign("k", "other/2", Some(LEASE));
    nodes[0].fates(|what| match what {
        What::Release => Fate::LOST,
        _ => Fate::PROMPT,
    });
    let (quorum, ours) = (quorum(&nodes), lock("k", "ours"));
    let channel = channel(&quorum).await;
    assert!(matches!(channel.acquire(&ours, LEASE).await.unwrap(), Acquired::HeldBy(_)));
    nodes[1..].iter().for_each(|node| node.store.remove("k"));

    assert_eq!(channel.acquire(&ours, LEASE).await.unwrap(), Acquired::Granted);

    channel.release(&ours, CLAIM).await.unwrap();
    nodes[0].all(Fate::PROMPT);
    sleep(ms(3_000)).await;
    assert_eq!(owners(&nodes, "k"), of("", &[false; 3]));
    assert_eq!(owed(&quorum), 0);
}

/// a3: the holder of a bare majority is planted on the others by its first renewal.
#[tokio::test(start_paused = true)]
async fn a_renewal_plants_the_lock_where_it_is_not() {
    let nodes = nodes::<5>();
    nodes[3..].iter().for_each(|node| node.cut(true));
    let (quorum_a, ours) = (quorum(&nodes), lock("k", "a"));
    let a = channel(&quorum_a).await;
    assert_eq!(a.acquire(&ours, LEASE).await.unwrap(), Acquired::Granted);
    assert_eq!(owners(&nodes, "k"), of("a", &[true, true, true, false, false]));

    nodes[3..].iter().for_each(|node| node.cut(false));
    assert_eq!(renew(&*a, &ours).await, Renewed::Renewed);
    sleep(ms(1)).await;
    assert_eq!(owners(&nodes, "k"), of("a", &[true; 5]));

    nodes[2].store.remove("k");
    let b = channel(&quorum(&nodes)).await;
    let acquired = b.acquire(&lock("k", "b"), LEASE).await.unwrap();
    assert_eq!(acquired, Acquired::HeldBy("a".into()));
}

#[tokio::test(start_paused = true)]
async fn a_lost_majority_is_never_planted_again() {
    let nodes = nodes::<3>();
    let (quorum, ours) = (quorum(&nodes), lock("k", "a"));
    let channel = channel(&quorum).await;
    channel.acquire(&ours, LEASE).await.unwrap();
    nodes[..2].iter().for_each(|node| node.store.remove("k"));

    assert_eq!(renew(&*channel, &ours).await, Renewed::Gone);

    sleep(ms(1_000)).await;
    assert_eq!(owners(&nodes, "k"), of("a", &[false, false, true]));
    channel.release(&ours, CLAIM).await.unwrap();
    assert_eq!(owners(&nodes, "k"), of("", &[false; 3]));
}

#[tokio::test(start_paused = true)]
async fn a_late_plant_is_deleted_after_the_release() {
    let nodes = nodes::<3>();
    nodes[2].cut(true);
    let (quorum, ours) = (quorum(&nodes), lock("k", "a"));
    let before = channel(&quorum).await;
    before.acquire(&ours, LEASE).await.unwrap();
    nodes[2].cut(false);
    nodes[2].fates(|what| match what {
        What::Take => Fate { to_node: Some(ms(200)), back: Some(ms(1)) },
        _ => Fate::PROMPT,
    });
    assert_eq!(renew(&*before, &ours).await, Renewed::Renewed);
    // By another connection to the third node, which does not wait for the first.
    nodes[2].cut(false);
    let after = channel(&quorum).await;

    assert_eq!(after.release(&ours, CLAIM).await.unwrap(), Released::Freed);

    sleep(ms(199)).await;
    assert_eq!(owners(&nodes, "k"), of("", &[false; 3]));
    sleep(ms(2)).await;
    assert_eq!(owners(&nodes, "k"), of("a", &[false, false, true]), "the plant came late");
    sleep(ms(2_000)).await;
    assert_eq!(owners(&nodes, "k"), of("", &[false; 3]));
    sleep(2 * LEASE).await;
    assert_eq!(owed(&quorum), 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_counts_from_then_on() {
    let nodes = nodes::<3>();
    nodes[2].fates(|what| match what {
        What::Take => Fate { to_node: Some(ms(100)), back: Some(ms(1)) },
        _ => Fate::PROMPT,
    });
    let (quorum, ours) = (quorum(&nodes), lock("k", "a"));
    let channel = channel(&quorum).await;
    channel.acquire(&ours, LEASE).await.unwrap();
    assert_eq!(owners(&nodes, "k"), of("a", &[true, true, false]));
    sleep(ms(150)).await;
    assert_eq!(owners(&nodes, "k"), of("a", &[true; 3]));
    // The hold outlasts the loss of one that granted at once.
    nodes[0].cut(true);
    assert_eq!(renew(&*channel, &ours).await, Renewed::Renewed);
    channel.release(&ours, CLAIM).await.unwrap();
    nodes[0].cut(false);
    sleep(ms(2_000)).await;
    assert_eq!(owners(&nodes, "k"), of("", &[false; 3]));
}

/// a16: a node that somebody else has does not count, and is left alone.
#[tokio::test(start_paused = true)]
async fn a_node_of_another_holder_is_left_alone() {
    let nodes = nodes::<3>();
    nodes[1].store.insert_foreign("k", "other", Some(LEASE));
    let ours = lock("k", "a");
    let channel = channel(&quorum(&nodes)).await;
    assert_eq!(channel.acquire(&ours, LEASE).await.unwrap(), Acquired::Granted);
    assert_eq!(channel.release(&ours, CLAIM).await.unwrap(), Released::Freed);
    assert_eq!(owners(&nodes, "k"), of("other", &[false, true, false]));

    nodes[2].cut(true);
    let error = channel.acquire(&ours, LEASE).await.unwrap();
    assert_eq!(error, Acquired::HeldBy("other".into()));
}

/// f92: members that were never acquired do not make a release fail.
#[tokio::test(start_paused = true)]
async fn a_release_counts_what_was_held() {
    let nodes = nodes::<3>();
    nodes[2].cut(true);
    let ours = lock("k", "a");
    let channel = channel(&quorum(&nodes)).await;
    channel.acquire(&ours, LEASE).await.unwrap();
    assert_eq!(channel.release(&ours, CLAIM).await.unwrap(), Released::Freed);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_too_few_answer_is_unknown_and_then_known() {
    let nodes = nodes::<3>();
    let (quorum, ours) = (quorum(&nodes), lock("k", "a"));
    let first = channel(&quorum).await;
    first.acquire(&ours, LEASE).await.unwrap();
    nodes[..2].iter().for_each(|node| node.all(Fate::UNANSWERED));
    let error = first.release(&ours, CLAIM).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    nodes[..2].iter().for_each(|node| node.all(Fate::PROMPT));
    assert_eq!(first.release(&ours, CLAIM).await.unwrap(), Released::Gone);
    assert_eq!(owners(&nodes, "k"), of("", &[false; 3]));
}

#[tokio::test(start_paused = true)]
async fn one_lock_of_a_batch_may_be_unknown_while_others_are_renewed() {
    let nodes = nodes::<3>();
    let (quorum, whole, part) = (quorum(&nodes), lock("whole", "a"), lock("part", "a"));
    let channel = channel(&quorum).await;
    channel.acquire(&whole, LEASE).await.unwrap();
    channel.acquire(&part, LEASE).await.unwrap();
    nodes[0].store.remove("part");
    nodes[2].all(Fate::LOST);
    let batch = [&whole, &part].map(|lock| Renewal { lock: lock.clone(), lease: LEASE });

    assert_eq!(channel.renew(&batch).await.unwrap(), [Renewed::Renewed, Renewed::Unanswered]);

    let error = channel.renew(&batch[1..]).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn tokens_grow_from_majority_to_majority() {
    let nodes = nodes::<3>();
    let quorum = quorum(&nodes);
    // One whose clock is far ahead.
    let far = lock("k", "far");
    let alone = nodes[0].backend().open().await.unwrap();
    let Drawn::Token(drawn) = alone.draw(&far, Some(LEASE)).await.unwrap() else {
        panic!("no token");
    };
    let ahead = drawn + 1_000_000_000;
    alone.raise(&far, ahead).await.unwrap();
    alone.release(&far, CLAIM).await.unwrap();
    let mut last = 0;
    for (round, down) in [2, 0, 1, 0, 2].into_iter().enumerate() {
        nodes[down].cut(true);
        let (channel, ours) = (channel(&quorum).await, lock("k", &format!("owner {round}")));
        let Drawn::Token(token) = channel.draw(&ours, Some(LEASE)).await.unwrap() else {
            panic!("no token");
        };
        assert!(token > ahead && token > last, "{token} after {last}");
        let Drawn::Token(again) = channel.draw(&ours, None).await.unwrap() else {
            panic!("no token");
        };
        assert!(again > token);
        last = again;
        channel.release(&ours, CLAIM).await.unwrap();
        nodes[down].cut(false);
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_no_majority_noted_is_not_handed_out() {
    let nodes = nodes::<3>();
    let channel = channel(&quorum(&nodes)).await;
    nodes[..2].iter().for_each(|node| {
        node.fates(|what| if what == What::Other { Fate::LOST } else { Fate::PROMPT });
    });
    let drawn = channel.draw(&lock("k", "a"), Some(LEASE)).await;
    assert_eq!(drawn.unwrap_err().kind, StoreErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_contender_is_queued_on_the_nodes_of_the_holder_and_told_once_they_are_free() {
    let nodes = nodes::<3>();
    let (quorum_a, held) = (quorum(&nodes), lock("k", "a"));
    let a = channel(&quorum_a).await;
    a.acquire(&held, LEASE).await.unwrap();
    let waiting = ["b", "c"].map(|owner| lock("k", owner));
    let contenders = [Contender::on(quorum(&nodes)).await, Contender::on(quorum(&nodes)).await];
    for (contender, lock) in contenders.iter().zip(&waiting) {
        let queued = contender.contend(lock).await;
        assert!(matches!(queued, Contended::Queued { remaining, .. } if remaining > LEASE / 2));
    }
    // The first node cannot tell anybody any more.
    nodes[0].cut(true);
    a.release(&held, CLAIM).await.unwrap();
    for (contender, (lock, claim)) in
        contenders.iter().zip(waiting.iter().zip([Duration::ZERO, CLAIM]))
    {
        let [key, owner] = [&lock.key, &lock.owner].map(|text| text.as_ref().to_owned());
        contender.hears(crate::backend::contract::Heard::NextInLine { key, owner, claim }).await;
    }
    assert_eq!(contenders[0].contend(&waiting[0]).await, Contended::Granted);
}
