//! An instance without a process: a client of its own on a store in memory, and a runtime of its own
//! that can be stopped as dead as a killed process.

use std::sync::mpsc::{Sender, channel};
use std::thread;

use distlock::{LockClient, LockError, MemoryStore};
use tokio::sync::oneshot;

use crate::instance::{News, Order};
use crate::run::Instance;

pub(crate) struct StandIn {
    go: Option<oneshot::Sender<()>>,
    kill: Option<oneshot::Sender<()>>,
    /// Lets the thread end. Until then it keeps what a killed process would leave behind.
    end: Sender<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl StandIn {
    /// Starts an instance, which waits for [`go`](Instance::go). What it tells goes to `news`.
    pub(crate) fn start(
        order: &Order,
        store: &MemoryStore,
        news: Sender<(u32, News)>,
    ) -> Result<Self, LockError> {
        let locks = LockClient::builder().memory_store(store.clone()).build()?;
        let (go, started) = oneshot::channel();
        let (kill, killed) = oneshot::channel();
        let (end, ended) = channel();
        let order = order.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime needs no more than a few file descriptors");
            let instance = order.instance;
            let go = async {
                let _ = started.await;
            };
            let tell = move |told| {
                let _ = news.send((instance, told));
            };
            // Inside, the attribute uses this client: each instance has one of its own.
            runtime.spawn(async move {
                locks.scope_default(order.carry_out(go, tell)).await;
            });
            let _ = runtime.block_on(killed);
            // From here on nothing of the instance is polled. Its futures are not dropped before the
            // run has ended, since that would give the lock back.
            let _ = ended.recv();
        });
        Ok(Self { go: Some(go), kill: Some(kill), end, thread: Some(thread) })
    }
}

impl Instance for StandIn {
    fn go(&mut self) {
        self.go.take().map(|go| go.send(()));
    }

    fn kill(&mut self) {
        self.kill.take().map(|kill| kill.send(()));
    }

    fn process_id(&self) -> Option<u32> {
        None
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.kill();
        let _ = self.end.send(());
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}
