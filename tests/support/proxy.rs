//! A TCP proxy in front of a server, which makes the faults of a network.
//!
//! It runs on a thread of its own, so it works on while the runtime of the test is blocked, paused or
//! gone. What it does to single requests follows the Redis protocol: a rule names the first words of a
//! request, such as `"SET"` or `"CLIENT KILL"`, and meets the next request that begins so, on any
//! connection. As on a real network nothing is lost from the middle of a stream: where a reply is
//! dropped, nothing follows it on that connection.

mod gate;
mod link;
mod rules;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use self::rules::{Fate, Shared};
use super::port::free_port;

pub(crate) use self::gate::Gate;

/// A running proxy. It starts without a fault; its connections end with it.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    doors: Option<UnboundedSender<Door>>,
    thread: Option<JoinHandle<()>>,
}

/// What the listening socket is to do, and whom to tell when it is done.
#[derive(Debug)]
enum Door {
    Close(mpsc::Sender<()>),
    Open(mpsc::Sender<()>),
}

impl Proxy {
    /// Starts a proxy in front of `upstream`.
    pub(crate) fn start(upstream: SocketAddr) -> Self {
        let address = (Ipv4Addr::LOCALHOST, free_port()).into();
        let shared = Arc::new(Shared::default());
        let (doors, commands) = unbounded_channel();
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || {
                let runtime = runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(serve(
                    address,
                    upstream,
                    &for_thread,
                    commands,
                ));
            })
            .expect("a thread");
        let proxy = Self { address, shared, doors: Some(doors), thread: Some(thread) };
        proxy.door(Door::Open);
        proxy
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for a client of a Redis server behind the proxy.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Every request so far, over all connections, its words joined by blanks; long words are cut.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.rules().requests.clone()
    }

    /// How many connections were accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.state().accepted
    }

    // Faults of the whole network; `heal` ends them.

    /// From now on every request arrives at the server this much later.
    pub(crate) fn delay_requests(&self, delay: Duration) {
        self.shared.rules().delay_requests = delay;
    }

    /// From now on everything from the server arrives this much later.
    pub(crate) fn delay_replies(&self, delay: Duration) {
        self.shared.rules().delay_replies = delay;
    }

    /// From now on at most this many bytes a second pass, per connection and direction.
    pub(crate) fn throttle(&self, bytes_per_second: u32) {
        self.shared.rules().bytes_per_second = Some(bytes_per_second);
    }

    /// Holds back what is sent, both ways; connections stay open. `heal` lets it through, as when a
    /// network comes back within the patience of TCP.
    pub(crate) fn stall(&self) {
        self.shared.change(|state| state.stalled = true);
    }

    /// Swallows what is sent, both ways; connections stay open, new ones are accepted. A connection
    /// that was open meanwhile stays dead after `heal`, as when a firewall has forgotten it.
    pub(crate) fn blackhole(&self) {
        self.shared.change(|state| {
            state.blackhole = true;
            state.holes += 1;
        });
    }

    /// Refuses new connections; open ones are left alone. Returns when it is so.
    pub(crate) fn refuse(&self) {
        self.door(Door::Close);
    }

    /// Closes all connections (FIN). New ones are accepted.
    pub(crate) fn cut(&self) {
        self.shared.change(|state| {
            state.reset = false;
            state.cuts += 1;
        });
    }

    /// Resets all connections (RST). New ones are accepted.
    pub(crate) fn reset(&self) {
        self.shared.change(|state| {
            state.reset = true;
            state.cuts += 1;
        });
    }

    /// Ends all lasting faults and forgets the rules for single requests that have met none.
    pub(crate) fn heal(&self) {
        self.shared.rules().heal();
        self.shared.change(|state| {
            state.blackhole = false;
            state.stalled = false;
        });
        self.door(Door::Open);
    }

    // Faults of one request.

    /// The server runs the next such request; its reply is lost, and the connection is dead from then
    /// on but stays open: the client learns of it by its own time-out only.
    pub(crate) fn drop_next_reply(&self, command: &str) {
        self.next(command, Fate::Silence);
    }

    /// The server runs the next such request; its reply is lost, since the connection is cut.
    pub(crate) fn cut_at_next_reply(&self, command: &str) {
        self.next(command, Fate::CutReply);
    }

    /// The connection is cut at the next such request, which the server never sees.
    pub(crate) fn cut_at_next_request(&self, command: &str) {
        self.next(command, Fate::CutRequest);
    }

    /// The reply to the next such request, and what follows it on its connection, comes this late.
    pub(crate) fn delay_next_reply(&self, command: &str, delay: Duration) {
        self.next(command, Fate::DelayReply(delay));
    }

    /// The next such request, and what follows it on its connection, arrives this late.
    pub(crate) fn delay_next_request(&self, command: &str, delay: Duration) {
        self.next(command, Fate::DelayRequest(delay));
    }

    /// The server runs the next such request; its reply waits until the test opens the gate.
    pub(crate) fn hold_next_reply(&self, command: &str) -> Gate {
        let gate = Gate::new(format!("reply to {command}"));
        self.next(command, Fate::HoldReply(gate.keeper()));
        gate
    }

    /// The next such request waits in front of the server until the test opens the gate.
    pub(crate) fn hold_next_request(&self, command: &str) -> Gate {
        let gate = Gate::new(format!("request {command}"));
        self.next(command, Fate::HoldRequest(gate.keeper()));
        gate
    }

    /// The next such request gets this reply, such as `"-LOADING Redis is loading"`, and the server
    /// never sees it.
    pub(crate) fn answer_next(&self, command: &str, reply: &str) {
        self.next(command, Fate::Answer(format!("{reply}\r\n").into_bytes()));
    }

    fn next(&self, command: &str, fate: Fate) {
        self.shared.rules().add(command, fate);
    }

    fn door(&self, command: impl FnOnce(mpsc::Sender<()>) -> Door) {
        let (done, is_done) = mpsc::channel();
        let doors = self.doors.as_ref().expect("taken at drop only");
        let _ = doors.send(command(done));
        is_done.recv().expect("the proxy's thread has panicked: see above");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.doors.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts connections until the handle is gone.
async fn serve(
    address: SocketAddr,
    upstream: SocketAddr,
    shared: &Arc<Shared>,
    mut doors: UnboundedReceiver<Door>,
) {
    let mut listener: Option<TcpListener> = None;
    loop {
        let accept = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A closed door must not let in who knocks at the same moment.
            biased;
            door = doors.recv() => {
                let done = match door {
                    Some(Door::Close(done)) => {
                        listener = None;
                        done
                    }
                    Some(Door::Open(done)) => {
                        if listener.is_none() {
                            let bound = TcpListener::bind(address).await;
                            listener = Some(bound.expect("the port of the proxy is still free"));
                        }
                        done
                    }
                    None => return,
                };
                let _ = done.send(());
            }
            accepted = accept => {
                if let Ok((client, _)) = accepted {
                    // Made before it is counted: who sees the count may cut the connection.
                    let link = link::run(client, upstream, Arc::clone(shared));
                    shared.change(|state| state.accepted += 1);
                    tokio::spawn(link);
                }
            }
        }
    }
}
