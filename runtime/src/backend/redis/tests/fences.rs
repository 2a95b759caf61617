//! Fencing tokens from a server's counter.

use super::super::fence::FENCE;
use super::*;
use crate::backend::{Channel, Lock};
use crate::join::all;

async fn token(channel: &dyn Channel, lock: &Lock) -> u64 {
    match channel.draw(lock, Some(LEASE)).await.unwrap() {
        Drawn::Token(token) => token,
        other => panic!("no token for {lock:?}: {other:?}"),
    }
}

#[tokio::test]
async fn a_counter_that_is_lost_goes_on_from_the_clock() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    let ours = lock("k", "ours");
    let mut last = 0;
    for _ in 0..20 {
        for event in [["DEL", FENCE].as_slice(), &["FLUSHALL"], &["PING"]] {
            server.run::<redis::Value>(event);
            let next = token(&*channel, &ours).await;
            assert!(next > last, "{next} after {last} and {event:?}");
            last = next;
        }
    }
}

#[tokio::test]
async fn a_counter_that_is_lost_in_the_same_millisecond_goes_on_all_the_same() {
    let server = RedisServer::start();
    server.run::<()>(&["SET", "k", "ours"]);
    let mut pipeline = redis::pipe();
    for _ in 0..20 {
        for _ in 0..3 {
            let draw = include_str!("../lua/draw.lua");
            pipeline.cmd("EVAL").arg(draw).arg(&["2", "k", FENCE, "ours", "0"]);
        }
        pipeline.cmd("DEL").arg(FENCE).ignore();
    }
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let tokens: Vec<u64> = pipeline.query(&mut connection).unwrap();
    assert!(tokens.is_sorted_by(|token, next| token < next), "{tokens:?}");
}

/// As after a step back of the clock: the counter stands ahead, and its numbers go on all the same.
#[tokio::test]
async fn tokens_grow_while_the_clock_is_behind_however_many_are_drawn() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    let ours = lock("k", "ours");
    let now = token(&*channel, &ours).await;
    server.run::<String>(&["XADD", FENCE, "MAXLEN", "0", "4000000000000-2040", "", ""]);
    let mut last = now;
    for draw in 0..40 {
        // By the transaction and by the script.
        let take = (draw % 3 != 0).then_some(LEASE);
        let Drawn::Token(next) = channel.draw(&ours, take).await.unwrap() else {
            panic!("no token");
        };
        assert!(next > last && next < 1 << 53, "{next} after {last}");
        last = next;
    }
    // A draw beyond the millisecond is drawn again.
    assert!((40..=80).contains(&(last - (4_000_000_000_000 * 2048 + 2040))), "{last}");
}

#[tokio::test]
async fn all_keys_share_a_counter_that_stays_small() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    for i in 0..100 {
        let ours = lock(&format!("stock:{i}"), "ours");
        token(&*channel, &ours).await;
        channel.release(&ours, CLAIM).await.unwrap();
    }
    assert_eq!(server.run::<Vec<String>>(&["KEYS", "*"]), [FENCE]);
    assert_eq!(server.run::<u64>(&["XLEN", FENCE]), 0);
    assert!(server.run::<u64>(&["MEMORY", "USAGE", FENCE]) < 2048);
}

#[tokio::test]
async fn draws_of_one_moment_are_one() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    server.run::<()>(&["SET", "stock:7", "theirs", "PX", "60000"]);
    server.run::<()>(&["LPUSH", "stock:8", "a list"]);
    // From here on there is a counter.
    token(&*channel, &lock("first", "ours")).await;
    server.run::<()>(&["CONFIG", "RESETSTAT"]);
    let locks: Vec<_> = (0..20).map(|i| lock(&format!("stock:{i}"), "ours")).collect();

    let drawn = all(locks.iter().map(|lock| channel.draw(lock, Some(LEASE))).collect()).await;

    let mut tokens = Vec::new();
    for (index, drawn) in drawn.into_iter().enumerate() {
        match (index, drawn) {
            (7, drawn) => assert_eq!(drawn.unwrap(), Drawn::HeldBy("theirs".into())),
            (8, drawn) => assert_eq!(kind_of(drawn), StoreErrorKind::Foreign),
            (_, Ok(Drawn::Token(token))) => tokens.push(token),
            (_, drawn) => panic!("{drawn:?}"),
        }
    }
    assert_eq!(tokens.len(), 18);
    // The first one goes alone, at once.
    assert_eq!(server.calls_of("xadd"), 2);
    for lock in &locks[..7] {
        channel.release(lock, CLAIM).await.unwrap();
        let next = Lock { owner: "next".into(), ..lock.clone() };
        assert!(token(&*channel, &next).await > *tokens.iter().max().unwrap());
    }
}

#[tokio::test]
async fn another_type_where_the_counter_should_be_is_named() {
    let server = RedisServer::start();
    let channel = server.backend().open().await.unwrap();
    server.run::<()>(&["LPUSH", FENCE, "a list"]);
    let ours = lock("k", "ours");
    let drawn = channel.draw(&ours, Some(LEASE)).await;
    for drawn in [drawn, channel.draw(&ours, None).await, channel.raise(&ours, 1).await] {
        let error = drawn.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused);
        assert!(error.message.contains(FENCE), "{error}");
    }
}

/// Nobody may come between a grant and its draw.
#[tokio::test]
async fn without_the_right_to_draw_nothing_is_taken() {
    let server = RedisServer::start();
    let rules = ["+@all", "-xadd", "~*", "&*"];
    let channel = server.backend_as("app", &rules).open().await.unwrap();
    let error = channel.draw(&lock("k", "ours"), Some(LEASE)).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused);
    assert!(error.message.contains("xadd"), "{error}");
    assert!(!server.run::<bool>(&["EXISTS", "k"]));
}

/// The first answer is that there is no counter, and there is no second one.
#[tokio::test]
async fn a_draw_in_two_steps_takes_no_longer_than_one() {
    let server = RedisServer::start();
    let mut config = server.config();
    config.response_timeout = Duration::from_secs(3);
    let channel = RedisBackend::new(config).open().await.unwrap();
    let mut pausing = std::net::TcpStream::connect(server.address()).unwrap();
    // Once it is accepted.
    std::io::Write::write_all(&mut pausing, b"PING\r\n").unwrap();
    std::io::Read::read_exact(&mut pausing, &mut [0; 7]).unwrap();
    let begun = std::time::Instant::now();
    server.freeze();
    let ours = lock("k", "ours");
    let drawing = channel.draw(&ours, Some(LEASE));
    let meanwhile = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Read after the first step, and before the second.
        std::io::Write::write_all(&mut pausing, b"CLIENT PAUSE 20000 WRITE\r\n").unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        server.thaw();
    };
    let (drawn, ()) = tokio::join!(biased; drawing, meanwhile);
    let took = begun.elapsed();
    assert_eq!(kind_of(drawn), StoreErrorKind::Unavailable);
    assert_eq!(server.run::<String>(&["GET", "k"]), "ours", "the first step was done");
    assert!(took < channel.answers_within() + Duration::from_millis(1500), "{took:?}");
}
