//! The layer, and everything it can be told.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use tower_layer::Layer;

use super::head::RequestHead;
use super::key::{ExtractKey, KeySource, RouteKey, RouteTemplate};
use super::plan::{Fallback, Hold, Plan, Switch};
use super::rejection::{Disclosure, Rejection};
use super::service::LockService;
use crate::client::LockClient;
use crate::enter::OnUnavailable;
use crate::error::LockError;
use crate::options::{LockOptions, OnLost, Release};

/// Puts a lock around a route or a service. See the [module docs](super).
///
/// Setters never fail; what cannot work together is told by [`check`](Self::check), or answers every
/// request with 500.
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is mounted"]
pub struct LockLayer {
    plan: Arc<Plan>,
}

impl LockLayer {
    /// Creates a layer whose keys come from `template`: a text such as
    /// `"stock:lock:<sku_id as u64>"`, or a lock declared by
    /// [`lock_template!`](crate::lock_template). See [the module docs](super#keys) for what may stand
    /// in it.
    ///
    /// # Panics
    ///
    /// The template cannot be used; the text says what to write. [`try_new`](Self::try_new) returns
    /// that as an error.
    ///
    /// ```
    /// use distlock::LockClient;
    /// use distlock::layer::LockLayer;
    ///
    /// let locks = LockClient::in_memory();
    /// let layer = LockLayer::new(&locks, "report:<header:x-tenant>");
    /// ```
    #[track_caller]
    pub fn new(client: &LockClient, template: impl RouteTemplate) -> Self {
        match Self::try_new(client, template) {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"),
        }
    }

    /// Creates a layer whose keys come from `template`, as [`new`](Self::new) does.
    ///
    /// # Errors
    ///
    /// `Config`: the template cannot be used; the text says what to write.
    ///
    /// ```
    /// use distlock::LockClient;
    /// use distlock::layer::LockLayer;
    ///
    /// let locks = LockClient::in_memory();
    /// let error = LockLayer::try_new(&locks, "report:<headers:x-tenant>").unwrap_err();
    /// assert!(error.to_string().contains("did you mean `<header:x-tenant>`?"));
    /// ```
    pub fn try_new(client: &LockClient, template: impl RouteTemplate) -> Result<Self, LockError> {
        let key = RouteKey::new(template)?;
        Ok(Self::from_source(client, KeySource::Template(Arc::new(key))))
    }

    /// Creates a layer whose keys `extract_key` makes: a function, as a rule.
    ///
    /// ```
    /// use distlock::layer::{LockLayer, RequestHead};
    /// use distlock::{LockClient, lock_key};
    ///
    /// let locks = LockClient::in_memory();
    /// let layer = LockLayer::with_key(&locks, |request: &RequestHead<'_>| {
    ///     let host = request.uri().host().unwrap_or("none");
    ///     lock_key!("sync:<host>")
    /// });
    /// ```
    pub fn with_key(client: &LockClient, extract_key: impl ExtractKey) -> Self {
        Self::from_source(client, KeySource::Function(Arc::new(extract_key)))
    }

    /// See [`LockOptions::wait`]. Defaults to 3 seconds. The request's own [`Deadline`](super::Deadline)
    /// cuts it short.
    pub fn wait(self, wait: Duration) -> Self {
        self.with_options(|options| options.wait(wait))
    }

    /// See [`LockOptions::lease`]. Defaults to 10 seconds.
    pub fn lease(self, lease: Duration) -> Self {
        self.with_options(|options| options.lease(lease))
    }

    /// See [`LockOptions::max_hold`]. Defaults to no cap.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.with_options(|options| options.max_hold(max_hold))
    }

    /// See [`LockOptions::on_lost`]. Defaults to [`OnLost::Cancel`]: the handler is dropped.
    pub fn on_lost(self, on_lost: OnLost) -> Self {
        self.with_options(|options| options.on_lost(on_lost))
    }

    /// See [`LockOptions::release`]. Defaults to [`Release::Await`]: the response goes out when the
    /// lock is released.
    pub fn release(self, release: Release) -> Self {
        self.with_options(|options| options.release(release))
    }

    /// See [`LockOptions::not_reentrant`]. Defaults to off.
    pub fn not_reentrant(self) -> Self {
        self.with_options(LockOptions::not_reentrant)
    }

    /// See [`LockOptions::strict`]. Defaults to off.
    pub fn strict(self) -> Self {
        self.with_options(LockOptions::strict)
    }

    /// See [`LockOptions::fencing`]. Defaults to off.
    pub fn fencing(self) -> Self {
        self.with_options(LockOptions::fencing)
    }

    /// See [`LockOptions::max_waiters`]. Defaults to no limit.
    pub fn max_waiters(self, max_waiters: usize) -> Self {
        self.with_options(|options| options.max_waiters(max_waiters))
    }

    /// See [`LockOptions::name`]. Defaults to the key template.
    pub fn name(self, name: impl Into<Cow<'static, str>>) -> Self {
        self.with_options(|options| options.name(name))
    }

    /// Sets everything that is set in `options`.
    pub fn options(self, options: LockOptions) -> Self {
        self.with_options(|own| options.or(&own))
    }

    /// Sets until when the lock is held.
    ///
    /// Defaults to [`Hold::UntilResponse`].
    pub fn hold(self, hold: Hold) -> Self {
        self.with(|plan| plan.hold = hold)
    }

    /// Locks only requests with one of these methods. Needed where the layer stands around a whole
    /// router: there it also sees methods that a route does not have.
    ///
    /// Defaults to all methods.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods = methods.into_iter().collect();
        self.with(|plan| plan.methods = Some(methods))
    }

    /// Locks only requests for which `condition` holds. The others are passed on without a lock, and
    /// without a [`HeldLock`](crate::HeldLock) in their extensions.
    ///
    /// Defaults to all requests.
    ///
    /// ```
    /// use distlock::LockClient;
    /// use distlock::layer::LockLayer;
    /// use http::Method;
    ///
    /// let locks = LockClient::in_memory();
    /// let layer = LockLayer::new(&locks, "report:<header:x-tenant>")
    ///     .when(|request| request.method() != Method::GET);
    /// ```
    pub fn when(
        self,
        condition: impl Fn(&RequestHead<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(|plan| plan.filter = Some(Arc::new(condition)))
    }

    /// Switches the layer on or off: off, it passes every request on.
    ///
    /// Defaults to on.
    pub fn enabled(self, enabled: bool) -> Self {
        let switch = if enabled { Switch::On } else { Switch::Off };
        self.with(|plan| plan.switch = switch)
    }

    /// Locks requests that match no route of the router, too: for a lock on a fallback handler, or
    /// around a service nested as it is (`nest_service`), whose routes the router does not know.
    ///
    /// Defaults to off: they are passed on, and the store is not asked.
    pub fn lock_unmatched(self) -> Self {
        self.with(|plan| plan.fallback = Fallback::Locked)
    }

    /// Lets requests run **without the lock** while the store is unavailable. Two of them may then
    /// work at once; each is traced as a warning.
    ///
    /// Defaults to off: they are answered with 503.
    pub fn run_unlocked_if_unavailable(self) -> Self {
        self.with(|plan| plan.on_unavailable = OnUnavailable::RunUnlocked)
    }

    /// Answers what is not let through by `answer`, in place of the layer's own answers. Start from
    /// [`Rejection::response`] to change only a part of them.
    ///
    /// Defaults to [the layer's own answers](super#answers).
    pub fn on_rejected<F, B>(self, answer: F) -> Self
    where
        F: Fn(&Rejection) -> Response<B> + Send + Sync + 'static,
        B: Into<Bytes>,
    {
        self.with(|plan| {
            plan.answer = Some(Arc::new(move |rejection| answer(rejection).map(Into::into)));
        })
    }

    /// Names the lock's key and its holder in answers, for services whose clients may know them.
    ///
    /// Defaults to off.
    pub fn disclose_key_and_owner(self) -> Self {
        self.with(|plan| plan.disclosure = Disclosure::KeyAndOwner)
    }

    /// Tells at start whether the settings can work, those of the client included.
    ///
    /// # Errors
    ///
    /// `Config`: a setting cannot work; the text names it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use distlock::LockClient;
    /// use distlock::layer::LockLayer;
    ///
    /// let locks = LockClient::in_memory();
    /// let layer = LockLayer::new(&locks, "jobs:nightly").lease(Duration::from_millis(1));
    /// assert!(layer.check().is_err());
    /// ```
    pub fn check(&self) -> Result<(), LockError> {
        self.plan.check()
    }

    fn from_source(client: &LockClient, key: KeySource) -> Self {
        Self {
            plan: Arc::new(Plan {
                client: client.clone(),
                key,
                options: LockOptions::new(),
                hold: Hold::default(),
                switch: Switch::On,
                methods: None,
                filter: None,
                fallback: Fallback::NotLocked,
                on_unavailable: OnUnavailable::Error,
                answer: None,
                disclosure: Disclosure::Nothing,
            }),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Plan)) -> Self {
        change(Arc::make_mut(&mut self.plan));
        self
    }

    fn with_options(self, change: impl FnOnce(LockOptions) -> LockOptions) -> Self {
        self.with(|plan| plan.options = change(std::mem::take(&mut plan.options)))
    }
}

impl<S> Layer<S> for LockLayer {
    type Service = LockService<S>;

    fn layer(&self, inner: S) -> LockService<S> {
        LockService::new(inner, Arc::clone(&self.plan))
    }
}
