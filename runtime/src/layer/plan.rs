//! What a layer has been told, and what follows from it for one request.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};

use super::deadline::time_left;
use super::head::RequestHead;
use super::key::KeySource;
use super::meaning::Cut;
use super::protocol::Protocol;
use super::rejection::{Disclosure, Head, Rejection};
use super::route::{self, Route};
use crate::client::{LockClient, LockRequest};
use crate::enter::{Acquire, OnUnavailable};
use crate::error::{LockError, LockErrorKind};
use crate::key::KeyBuilder;
use crate::options::LockOptions;

/// Until when the lock of a request is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hold {
    /// Until the last frame of the response's body, or its trailers, have been handed on; at once if
    /// the body has ended already. For handlers that read shared state while they stream it. A slow
    /// client holds the lock as long as it likes: bound it by `max_hold`.
    UntilBodyEnd,
    /// Until the handler has returned its response. What its body streams later is not locked.
    #[default]
    UntilResponse,
}

/// Everything that a layer has been told.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) client: LockClient,
    pub(crate) key: KeySource,
    pub(crate) options: LockOptions,
    pub(crate) hold: Hold,
    pub(crate) switch: Switch,
    pub(crate) methods: Option<Vec<Method>>,
    pub(crate) filter: Option<Filter>,
    pub(crate) fallback: Fallback,
    pub(crate) on_unavailable: OnUnavailable,
    pub(crate) answer: Option<Answer>,
    pub(crate) disclosure: Disclosure,
}

pub(crate) type Filter = Arc<dyn Fn(&RequestHead<'_>) -> bool + Send + Sync>;
pub(crate) type Answer = Arc<dyn Fn(&Rejection) -> Response<Bytes> + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    Off,
    On,
}

/// Whether requests that match no route of the router are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fallback {
    Locked,
    NotLocked,
}

/// What is to be done with one request.
pub(crate) enum Step {
    Lock { acquire: Acquire, asker: Asker },
    Pass,
    Refuse(Response<Bytes>),
}

/// Who asked, for an answer in case that one is needed.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    plan: Arc<Plan>,
    protocol: Protocol,
    /// Only kept for an answer of the user's own.
    head: Option<Box<Head>>,
    cut: Cut,
}

impl Plan {
    /// Looks at a request. Nothing is sent before the returned [`Acquire`] is polled.
    pub(crate) fn step(self: &Arc<Self>, parts: &mut Parts) -> Step {
        let listed = self.methods.as_ref().is_none_or(|methods| methods.contains(&parts.method));
        if self.switch == Switch::Off || !listed {
            return Step::Pass;
        }
        let route = match route::look(parts) {
            Ok(Route::Unmatched) if self.fallback == Fallback::NotLocked => return Step::Pass,
            other => other,
        };
        let protocol = Protocol::of(&parts.headers);
        match self.acquire(route, parts, &protocol) {
            Ok(None) => Step::Pass,
            Ok(Some((acquire, cut))) => {
                Step::Lock { acquire, asker: self.asker(parts, protocol, cut) }
            }
            Err((error, cut)) => Step::Refuse(self.asker(parts, protocol, cut).answer(error)),
        }
    }

    pub(crate) fn check(&self) -> Result<(), LockError> {
        // Of a function the key's own settings are known only once there is a key.
        let key = KeyBuilder::new("check").options(self.key.options()).finish();
        self.client.lock(key).options(self.options.clone()).settings().map(|_| ())
    }

    fn acquire(
        &self,
        route: Result<Route, LockError>,
        parts: &Parts,
        protocol: &Protocol,
    ) -> Result<Option<(Acquire, Cut)>, (LockError, Cut)> {
        let no_cut = |error| (error, Cut::No);
        let route = route.map_err(no_cut)?;
        let head = RequestHead::new(parts, &route);
        if self.filter.as_ref().is_some_and(|filter| !filter(&head)) {
            return Ok(None);
        }
        let key = self.key.key(&head).map_err(no_cut)?;
        let request = self.client.lock(key).options(self.options.clone());
        let Some(left) = time_left(parts, protocol) else {
            return Ok(Some((self.begin(request), Cut::No)));
        };
        if left.is_zero() {
            let text = "the request's own deadline has passed";
            return Err((LockError::new(LockErrorKind::Timeout, text), Cut::ByDeadline));
        }
        let wait = request.settings().map_err(no_cut)?.wait();
        if left >= wait {
            return Ok(Some((self.begin(request), Cut::No)));
        }
        Ok(Some((self.begin(request.wait(left)), Cut::ByDeadline)))
    }

    fn begin(&self, request: LockRequest) -> Acquire {
        request.start().on_unavailable(self.on_unavailable)
    }

    fn asker(self: &Arc<Self>, parts: &Parts, protocol: Protocol, cut: Cut) -> Asker {
        let head = self.answer.as_ref().map(|_| {
            Box::new(Head {
                method: parts.method.clone(),
                uri: parts.uri.clone(),
                headers: parts.headers.clone(),
            })
        });
        Asker { plan: Arc::clone(self), protocol, head, cut }
    }
}

impl Asker {
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The answer for whoever asked.
    pub(crate) fn answer(self, error: LockError) -> Response<Bytes> {
        let Self { plan, protocol, head, cut } = self;
        // Only a wait can be cut.
        let cut = if error.kind() == LockErrorKind::Timeout { cut } else { Cut::No };
        let head = head.map_or_else(Head::default, |head| *head);
        let rejection = Rejection::new(error, cut, protocol, head).disclosing(plan.disclosure);
        rejection.report();
        match &plan.answer {
            Some(answer) => answer(&rejection),
            None => rejection.response(),
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("client", &self.client)
            .field("key", &self.key)
            .field("options", &self.options)
            .field("hold", &self.hold)
            .field("switch", &self.switch)
            .field("methods", &self.methods)
            .field("fallback", &self.fallback)
            .field("on_unavailable", &self.on_unavailable)
            .field("disclosure", &self.disclosure)
            .finish_non_exhaustive()
    }
}
