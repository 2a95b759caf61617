//! What the fault kit promises.

use std::thread;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, PushInfo, PushKind, RedisResult, Script};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::support::{
    CommandLog, Data, Proxy, RedisServer, Store, eventually, on_every_store, unique_key,
};

#[tokio::test]
async fn restart_keeps_data_of_a_durable_server() {
    let server = RedisServer::durable();
    let _: () = server.connection().await.set("a", "1").await.unwrap();

    server.restart(Data::Kept);

    let value: Option<String> = server.connection().await.get("a").await.unwrap();
    assert_eq!(value.as_deref(), Some("1"));
}

#[tokio::test]
async fn restart_loses_data_when_told_so() {
    let server = RedisServer::durable();
    let _: () = server.connection().await.set("a", "1").await.unwrap();

    server.restart(Data::Lost);

    let value: Option<String> = server.connection().await.get("a").await.unwrap();
    assert_eq!(value, None);
}

#[tokio::test]
async fn killed_server_refuses_connections() {
    let server = RedisServer::start();

    server.kill();

    assert!(std::net::TcpStream::connect(server.address()).is_err());
}

#[tokio::test]
async fn paused_server_answers_after_resume() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection =
        client.get_multiplexed_async_connection_with_config(&impatient()).await.unwrap();

    server.pause();
    let during: RedisResult<()> = connection.set("a", "1").await;
    server.resume();

    assert!(during.unwrap_err().is_timeout());
    eventually("the command has run", SOON, async || value(&server, "a").await.is_some()).await;
}

#[tokio::test]
async fn server_takes_further_arguments() {
    let server = RedisServer::with_arguments(&["--requirepass", "secret"]);

    let refused: RedisResult<()> = server.connection().await.set("a", "1").await;

    assert_eq!(refused.unwrap_err().code(), Some("NOAUTH"));
}

#[tokio::test]
async fn only_the_wanted_reply_is_dropped() {
    let (server, proxy) = behind_proxy();
    let mut connection = connect(&proxy).await;
    let mut other = connect(&proxy).await;
    proxy.drop_next_reply("set b");

    let before: RedisResult<()> = connection.set("a", "1").await;
    let dropped: RedisResult<()> = connection.set("b", "1").await;
    let after: RedisResult<()> = connection.set("c", "1").await;
    let elsewhere: RedisResult<()> = other.set("b", "2").await;

    before.unwrap();
    elsewhere.unwrap();
    assert!(dropped.unwrap_err().is_timeout());
    assert!(after.unwrap_err().is_timeout(), "nothing passes after a lost reply");
    assert_eq!(value(&server, "b").await.as_deref(), Some("2"));
    assert_eq!(value(&server, "c").await, None);
}

#[tokio::test]
async fn request_runs_whose_reply_is_cut() {
    let (server, proxy) = behind_proxy();
    let mut connection = connect(&proxy).await;
    proxy.cut_at_next_reply("SET");

    let cut: RedisResult<()> = connection.set("a", "1").await;

    assert!(cut.unwrap_err().is_connection_dropped());
    assert_eq!(value(&server, "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn request_that_is_cut_does_not_run() {
    let (server, proxy) = behind_proxy();
    let mut connection = connect(&proxy).await;
    proxy.cut_at_next_request("SET");

    let cut: RedisResult<()> = connection.set("a", "1").await;

    assert!(cut.unwrap_err().is_connection_dropped());
    assert_eq!(value(&server, "a").await, None);
}

#[tokio::test]
async fn request_with_a_made_up_answer_does_not_run() {
    let (server, proxy) = behind_proxy();
    let mut connection = connect(&proxy).await;
    proxy.answer_next("SET", "-LOADING Redis is loading");

    let (mut first, mut second) = (connection.clone(), connection.clone());
    let (_, answered, next) = tokio::join!(
        first.get::<_, Option<String>>("x"),
        second.set::<_, _, ()>("a", "1"),
        connection.get::<_, Option<String>>("a"),
    );

    assert!(answered.unwrap_err().to_string().contains("loading"));
    assert_eq!(next.unwrap(), None);
    assert_eq!(value(&server, "a").await, None);
}

#[tokio::test]
async fn held_reply_comes_when_its_gate_opens() {
    let (server, proxy) = behind_proxy();
    let mut connection = connect(&proxy).await;
    let gate = proxy.hold_next_reply("SET");

    let call = tokio::spawn(async move { connection.set::<_, _, ()>("a", "1").await });
    gate.reached().await;
    let while_held = (value(&server, "a").await, call.is_finished());
    gate.open();

    assert_eq!(while_held, (Some("1".to_owned()), false));
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn held_request_runs_even_if_its_client_has_gone() {
    let (server, proxy) = behind_proxy();
    let mut connection = connect(&proxy).await;
    let gate = proxy.hold_next_request("SET");

    let call = tokio::spawn(async move { connection.set::<_, _, ()>("a", "1").await });
    gate.reached().await;
    call.abort();
    let _ = call.await;
    let while_held = value(&server, "a").await;
    gate.open();

    assert_eq!(while_held, None);
    eventually("the request arrives", SOON, async || value(&server, "a").await.is_some()).await;
}

#[tokio::test]
async fn blackhole_is_silent_and_its_connections_stay_dead() {
    let (_server, proxy) = behind_proxy();
    let mut connection = connect(&proxy).await;

    proxy.blackhole();
    let during: RedisResult<()> = connection.set("a", "1").await;
    let new = timeout(PATIENCE, client(&proxy).get_multiplexed_async_connection()).await;
    proxy.heal();
    let after: RedisResult<()> = connection.set("a", "1").await;

    assert!(during.unwrap_err().is_timeout());
    assert!(!new.is_ok_and(|new| new.is_ok()), "nobody answers a new connection");
    assert!(after.unwrap_err().is_timeout());
    let _: () = connect(&proxy).await.set("a", "1").await.unwrap();
}

#[tokio::test]
async fn stalled_requests_arrive_after_heal() {
    let (server, proxy) = behind_proxy();
    let mut connection = connect(&proxy).await;

    proxy.stall();
    let during: RedisResult<()> = connection.set("a", "1").await;
    let meanwhile = value(&server, "a").await;
    proxy.heal();

    assert!(during.unwrap_err().is_timeout());
    assert_eq!(meanwhile, None);
    eventually("the request arrives", SOON, async || value(&server, "a").await.is_some()).await;
    let _: () = connection.set("b", "1").await.unwrap();
}

#[tokio::test]
async fn refused_and_cut_clients_come_back_after_heal() {
    let (_server, proxy) = behind_proxy();
    let mut connection = connect(&proxy).await;

    proxy.refuse();
    let open: RedisResult<()> = connection.set("a", "1").await;
    let new = std::net::TcpStream::connect(proxy.address());
    proxy.cut();
    eventually("the connection is cut", SOON, async || {
        connection.set::<_, _, ()>("a", "2").await.is_err_and(|error| error.is_connection_dropped())
    })
    .await;
    proxy.heal();

    open.unwrap();
    assert_eq!(new.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    let _: () = connect(&proxy).await.set("a", "3").await.unwrap();
}

#[tokio::test]
async fn reset_is_seen_as_a_reset() {
    let (_server, proxy) = behind_proxy();
    let mut stream = tokio::net::TcpStream::connect(proxy.address()).await.unwrap();
    eventually("it is accepted", SOON, async || proxy.connections() == 1).await;

    proxy.reset();

    let read = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 8]).await;
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn messages_are_no_replies() {
    let (server, proxy) = behind_proxy();
    let (mut connection, mut pushes) = connect_resp3(&proxy).await;
    connection.subscribe("channel").await.unwrap();
    let gate = proxy.hold_next_reply("GET");

    let _: () = server.connection().await.publish("channel", "hello").await.unwrap();
    assert_eq!(next_message(&mut pushes).await.kind, PushKind::Message);
    let value: RedisResult<Option<String>> = connection.get("a").await;

    assert!(value.unwrap_err().is_timeout(), "the message was taken for the reply");
    assert!(gate.is_reached());
}

#[tokio::test]
async fn confirmation_of_a_subscription_can_be_delayed() {
    let (_server, proxy) = behind_proxy();
    let (mut connection, _pushes) = connect_resp3(&proxy).await;
    proxy.delay_next_reply("SUBSCRIBE", Duration::from_millis(100));
    let start = Instant::now();

    connection.subscribe("channel").await.unwrap();

    assert!(start.elapsed() >= Duration::from_millis(100));
    let _: () = connection.set("a", "1").await.unwrap();
}

#[tokio::test]
async fn delays_add_up_over_both_directions() {
    let (_server, proxy) = behind_proxy();
    let mut connection = connect(&proxy).await;
    proxy.delay_requests(Duration::from_millis(40));
    proxy.delay_replies(Duration::from_millis(40));
    let start = Instant::now();

    let _: () = connection.set("a", "1").await.unwrap();

    assert!(start.elapsed() >= Duration::from_millis(80));
}

#[tokio::test]
async fn throttle_bounds_the_rate() {
    let (_server, proxy) = behind_proxy();
    let mut connection = connect(&proxy).await;
    proxy.throttle(10_000);
    let start = Instant::now();

    let _: () = connection.set("a", "x".repeat(1_500)).await.unwrap();

    assert!(start.elapsed() >= Duration::from_millis(140));
}

#[tokio::test]
async fn proxy_works_while_the_runtime_is_blocked() {
    let (_server, proxy) = behind_proxy();

    let value: Option<String> = thread::scope(|scope| {
        let call = scope.spawn(|| {
            let mut connection = client(&proxy).get_connection().unwrap();
            redis::Commands::get(&mut connection, "a").unwrap()
        });
        call.join().unwrap()
    });

    assert_eq!(value, None);
}

#[tokio::test]
async fn proxy_lists_the_requests() {
    let (_server, proxy) = behind_proxy();

    let _: () = connect(&proxy).await.set("a", "1").await.unwrap();

    assert!(proxy.requests().contains(&"SET a 1".to_owned()), "{:?}", proxy.requests());
}

#[tokio::test]
async fn command_log_has_what_clients_sent_and_nothing_else() {
    let server = RedisServer::start();
    let mut connection = server.connection().await;
    let script = Script::new("redis.call('SET', KEYS[1], '1') return redis.call('GET', KEYS[1])");
    let _: String = script.key("warm").invoke_async(&mut connection).await.unwrap();
    let log = CommandLog::start(&server);

    let _: () = connection.set("before", "1").await.unwrap();
    let mark = log.mark();
    let _: () = connection.set("a", "1").await.unwrap();
    let _: String = script.key("b").invoke_async(&mut connection).await.unwrap();
    let commands = log.since(mark);

    assert_eq!(commands, ["SET a 1".to_owned(), format!("EVALSHA {} 1 b", script.get_hash())]);
}

#[tokio::test]
async fn command_log_waits_for_a_command() {
    let server = RedisServer::shared();
    let log = CommandLog::start(&server);
    let mark = log.mark();
    let key = unique_key("kit");
    let mut connection = server.connection().await;

    let _: () = connection.set(&key, "1").await.unwrap();

    assert_eq!(log.wait_for(mark, &format!("SET {key}")), format!("SET {key} 1"));
}

#[tokio::test]
#[should_panic(expected = "not within 20ms: the sky falls")]
async fn eventually_says_what_did_not_happen() {
    eventually("the sky falls", Duration::from_millis(20), async || false).await;
}

async fn store_shows_what_was_put_there(store: Store) {
    let key = unique_key("kit");

    store.put_foreign(&key, "someone", Some(Duration::from_secs(60))).await;

    assert_eq!(store.owner_of(&key).await.as_deref(), Some("someone"));
    let remaining = store.remaining(&key).await.unwrap();
    assert!(remaining > Duration::from_secs(50) && remaining <= Duration::from_secs(60));
}

async fn store_forgets_what_was_removed(store: Store) {
    let key = unique_key("kit");
    store.put_other_type(&key).await;

    store.remove(&key).await;

    assert_eq!(store.owner_of(&key).await, None);
    assert_eq!(store.remaining(&key).await, None);
}

on_every_store! { store_shows_what_was_put_there, store_forgets_what_was_removed }

on_every_store! {
    #[should_panic(expected = "no such luck")]
    async fn attributes_reach_the_tests(store: Store) {
        panic!("no such luck on {store:?}");
    }
}

fn behind_proxy() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    (server, proxy)
}

fn client(proxy: &Proxy) -> redis::Client {
    redis::Client::open(proxy.url()).unwrap()
}

async fn connect(proxy: &Proxy) -> MultiplexedConnection {
    client(proxy).get_multiplexed_async_connection_with_config(&impatient()).await.unwrap()
}

/// Finds a lost reply out while a test can wait for it, and takes no reply on a busy machine for lost.
fn impatient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(SOON))
        .set_response_timeout(Some(PATIENCE))
}

async fn connect_resp3(proxy: &Proxy) -> (MultiplexedConnection, UnboundedReceiver<PushInfo>) {
    let (sender, pushes) = unbounded_channel();
    let config = impatient().set_push_sender(sender);
    let client = redis::Client::open(format!("{}?protocol=resp3", proxy.url())).unwrap();
    (client.get_multiplexed_async_connection_with_config(&config).await.unwrap(), pushes)
}

async fn next_message(pushes: &mut UnboundedReceiver<PushInfo>) -> PushInfo {
    loop {
        let push = timeout(SOON, pushes.recv()).await.unwrap().unwrap();
        if push.kind != PushKind::Subscribe {
            return push;
        }
    }
}

/// A value in the server, read past the proxy.
async fn value(server: &RedisServer, key: &str) -> Option<String> {
    server.connection().await.get(key).await.unwrap()
}

const PATIENCE: Duration = Duration::from_millis(1_500);
const SOON: Duration = Duration::from_secs(5);
