//! What went wrong, for the caller to decide on: one opaque error with a kind.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a lock was not obtained, or was lost.
///
/// The [`kind`](Self::kind) says what to do; the text names the key, the owner and the time spent.
///
/// ```
/// # async fn demo(locks: distlock::LockClient) -> Result<(), distlock::LockError> {
/// use distlock::{LockErrorKind, LockKey};
///
/// match locks.lock(LockKey::literal("jobs:nightly")).acquire().await {
///     Ok(guard) => guard.release().await?,
///     Err(error) if error.kind() == LockErrorKind::Timeout => println!("another instance runs it"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
pub struct LockError(Box<Inner>);

struct Inner {
    kind: LockErrorKind,
    message: Cow<'static, str>,
    key: Option<Arc<str>>,
    owner: Option<Arc<str>>,
    waited: Option<Duration>,
    retry_after: Option<Duration>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What kind of thing went wrong, and so what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockErrorKind {
    /// The store could not be asked, or refused: unreachable, silent, wrong password, read-only.
    Backend,
    /// A setting cannot work; the text names it. Fix the code.
    Config,
    /// Under the key stands a value that is no lock (another type, or a string without TTL). It is
    /// left untouched. Choose another key or remove the value.
    ForeignValue,
    /// `max_hold` ran out: the body was cancelled.
    HoldLimit,
    /// A part of the key is empty, or the key is too long. Nothing was sent.
    InvalidKey,
    /// The hold was not confirmed in time, or the store says that another owner has it.
    Lost {
        /// The body ran to its end (`strict`), so its effects are there, but perhaps not alone.
        completed: bool,
    },
    /// No default client is installed and the call names none.
    NotInstalled,
    /// `max_waiters` callers of this process already wait for the key.
    QueueFull,
    /// The calling chain holds this key already and `reentrant` is off.
    Reentrant,
    /// The client was shut down.
    ShutDown,
    /// Another owner held the lock for the whole `wait`.
    Timeout,
}

impl LockError {
    pub(crate) fn new(kind: LockErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            key: None,
            owner: None,
            waited: None,
            retry_after: None,
            source: None,
        }))
    }

    #[must_use]
    pub(crate) fn with_key(mut self, key: &Arc<str>) -> Self {
        self.0.key = Some(Arc::clone(key));
        self
    }

    #[must_use]
    pub(crate) fn with_owner(mut self, owner: Option<Arc<str>>) -> Self {
        self.0.owner = owner;
        self
    }

    #[must_use]
    pub(crate) fn with_waited(mut self, waited: Duration) -> Self {
        self.0.waited = Some(waited);
        self
    }

    #[must_use]
    pub(crate) fn with_retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.0.retry_after = retry_after;
        self
    }

    #[must_use]
    pub(crate) fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Box::new(source));
        self
    }

    /// What kind of thing went wrong.
    #[must_use]
    pub fn kind(&self) -> LockErrorKind {
        self.0.kind
    }

    /// The key in question, as it stands in the store.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// Who held the lock when it was last seen, as `<instance>/<uuid>` for an owner of this library.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.0.owner.as_deref()
    }

    /// How long the call tried.
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        self.0.waited
    }

    /// When a new try is worth while, as far as it is known: for a `Timeout` what was left of the
    /// holder's lease when it was last seen. A holder that is still at work renews it.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Whether the same call may well succeed a little later: true for `Timeout`, `QueueFull`,
    /// `Backend` and for a `Lost` whose body did not run to its end.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.0.kind,
            LockErrorKind::Timeout
                | LockErrorKind::QueueFull
                | LockErrorKind::Backend
                | LockErrorKind::Lost { completed: false }
        )
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        f.write_str(&inner.message)?;
        let mut context = Context { f, separator: " (" };
        if let Some(key) = &inner.key {
            context.item(format_args!("key {key:?}"))?;
        }
        if let Some(owner) = &inner.owner {
            context.item(format_args!("held by {owner:?}"))?;
        }
        if let Some(waited) = inner.waited {
            context.item(format_args!("after {waited:.1?}"))?;
        }
        context.close()?;
        match &inner.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        f.debug_struct("LockError")
            .field("kind", &inner.kind)
            .field("message", &inner.message)
            .field("key", &inner.key)
            .field("owner", &inner.owner)
            .field("waited", &inner.waited)
            .field("retry_after", &inner.retry_after)
            .field("source", &inner.source)
            .finish()
    }
}

// The text of the cause is part of our own text, so it is not offered a second time as `source()`:
// error reporters that print the chain would show it twice.
impl Error for LockError {}

/// Writes "(a, b, c)" without knowing how many items come.
struct Context<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    separator: &'static str,
}

impl Context<'_, '_> {
    fn item(&mut self, text: fmt::Arguments<'_>) -> fmt::Result {
        write!(self.f, "{}{text}", self.separator)?;
        self.separator = ", ";
        Ok(())
    }

    fn close(self) -> fmt::Result {
        if self.separator == ", " { self.f.write_str(")") } else { Ok(()) }
    }
}
