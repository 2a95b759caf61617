//! A look at the sentinels while connections are open.
//!
//! A master that died closes its connections. One that was replaced on an operator's order goes on for
//! some seconds until it is made a replica, and one that was cut off from the sentinels and not from us
//! until it is found again: both grant locks that the new master grants too. So every sentinel is asked
//! as soon as it announces a promotion, and once a second, since an announcement may be missed or
//! forbidden. When one names another master of a later epoch, which only a vote of a majority can give
//! it, what leads to the earlier one is closed. Where all sentinels are out of reach nobody can tell;
//! there `min-replicas-to-write` on the servers helps.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::{ConnectionInfo, PushInfo, RedisError};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::super::line::{Line, within};
use super::super::server::Server;
use super::Sentinels;
use super::ask::{ask, options};

/// The open connections of a client, and whether they are watched over.
#[derive(Debug, Default)]
pub(in super::super) struct Watch {
    lines: Mutex<Vec<Weak<Line>>>,
    /// Runs on the driver's runtime, which is always polled.
    by_driver: AtomicBool,
    /// Runs on a caller's, as long as there is none by the driver.
    by_caller: AtomicBool,
}

/// A watch that runs; its tasks share it.
struct Running {
    server: Arc<Server>,
    sentinels: Sentinels,
    by_driver: bool,
}

impl Watch {
    /// Watches over `line` from now on. Must be called on its runtime.
    pub(in super::super) fn add(server: &Arc<Server>, sentinels: &Sentinels, line: &Arc<Line>) {
        let watch = &server.watch;
        {
            let mut lines = watch.lines();
            lines.retain(|line| line.upgrade().is_some_and(|line| line.is_open()));
            lines.push(Arc::downgrade(line));
        }
        let by_driver = line.is_listening();
        if !by_driver && watch.by_driver.load(Ordering::Relaxed) {
            return;
        }
        // The flag orders nothing: it only keeps a second watch from starting.
        if watch.flag(by_driver).swap(true, Ordering::Relaxed) {
            return;
        }
        let (server, sentinels) = (Arc::clone(server), sentinels.clone());
        let running = Arc::new(Running { server, sentinels, by_driver });
        for sentinel in running.sentinels.sentinels.iter() {
            tokio::spawn(Arc::clone(&running).watch(sentinel.clone()));
        }
    }

    fn flag(&self, by_driver: bool) -> &AtomicBool {
        if by_driver { &self.by_driver } else { &self.by_caller }
    }

    fn open_lines(&self) -> Vec<Arc<Line>> {
        let lines = self.lines();
        lines.iter().filter_map(Weak::upgrade).filter(|line| line.is_open()).collect()
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Weak<Line>>> {
        // Any list of weak references is a whole one.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    async fn watch(self: Arc<Self>, sentinel: ConnectionInfo) {
        while self.is_needed() {
            self.follow(&sentinel).await;
            sleep(EVERY).await;
        }
    }

    fn is_needed(&self) -> bool {
        let watch = &self.server.watch;
        let superseded = !self.by_driver && watch.by_driver.load(Ordering::Relaxed);
        !superseded && !watch.open_lines().is_empty()
    }

    /// Asks one sentinel again and again, until it does not answer or nobody needs to know.
    async fn follow(&self, sentinel: &ConnectionInfo) -> Option<()> {
        let config = &self.server.config;
        let news = Arc::new(Notify::new());
        let heard = Arc::clone(&news);
        let options = options().set_push_sender(move |_: PushInfo| {
            heard.notify_one();
            Ok::<_, RedisError>(())
        });
        let connecting = async {
            let (mut connection, reader) = self.server.dialer.dial(sentinel, &options).await?;
            // Forbidden, it goes by the clock alone.
            let _ = connection.subscribe(&ANNOUNCEMENTS[..]).await;
            Ok::<_, RedisError>((connection, reader))
        };
        let (mut connection, _reader) =
            within(config.connect_timeout, pin!(connecting)).await?.ok()?;
        while self.is_needed() {
            let asking = ask(&mut connection, &self.sentinels.service);
            let named = within(config.response_timeout, pin!(asking)).await?.ok()??;
            let found = self.sentinels.at(&named);
            // Before anything is closed: what is opened instead must not go where it was.
            self.server.moved(found.epoch);
            for line in self.server.watch.open_lines() {
                line.outdated_by(&found);
            }
            tokio::select! {
                () = news.notified() => {}
                () = sleep(EVERY) => {}
            }
        }
        Some(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.watch.flag(self.by_driver).store(false, Ordering::Relaxed);
    }
}

const EVERY: Duration = Duration::from_secs(1);
/// The sentinel that leads a failover knows first, the others by its word.
const ANNOUNCEMENTS: [&str; 2] = ["+promoted-slave", "+switch-master"];
