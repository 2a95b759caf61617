//! What an error of the lock means to whoever asked: one table for HTTP and gRPC.

use http::StatusCode;

use crate::error::{LockError, LockErrorKind};
use crate::telemetry;

/// What is said to the client, in both protocols.
#[derive(Debug)]
pub(crate) struct Meaning {
    pub(crate) status: StatusCode,
    pub(crate) grpc_code: u8,
    /// The end of the problem's `type`; never changes.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) detail: &'static str,
    cause: Cause,
}

/// Whose doing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// A fault in how the lock is mounted or set; it does not go away by itself.
    Service,
    /// The way of the world.
    World,
}

/// Whether the wait was cut short by the asker's own deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    ByDeadline,
    No,
}

impl Meaning {
    /// Traces that `error` was answered so.
    pub(crate) fn report(&self, error: &LockError) {
        match self.cause {
            Cause::Service => telemetry::route_misconfigured(error),
            Cause::World => telemetry::request_rejected(error),
        }
    }
}

pub(crate) fn meaning(kind: LockErrorKind, cut: Cut) -> Meaning {
    match kind {
        LockErrorKind::Timeout if cut == Cut::ByDeadline => Meaning {
            status: StatusCode::SERVICE_UNAVAILABLE,
            grpc_code: DEADLINE_EXCEEDED,
            name: "deadline",
            title: "No time left",
            detail: "The request's own deadline passed before its turn came. Nothing was done.",
            cause: Cause::World,
        },
        LockErrorKind::Timeout => Meaning {
            status: StatusCode::LOCKED,
            grpc_code: ABORTED,
            name: "busy",
            title: "Busy",
            detail: "Another request is working on this. Nothing was done; try again later.",
            cause: Cause::World,
        },
        LockErrorKind::QueueFull => Meaning {
            status: StatusCode::TOO_MANY_REQUESTS,
            grpc_code: RESOURCE_EXHAUSTED,
            name: "queue-full",
            title: "Too many requests are waiting",
            detail: "Too many requests wait for this already. Nothing was done; try again later.",
            cause: Cause::World,
        },
        LockErrorKind::Backend => Meaning {
            status: StatusCode::SERVICE_UNAVAILABLE,
            grpc_code: UNAVAILABLE,
            name: "unavailable",
            title: "Locking is unavailable",
            detail: "The lock service does not answer. Nothing was done; try again later.",
            cause: Cause::World,
        },
        LockErrorKind::Lost { completed: false } => Meaning {
            status: StatusCode::SERVICE_UNAVAILABLE,
            grpc_code: ABORTED,
            name: "lost",
            title: "Interrupted",
            detail: "The lock was lost while the request was worked on. Whether it was carried out \
                     is unknown; check before trying again.",
            cause: Cause::World,
        },
        LockErrorKind::Lost { completed: true } => Meaning {
            status: StatusCode::SERVICE_UNAVAILABLE,
            grpc_code: ABORTED,
            name: "lost-completed",
            title: "Carried out without the lock",
            detail: "The request was carried out, but its lock was lost before the end, so another \
                     one may have been worked on at the same time; check before trying again.",
            cause: Cause::World,
        },
        LockErrorKind::HoldLimit => Meaning {
            status: StatusCode::SERVICE_UNAVAILABLE,
            grpc_code: DEADLINE_EXCEEDED,
            name: "hold-limit",
            title: "Took too long",
            detail: "The request took longer than it may and was stopped. Whether it was carried \
                     out is unknown; check before trying again.",
            cause: Cause::World,
        },
        LockErrorKind::ShutDown => Meaning {
            status: StatusCode::SERVICE_UNAVAILABLE,
            grpc_code: UNAVAILABLE,
            name: "shut-down",
            title: "Shutting down",
            detail: "This instance is shutting down; ask another one.",
            cause: Cause::World,
        },
        LockErrorKind::InvalidKey => Meaning {
            status: StatusCode::BAD_REQUEST,
            grpc_code: INVALID_ARGUMENT,
            name: "invalid-key",
            title: "Invalid request",
            detail: "A part of the request that names what to work on is missing, malformed or too \
                     long. Nothing was done.",
            cause: Cause::World,
        },
        LockErrorKind::Config
        | LockErrorKind::ForeignValue
        | LockErrorKind::NotInstalled
        | LockErrorKind::Reentrant => Meaning {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            grpc_code: INTERNAL,
            name: "internal",
            title: "Internal error",
            detail: "The lock of this route is not set up correctly.",
            cause: Cause::Service,
        },
    }
}

// https://grpc.github.io/grpc/core/md_doc_statuscodes.html
const INVALID_ARGUMENT: u8 = 3;
const DEADLINE_EXCEEDED: u8 = 4;
const RESOURCE_EXHAUSTED: u8 = 8;
const ABORTED: u8 = 10;
const INTERNAL: u8 = 13;
const UNAVAILABLE: u8 = 14;
