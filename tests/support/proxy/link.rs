//! One connection through the proxy.

use std::collections::VecDeque;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{self, Instant};

use super::super::resp::{Role, frame_length, role, words};
use super::gate::Keeper;
use super::rules::{Fate, Shared};

/// Carries one connection until an end closes it or the test cuts it.
///
/// Which cuts concern it is settled when this is called, not when it is first polled.
pub(super) fn run(
    client: TcpStream,
    upstream: SocketAddr,
    shared: Arc<Shared>,
) -> impl Future<Output = ()> + Send {
    let (cuts, holes) = {
        let state = shared.state();
        (state.cuts, state.holes)
    };
    carry(client, upstream, shared, (cuts, holes))
}

async fn carry(
    mut client: TcpStream,
    upstream: SocketAddr,
    shared: Arc<Shared>,
    (cuts, holes): (usize, usize),
) {
    let mut state = shared.watch();
    let carry = async {
        if shared.state().blackhole {
            pending::<()>().await;
        }
        let Ok(mut server) = TcpStream::connect(upstream).await else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let link = Link { shared: &shared, holes, progress: Mutex::default() };
        let (client_reader, client_writer) = client.split();
        let (server_reader, server_writer) = server.split();
        tokio::select! {
            () = link.carry_requests(client_reader, server_writer) => {}
            () = link.carry_replies(server_reader, client_writer) => {}
        }
        // Neither end may learn over a dead connection that the other has gone.
        if link.is_dead() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        () = carry => {}
        // The handle outlives its connections, so this waits for a cut and nothing else.
        _ = state.wait_for(|state| state.cuts != cuts) => {}
    }
    if shared.state().cuts != cuts && shared.state().reset {
        let _ = client.set_zero_linger();
    }
}

struct Link<'a> {
    shared: &'a Shared,
    /// How many black holes there were when the connection began.
    holes: usize,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// The requests that have no reply yet, oldest first.
    open: VecDeque<Open>,
    silent: bool,
    subscribed: bool,
}

struct Open {
    fate: Option<Fate>,
    /// How many confirmations stand for the reply, where the request changes subscriptions.
    confirmations: usize,
}

/// Something on its way through the proxy.
struct Parcel {
    bytes: Vec<u8>,
    due: Instant,
    gate: Option<Keeper>,
    /// In place of this parcel the connection falls silent.
    silence: bool,
}

impl Link<'_> {
    /// Ends when the client has closed and what it sent before has arrived.
    async fn carry_requests(&self, mut client: ReadHalf<'_>, server: WriteHalf<'_>) {
        let (parcels, arriving) = unbounded_channel();
        let read = async move {
            let mut buffer = Vec::new();
            while client.read_buf(&mut buffer).await.is_ok_and(|length| length > 0) {
                while let Some(length) = frame_length(&buffer) {
                    if self.request(buffer.drain(..length).collect(), &parcels).is_break() {
                        return;
                    }
                }
            }
        };
        tokio::join!(read, self.deliver(arriving, server));
    }

    /// Ends when the server has closed, or a rule cuts, and what was sent before has arrived.
    async fn carry_replies(&self, mut server: ReadHalf<'_>, client: WriteHalf<'_>) {
        let (parcels, arriving) = unbounded_channel();
        let read = async move {
            let mut buffer = Vec::new();
            while server.read_buf(&mut buffer).await.is_ok_and(|length| length > 0) {
                while let Some(length) = frame_length(&buffer) {
                    if self.reply(buffer.drain(..length).collect(), &parcels).is_break() {
                        return;
                    }
                }
            }
        };
        tokio::join!(read, self.deliver(arriving, client));
    }

    fn request(&self, mut bytes: Vec<u8>, parcels: &UnboundedSender<Parcel>) -> Flow {
        let words = words(&bytes);
        let Some(command) = words.first().map(|word| word.to_ascii_lowercase()) else {
            return Flow::Continue(());
        };
        let (fate, mut delay) = {
            let mut rules = self.shared.rules();
            (rules.meet(&words), rules.delay_requests)
        };
        let mut gate = None;
        let fate = match fate {
            Some(Fate::CutRequest) => return Flow::Break(()),
            Some(Fate::DelayRequest(longer)) => {
                delay += longer;
                None
            }
            Some(Fate::HoldRequest(keeper)) => {
                gate = Some(keeper);
                None
            }
            Some(Fate::Answer(reply)) => {
                // The server's answer to this keeps the place of the reply in the stream.
                bytes = b"*1\r\n$4\r\nPING\r\n".to_vec();
                Some(Fate::Answer(reply))
            }
            fate => fate,
        };
        let mut progress = self.progress();
        let changes_subscriptions = command.ends_with("subscribe");
        progress.subscribed |= changes_subscriptions;
        let confirmations =
            if changes_subscriptions { words.len().saturating_sub(1).max(1) } else { 0 };
        progress.open.push_back(Open { fate, confirmations });
        let _ = parcels.send(Parcel { bytes, due: Instant::now() + delay, gate, silence: false });
        Flow::Continue(())
    }

    fn reply(&self, mut bytes: Vec<u8>, parcels: &UnboundedSender<Parcel>) -> Flow {
        let mut delay = self.shared.rules().delay_replies;
        let mut gate = None;
        let mut silence = false;
        match self.answered(&bytes) {
            Some(Fate::Answer(reply)) => bytes = reply,
            Some(Fate::CutReply) => return Flow::Break(()),
            Some(Fate::DelayReply(longer)) => delay += longer,
            Some(Fate::HoldReply(keeper)) => gate = Some(keeper),
            Some(Fate::Silence) => silence = true,
            Some(Fate::CutRequest | Fate::DelayRequest(_) | Fate::HoldRequest(_)) | None => {}
        }
        let _ = parcels.send(Parcel { bytes, due: Instant::now() + delay, gate, silence });
        Flow::Continue(())
    }

    /// The fate of the request that this frame from the server answers.
    fn answered(&self, frame: &[u8]) -> Option<Fate> {
        let mut progress = self.progress();
        let role = role(frame, progress.subscribed);
        match role {
            Role::Message => None,
            Role::Reply => progress.open.pop_front()?.fate,
            Role::Confirmation => {
                let open = progress.open.front_mut()?;
                open.confirmations = open.confirmations.saturating_sub(1);
                // The rule meets the first of them, so that nothing is let through before it.
                let fate = open.fate.take();
                if open.confirmations == 0 {
                    progress.open.pop_front();
                }
                fate
            }
        }
    }

    async fn deliver(&self, mut arriving: UnboundedReceiver<Parcel>, mut to: WriteHalf<'_>) {
        let mut state = self.shared.watch();
        while let Some(parcel) = arriving.recv().await {
            time::sleep_until(parcel.due).await;
            if let Some(mut gate) = parcel.gate {
                gate.pass().await;
            }
            let _ = state.wait_for(|state| !state.stalled).await;
            if parcel.silence {
                self.progress().silent = true;
            }
            if self.is_dead() {
                continue;
            }
            let rate = self.shared.rules().bytes_per_second;
            let piece = rate.map_or(usize::MAX, |rate| (rate / PIECES_PER_SECOND).max(1) as usize);
            for bytes in parcel.bytes.chunks(piece) {
                if rate.is_some() {
                    time::sleep(Duration::from_secs(1) / PIECES_PER_SECOND).await;
                }
                // If the end has gone, the rest is for nobody; the reader of that end notices it.
                let _ = to.write_all(bytes).await;
            }
        }
    }

    /// Whether nothing passes over this connection any more.
    fn is_dead(&self) -> bool {
        let state = self.shared.state();
        state.blackhole || state.holes != self.holes || self.progress().silent
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("nothing panics under this lock")
    }
}

type Flow = std::ops::ControlFlow<()>;

const PIECES_PER_SECOND: u32 = 100;
