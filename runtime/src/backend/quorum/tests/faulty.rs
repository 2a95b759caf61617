//! A node in memory with a network in front of it: requests and replies take time, get lost, and
//! arrive after their connection was given up.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::{
    Acquired, Backend, BoxFuture, Channel, Contended, Drawn, DriverHome, Events, Holder, Lock,
    Released, Renewal, Renewed, StoreError, StoreErrorKind, StoreResult,
};
use crate::clock::Clock;

/// What happens to a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    /// How long it takes to the node; none if it never gets there.
    pub(super) to_node: Option<Duration>,
    /// How long the reply takes; none if it never arrives.
    pub(super) back: Option<Duration>,
}

impl Fate {
    pub(super) const PROMPT: Self =
        Self { to_node: Some(Duration::ZERO), back: Some(Duration::ZERO) };
    pub(super) const LOST: Self = Self { to_node: None, back: None };
    pub(super) const UNANSWERED: Self = Self { to_node: Some(Duration::ZERO), back: None };
}

/// Decides over each request by what it does.
pub(super) type Oracle = Arc<dyn Fn(What) -> Fate + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Take,
    Renew,
    Release,
    Other,
}

/// A node, as the test sees it.
#[derive(Clone)]
pub(super) struct Faulty {
    pub(super) store: MemoryStore,
    network: Arc<Network>,
}

struct Network {
    oracle: Mutex<Oracle>,
    /// Whether connections can be made.
    refused: Mutex<bool>,
    channels: Mutex<Vec<Weak<Link>>>,
}

/// One connection.
struct Link {
    closed: OnceLock<()>,
    last_arrival: Mutex<Option<Instant>>,
}

impl Faulty {
    pub(super) fn new() -> Self {
        let network = Network {
            oracle: Mutex::new(Arc::new(|_| Fate::PROMPT)),
            refused: Mutex::new(false),
            channels: Mutex::default(),
        };
        Self { store: MemoryStore::new(), network: Arc::new(network) }
    }

    pub(super) fn fates(&self, oracle: impl Fn(What) -> Fate + Send + Sync + 'static) {
        *self.network.oracle.lock().unwrap() = Arc::new(oracle);
    }

    pub(super) fn all(&self, fate: Fate) {
        self.fates(move |_| fate);
    }

    /// Ends all connections, and whether new ones can be made.
    pub(super) fn cut(&self, refused: bool) {
        *self.network.refused.lock().unwrap() = refused;
        for link in self.network.channels.lock().unwrap().drain(..) {
            if let Some(link) = link.upgrade() {
                let _ = link.closed.set(());
            }
        }
    }

    /// One client's way to the node.
    pub(super) fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(FaultyBackend {
            inner: Arc::new(MemoryBackend::new(&self.store)),
            network: Arc::clone(&self.network),
            channel: Mutex::new(None),
        })
    }
}

struct FaultyBackend {
    inner: Arc<MemoryBackend>,
    network: Arc<Network>,
    channel: Mutex<Option<Arc<FaultyChannel>>>,
}

impl FaultyBackend {
    fn wrap(&self, inner: Arc<dyn Channel>) -> Arc<FaultyChannel> {
        let link = Arc::new(Link { closed: OnceLock::new(), last_arrival: Mutex::new(None) });
        self.network.channels.lock().unwrap().push(Arc::downgrade(&link));
        Arc::new(FaultyChannel { inner, network: Arc::clone(&self.network), link })
    }

    fn refusal(&self) -> StoreResult<()> {
        if *self.network.refused.lock().unwrap() {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "refused"));
        }
        Ok(())
    }

    fn now(&self) -> StoreResult<Arc<dyn Channel>> {
        let mut slot = self.channel.lock().unwrap();
        if let Some(channel) = slot.as_ref().filter(|channel| channel.is_open()) {
            return Ok(Arc::clone(channel) as Arc<dyn Channel>);
        }
        self.refusal()?;
        let channel = self.wrap(self.inner.channel().unwrap());
        *slot = Some(Arc::clone(&channel));
        Ok(channel)
    }
}

impl Backend for FaultyBackend {
    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn driver_home(&self) -> DriverHome {
        DriverHome::Caller
    }

    fn channel(&self) -> Option<Arc<dyn Channel>> {
        self.now().ok()
    }

    fn open(&self) -> BoxFuture<StoreResult<Arc<dyn Channel>>> {
        let opened = self.now();
        Box::pin(async move { opened })
    }

    fn open_listening(&self, events: Weak<dyn Events>) -> BoxFuture<StoreResult<Arc<dyn Channel>>> {
        let refusal = self.refusal();
        let inner = self.inner.open_listening(events);
        // A store in memory opens at once.
        let inner = futures_now(inner);
        let wrapped = refusal.and(inner).map(|inner| self.wrap(inner) as Arc<dyn Channel>);
        Box::pin(async move { wrapped })
    }
}

fn futures_now<T>(mut future: BoxFuture<T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("a store in memory answers at once"),
    }
}

struct FaultyChannel {
    inner: Arc<dyn Channel>,
    network: Arc<Network>,
    link: Arc<Link>,
}

impl FaultyChannel {
    fn through<T: Send + 'static>(
        &self,
        what: What,
        request: BoxFuture<StoreResult<T>>,
    ) -> BoxFuture<StoreResult<T>> {
        let (network, link) = (Arc::clone(&self.network), Arc::clone(&self.link));
        Box::pin(async move {
            let closed = || Err(StoreError::new(StoreErrorKind::Unavailable, "cut"));
            if link.closed.get().is_some() {
                return closed();
            }
            let oracle = Arc::clone(&network.oracle.lock().unwrap());
            let fate = oracle(what);
            let Some(to_node) = fate.to_node else { return std::future::pending().await };
            let prompt = to_node.is_zero() && link.last_arrival.lock().unwrap().is_none();
            if prompt && fate.back == Some(Duration::ZERO) {
                return request.await;
            }
            // It arrives whatever becomes of the caller, and in its turn.
            let arrival = {
                let mut last = link.last_arrival.lock().unwrap();
                let after_last = last.map(|last| last + Duration::from_millis(1));
                let arrival = after_last.unwrap_or_else(Instant::now).max(Instant::now() + to_node);
                *last = Some(arrival);
                arrival
            };
            let (sender, reply) = oneshot::channel();
            tokio::spawn(async move {
                sleep_until(arrival).await;
                let _ = sender.send(request.await);
            });
            let Some(back) = fate.back else { return std::future::pending().await };
            let reply = reply.await;
            tokio::time::sleep(back).await;
            if link.closed.get().is_some() {
                return closed();
            }
            reply.unwrap_or_else(|_| closed())
        })
    }
}

impl Channel for FaultyChannel {
    fn is_open(&self) -> bool {
        self.link.closed.get().is_none()
    }

    fn answers_within(&self) -> Duration {
        Duration::MAX
    }

    fn retire(&self, _key: &str) {
        let _ = self.link.closed.set(());
    }

    fn acquire(&self, lock: &Lock, lease: Duration) -> BoxFuture<StoreResult<Acquired>> {
        self.through(What::Take, self.inner.acquire(lock, lease))
    }

    fn contend(
        &self,
        lock: &Lock,
        lease: Duration,
        keep: Duration,
    ) -> BoxFuture<StoreResult<Contended>> {
        self.through(What::Take, self.inner.contend(lock, lease, keep))
    }

    fn draw(&self, lock: &Lock, take: Option<Duration>) -> BoxFuture<StoreResult<Drawn>> {
        self.through(What::Take, self.inner.draw(lock, take))
    }

    fn renew(&self, batch: &[Renewal]) -> BoxFuture<StoreResult<Vec<Renewed>>> {
        self.through(What::Renew, self.inner.renew(batch))
    }

    fn release(&self, lock: &Lock, claim: Duration) -> BoxFuture<StoreResult<Released>> {
        self.through(What::Release, self.inner.release(lock, claim))
    }

    fn inspect(&self, key: &Arc<str>) -> BoxFuture<StoreResult<Option<Holder>>> {
        self.through(What::Other, self.inner.inspect(key))
    }

    fn raise(&self, lock: &Lock, token: u64) -> BoxFuture<StoreResult<Drawn>> {
        self.through(What::Other, self.inner.raise(lock, token))
    }

    fn wake(&self, key: &Arc<str>, claim: Duration) -> BoxFuture<StoreResult<bool>> {
        self.through(What::Other, self.inner.wake(key, claim))
    }

    fn delivers_events(&self) -> bool {
        true
    }
}

impl fmt::Debug for FaultyBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyBackend").finish_non_exhaustive()
    }
}

impl fmt::Debug for FaultyChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyChannel").finish_non_exhaustive()
    }
}
