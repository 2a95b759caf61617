//! Two stores, one behaviour: whatever is asked, the answers are the same.

use super::*;
use crate::backend::{Renewal, Renewed};

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Acquired(Acquired),
    Contended(Contended),
    Failed(StoreErrorKind),
    Holder(Option<Arc<str>>),
    Released(Released),
    Renewed(Vec<Renewed>),
    Value(Option<String>),
}

#[tokio::test]
async fn random_requests_have_the_same_answers_on_every_store() {
    let worlds = [
        World::memory(),
        World::redis(),
        #[cfg(feature = "cluster")]
        World::cluster(),
    ];
    let mut contenders = Vec::new();
    for world in &worlds {
        contenders.push(world.contender().await);
    }
    let mut dice = Dice(0x5eed);
    for step in 0..3_000 {
        let lock = lock(dice.pick(&["k", "{k}", "}k"]), dice.pick(&["a", "b", "c", "d"]));
        let action = dice.below(20);
        let mut answers = Vec::new();
        for (world, contender) in worlds.iter().zip(&contenders) {
            answers.push(answer(world, contender, &lock, action).await);
        }
        for other in &answers[1..] {
            assert_eq!(answers[0], *other, "step {step}: action {action} on {lock:?}");
        }
    }
    // What is said of several keys may come from several nodes.
    let heard = |contender: &Contender| {
        let mut heard = contender.ears.0.lock().unwrap().clone();
        heard.sort_by_key(|news| match news {
            Heard::Granted { key, .. } | Heard::NextInLine { key, .. } => Some(key.clone()),
            Heard::Interrupted => None,
        });
        heard
    };
    for other in &contenders[1..] {
        eventually("the same is heard", || heard(&contenders[0]) == heard(other)).await;
    }
}

async fn answer(world: &World, contender: &Contender, lock: &Lock, action: u64) -> Answer {
    let channel = contender.channel();
    let failed = |error: crate::backend::StoreError| Answer::Failed(error.kind);
    match action {
        0..4 => channel.acquire(lock, LEASE).await.map_or_else(failed, Answer::Acquired),
        4..10 => match contender.try_contend(lock, KEEP).await {
            Ok(Contended::Queued { holder, ahead, .. }) => {
                let remaining = Duration::ZERO;
                Answer::Contended(Contended::Queued { holder, remaining, ahead })
            }
            outcome => outcome.map_or_else(failed, Answer::Contended),
        },
        10..15 => channel.release(lock, CLAIM).await.map_or_else(failed, Answer::Released),
        15..17 => {
            let renewal = Renewal { lock: lock.clone(), lease: LEASE };
            channel.renew(&[renewal]).await.map_or_else(failed, Answer::Renewed)
        }
        17 => {
            let holder = channel.inspect(&lock.key).await;
            holder.map_or_else(failed, |holder| Answer::Holder(holder.map(|holder| holder.owner)))
        }
        18 => {
            // Another program's doing, and undoing at once most of the time.
            match lock.owner.as_ref() {
                "a" => world.put(&lock.key, "theirs", None),
                "b" => world.put_other_type(&lock.key),
                _ => world.put(&lock.key, "theirs", Some(LEASE)),
            }
            Answer::Value(None)
        }
        _ => {
            world.remove(&lock.key);
            Answer::Value(world.get(&lock.key))
        }
    }
}

/// A small generator, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }
}
