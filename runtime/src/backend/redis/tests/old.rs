//! Servers older than Redis 7.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::*;

#[tokio::test]
async fn an_old_server_is_remembered_and_asked_by_script() {
    let server = RedisServer::start();
    let proxy = OldServer::Secretly.in_front_of(&server);
    let backend = RedisBackend::new(config_from_url(&proxy).unwrap());
    let channel = backend.open().await.unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|owner| lock("k", owner));
    assert!(backend.server.sets_and_gets());
    hold(&*channel, &ours).await;
    assert!(!backend.server.sets_and_gets());
    // From here on by the script at once.
    let held = channel.acquire(&theirs, LEASE).await.unwrap();
    assert_eq!(held, Acquired::HeldBy("ours".into()));
    let ttl_ms: i64 = server.run(&["PTTL", "k"]);
    assert!(ttl_ms > 0 && ttl_ms <= LEASE.as_millis().try_into().unwrap());
    server.run::<()>(&["RPUSH", "list", "x"]);
    let foreign = channel.acquire(&lock("list", "ours"), LEASE).await;
    assert_eq!(kind_of(foreign), StoreErrorKind::Foreign);
    assert_eq!(channel.release(&ours, CLAIM).await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn an_acquire_said_again_never_takes_what_a_later_release_gave_back() {
    let server = RedisServer::start();
    let proxy = OldServer::Secretly.in_front_of(&server);
    for _ in 0..20 {
        let backend = RedisBackend::new(config_from_url(&proxy).unwrap());
        let channel = backend.open().await.unwrap();
        let ours = lock("k", "ours");
        let acquiring = channel.acquire(&ours, LEASE);
        let (acquired, released) =
            tokio::join!(biased; acquiring, async { channel.release(&ours, CLAIM).await });
        assert_eq!(kind_of(acquired), StoreErrorKind::Unavailable);
        assert_eq!(released.unwrap(), Released::Gone);
        assert_eq!(server.run::<Option<String>>(&["GET", "k"]), None);
    }
}

#[tokio::test]
async fn a_server_that_says_that_it_is_old_is_asked_by_script_from_the_start() {
    let server = RedisServer::start();
    let backend =
        RedisBackend::new(config_from_url(&OldServer::Openly.in_front_of(&server)).unwrap());
    let channel = backend.open().await.unwrap();
    assert!(!backend.server.sets_and_gets());
    hold(&*channel, &lock("k", "ours")).await;
    // Known before the first request, so nothing had to be said again.
    let calls: String = server.run(&["INFO", "commandstats"]);
    assert!(calls.contains("cmdstat_evalsha:calls=1,"), "{calls}");
}

/// Answers NX together with GET as a server before Redis 7 does, and hands on all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OldServer {
    /// It names a version that would know better, as the one behind it is.
    Secretly,
    /// It names such a version.
    Openly,
}

impl OldServer {
    /// Returns its URL. It ends with the server's connections and the test's process.
    fn in_front_of(self, server: &RedisServer) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let address = server.address();
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let server = TcpStream::connect(&address).unwrap();
                let replies = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || self.copy_replies(replies.0, replies.1));
                thread::spawn(move || Self::copy_requests(client, server));
            }
        });
        url
    }

    fn copy_requests(mut client: TcpStream, mut server: TcpStream) {
        let mut buffer = [0; 16 * 1024];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            let mut requests = &buffer[..length];
            // A SET of ours is whole in one read and comes first, if at all: it is small, and sent
            // at once.
            if requests.starts_with(b"*7\r\n$3\r\nSET\r\n") {
                let end = Self::end_of_request(requests);
                client.write_all(b"-ERR syntax error\r\n").unwrap();
                requests = &requests[end..];
            }
            server.write_all(requests).unwrap();
        }
    }

    fn copy_replies(self, mut server: TcpStream, mut client: TcpStream) {
        let mut buffer = [0; 16 * 1024];
        while let Ok(length @ 1..) = server.read(&mut buffer) {
            // The reply to HELLO is whole in one read: the client waits for it.
            let after = |at: usize, what: &[u8]| {
                let found = buffer[at..length].windows(what.len()).position(|here| here == what);
                found.map(|found| at + found + what.len())
            };
            let version = after(0, b"version\r\n$").and_then(|at| after(at, b"\r\n"));
            if let (Self::Openly, Some(at)) = (self, version) {
                buffer[at] = b'6';
            }
            if client.write_all(&buffer[..length]).is_err() {
                return;
            }
        }
    }

    /// Seven arguments of two lines each, after one line that counts them.
    fn end_of_request(requests: &[u8]) -> usize {
        let ends = requests.windows(2).enumerate().filter(|(_, window)| *window == b"\r\n");
        ends.map(|(at, _)| at + 2).nth(2 * 7).unwrap()
    }
}
