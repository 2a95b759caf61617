//! Tower's contract: only a ready instance is called, and readiness reserves no lock.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use distlock::layer::{FinishLayer, LockLayer};
use http::{Request, Response};
use http_body_util::Empty;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use crate::kit::{SOON, hold};
use crate::support::{on_every_store, unique_key};

/// Panics if it is called without having been ready, and notes how many run at once.
#[derive(Debug, Default)]
struct Probe {
    ready: bool,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        // Readiness is of the instance.
        Self { ready: false, running: Arc::clone(&self.running), most: Arc::clone(&self.most) }
    }
}

impl Service<Request<()>> for Probe {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<Response<Empty<Bytes>>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without having been ready");
        let (running, most) = (Arc::clone(&self.running), Arc::clone(&self.most));
        Box::pin(async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(Response::new(Empty::new()))
        })
    }
}

fn request(tenant: usize) -> Request<()> {
    Request::builder().header("x-tenant", tenant.to_string()).body(()).unwrap()
}

on_every_store! {
    async fn only_the_instance_that_was_ready_is_called(store: Store) {
        let template = format!("{}:<header:x-tenant>", unique_key("layer"));
        let layer = LockLayer::new(&store.client(), template);
        let probe = Probe::default();
        let limited = ServiceBuilder::new()
            .layer(layer.clone())
            .layer(FinishLayer::new())
            .layer(ConcurrencyLimitLayer::new(1))
            .service(probe.clone());
        // Many callers through one buffered instance, and many through clones.
        let buffered = ServiceBuilder::new().buffer(8).layer(layer.clone()).service(probe.clone());
        let calls = (0..500).flat_map(|number| {
            let (limited, buffered) = (limited.clone(), buffered.clone());
            [
                tokio::spawn(async move { limited.oneshot(request(number % 7)).await.is_ok() }),
                tokio::spawn(async move { buffered.oneshot(request(number % 7)).await.is_ok() }),
            ]
        });
        for call in calls.collect::<Vec<_>>() {
            assert!(call.await.unwrap());
        }

        let lone = Probe::default();
        let limited = layer.layer(ServiceBuilder::new().concurrency_limit(1).service(lone.clone()));
        let calls = (0..100).map(|number| tokio::spawn(limited.clone().oneshot(request(number))));
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap().unwrap();
        }
        assert_eq!(lone.most.load(Ordering::SeqCst), 1);
    }
}

on_every_store! {
    async fn readiness_reserves_nothing(store: Store) {
        let key = unique_key("layer");
        let service = LockLayer::new(&store.client(), key.clone()).layer(Probe::default());
        let (mut first, mut second) = (service.clone(), service);
        first.ready().await.unwrap();
        second.ready().await.unwrap();

        assert_eq!(store.owner_of(&key).await, None);
        // One that was ready and is never called does not keep others out.
        let called = tokio::time::timeout(SOON, second.call(request(1))).await;
        called.unwrap().unwrap();
        drop(first);
        let _held = hold(&store.client(), &key).await;
    }
}

on_every_store! {
    async fn call_sends_nothing_before_its_future_is_polled(store: Store) {
        let key = unique_key("layer");
        let mut service = LockLayer::new(&store.client(), key.clone()).layer(Probe::default());
        service.ready().await.unwrap();

        let call = service.call(request(1));

        assert_eq!(store.owner_of(&key).await, None);
        drop(call);
        assert_eq!(store.owner_of(&key).await, None);
    }
}
