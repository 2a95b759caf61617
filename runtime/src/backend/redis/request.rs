//! The requests, encoded, and how to say them again to a server that does not understand.

use std::time::Duration;

use redis::{Arg, Cmd, RedisError};

use super::error;
#[cfg(feature = "cluster")]
use super::fence;
use super::fence::FenceKey;
use super::script::{self, Script};
use super::server::Server;
use super::slot::SideKey;
use crate::backend::{Lock, Renewal};

#[derive(Debug)]
pub(super) struct Request {
    command: Cmd,
    role: Role,
    form: Form,
}

/// What the order among requests matters for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Ends a hold or a place: nothing of its owner may take effect after it.
    Ends,
    /// Changes nothing that a late arrival could spoil.
    Harmless,
    /// May begin a hold or a place.
    Takes,
}

#[derive(Debug)]
enum Form {
    /// `SET` with NX and GET.
    OneCommand,
    /// A command that every server has.
    Plain,
    Script(&'static Script),
}

impl Request {
    pub(super) fn acquire(lock: &Lock, lease: Duration, server: &Server) -> Self {
        if server.sets_and_gets() {
            let command = Self::set(lock, lease);
            Self { command, role: Role::Takes, form: Form::OneCommand }
        } else {
            let mut command = script::ACQUIRE.call(1);
            command.arg(&*lock.key).arg(&*lock.owner).arg(millis(lease));
            Self { command, role: Role::Takes, form: Form::Script(&script::ACQUIRE) }
        }
    }

    /// Takes a lock and names its owner.
    pub(super) fn set(lock: &Lock, lease: Duration) -> Cmd {
        let mut command = Cmd::with_capacity(7, 64 + lock.key.len() + lock.owner.len());
        command.arg("SET").arg(&*lock.key).arg(&*lock.owner);
        command.arg("NX").arg("GET").arg("PX").arg(millis(lease));
        command
    }

    /// With an empty `channel` for a contender that cannot hear.
    pub(super) fn contend(lock: &Lock, lease: Duration, keep: Duration, channel: &str) -> Self {
        let mut command = script::CONTEND.call(3);
        add_keys(&mut command, &lock.key);
        command.arg(&*lock.owner).arg(millis(lease)).arg(millis(keep)).arg(channel);
        Self { command, role: Role::Takes, form: Form::Script(&script::CONTEND) }
    }

    pub(super) fn draw(lock: &Lock, fence: FenceKey, take: Option<Duration>) -> Self {
        let mut command = script::DRAW.call(2);
        command.arg(&*lock.key).arg(fence).arg(&*lock.owner).arg(take.map_or(0, millis));
        let role = if take.is_some() { Role::Takes } else { Role::Harmless };
        Self { command, role, form: Form::Script(&script::DRAW) }
    }

    pub(super) fn renew(batch: &[Renewal]) -> Self {
        let mut command = script::RENEW.call(batch.len());
        for renewal in batch {
            command.arg(&*renewal.lock.key);
        }
        for renewal in batch {
            command.arg(&*renewal.lock.owner).arg(millis(renewal.lease));
        }
        Self { command, role: Role::Harmless, form: Form::Script(&script::RENEW) }
    }

    /// With a `claim` of zero nobody is granted a lock or told of it.
    pub(super) fn release(locks: &[Lock], claim: Duration) -> Self {
        let mut command = script::RELEASE.call(3 * locks.len());
        for lock in locks {
            add_keys(&mut command, &lock.key);
        }
        command.arg(if claim.is_zero() { 0 } else { millis(claim) });
        for lock in locks {
            command.arg(&*lock.owner);
        }
        Self { command, role: Role::Ends, form: Form::Script(&script::RELEASE) }
    }

    pub(super) fn raise(lock: &Lock, fence: FenceKey, token: u64) -> Self {
        let mut command = script::RAISE.call(2);
        command.arg(&*lock.key).arg(fence).arg(&*lock.owner).arg(token);
        Self { command, role: Role::Harmless, form: Form::Script(&script::RAISE) }
    }

    /// Tells the next contender that the lock may be free.
    pub(super) fn wake(key: &str, claim: Duration) -> Self {
        let mut command = script::WAKE.call(2);
        command.arg(SideKey::queue(key)).arg(SideKey::waiters(key)).arg(key).arg(millis(claim));
        Self { command, role: Role::Harmless, form: Form::Script(&script::WAKE) }
    }

    /// How many replicas have what was written on this connection.
    pub(super) fn wait(replicas: u32, within: Duration) -> Self {
        let mut command = redis::cmd("WAIT");
        command.arg(replicas).arg(millis(within));
        Self { command, role: Role::Harmless, form: Form::Plain }
    }

    /// Renews locks in any slots of one node of a cluster.
    #[cfg(feature = "cluster")]
    pub(super) fn renew_together(batch: &[Renewal]) -> Self {
        let mut command = script::RENEW_TOGETHER.call(0);
        for renewal in batch {
            command.arg(&*renewal.lock.key).arg(&*renewal.lock.owner).arg(millis(renewal.lease));
        }
        Self { command, role: Role::Harmless, form: Form::Script(&script::RENEW_TOGETHER) }
    }

    /// Draws a token without a look at the lock.
    #[cfg(feature = "cluster")]
    pub(super) fn draw_alone(fence: FenceKey) -> Self {
        Self { command: fence::draw_or_create(fence), role: Role::Harmless, form: Form::Plain }
    }

    /// Releases without a look at the queue.
    #[cfg(feature = "cluster")]
    pub(super) fn release_alone(lock: &Lock) -> Self {
        let mut command = script::RELEASE_ALONE.call(1);
        command.arg(&*lock.key).arg(&*lock.owner);
        Self { command, role: Role::Ends, form: Form::Script(&script::RELEASE_ALONE) }
    }

    pub(super) fn inspect(key: &str) -> Self {
        let mut command = script::INSPECT.call(1);
        command.arg(key);
        Self { command, role: Role::Harmless, form: Form::Script(&script::INSPECT) }
    }

    pub(super) fn command(&self) -> &Cmd {
        &self.command
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// The same request for a server that answered `error` for lack of words: it did nothing yet.
    pub(super) fn in_other_words(&self, error: &RedisError, server: &Server) -> Option<Cmd> {
        match self.form {
            Form::OneCommand if error::is_syntax_error(error) => {
                server.mark_old();
                let mut call = script::ACQUIRE.call(1);
                // Of SET key owner NX GET PX lease_ms.
                for (index, arg) in self.command.args_iter().enumerate() {
                    if let (1 | 2 | 6, Arg::Simple(bytes)) = (index, arg) {
                        call.arg(bytes);
                    }
                }
                Some(script::ACQUIRE.call_in_full(&call))
            }
            Form::Script(script) if error::is_unknown_script(error) => {
                Some(script.call_in_full(&self.command))
            }
            _ => None,
        }
    }
}

fn add_keys(command: &mut Cmd, key: &str) {
    command.arg(key).arg(SideKey::queue(key)).arg(SideKey::waiters(key));
}

/// Whole milliseconds, rounded down: the server may forget earlier than we think, within the drift
/// that the local deadline allows for, never later. Zero would be an error to the server, and so
/// would what its clock cannot hold.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, MAX_MILLIS)
}

const MAX_MILLIS: u64 = 1 << 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_stay_within_what_a_server_takes() {
        assert_eq!(millis(Duration::ZERO), 1);
        assert_eq!(millis(Duration::from_micros(1999)), 1);
        assert_eq!(millis(Duration::from_secs(10)), 10_000);
        assert_eq!(millis(Duration::MAX), MAX_MILLIS);
    }
}
