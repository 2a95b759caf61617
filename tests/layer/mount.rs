//! Where the layer fits in: nothing here needs a handler for errors of the layer.

use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::{get as on_get, post as on_post};
use bytes::Bytes;
use distlock::layer::{
    Deadline, FinishLayer, FinishService, LockBody, LockCalls, LockCallsLayer, LockFuture,
    LockLayer, LockService, Rejection,
};
use distlock::{HeldLock, LockClient, LockError};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use tower::util::option_layer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::map_response_body::MapResponseBodyLayer;

use crate::kit::{ask, post};

async fn key_of(held: Option<HeldLock>) -> String {
    held.map_or_else(|| "unlocked".to_owned(), |held| held.key().to_owned())
}

fn layer() -> LockLayer {
    LockLayer::new(&LockClient::in_memory(), "layer:<method>")
}

#[tokio::test]
async fn every_place_of_axum_takes_it() {
    let places = [
        Router::new().route("/", on_post(key_of)).layer(layer()),
        Router::new().route("/", on_post(key_of)).route_layer(layer()),
        Router::new().route("/", on_post(key_of).layer(layer())),
        Router::new().route("/", on_post(key_of).route_layer(layer())),
        Router::new().route("/", on_post(key_of.layer(layer()))),
        Router::new().route("/", on_post(key_of)).layer(ServiceBuilder::new().layer(layer())),
        Router::new().route("/", on_post(key_of).layer((layer(), FinishLayer::new()))),
        Router::new().route_service("/", layer().layer(on_post(key_of))),
        Router::new().nest_service("/x", on_get(key_of)).route("/", on_post(key_of)).layer(layer()),
    ];
    for app in places {
        assert_eq!(ask(&app, post("/")).await.text(), "layer:POST");
    }
}

#[tokio::test]
async fn optional_layer_goes_with_a_mapped_body() {
    for (lock, expected) in [(Some(layer()), "layer:POST"), (None, "unlocked")] {
        // Both arms of the option answer with one type of body then.
        let lock = lock.map(|lock| (MapResponseBodyLayer::new(Body::new), lock));
        let app = Router::new().route("/", on_post(key_of)).layer(option_layer(lock));

        assert_eq!(ask(&app, post("/")).await.text(), expected);
    }
}

#[tokio::test]
async fn error_of_the_service_comes_through_as_it_is() {
    #[derive(Debug, PartialEq)]
    struct Own;
    let service = service_fn(|_: Request<()>| async { Err::<Response<Full<Bytes>>, _>(Own) });
    let service = layer().layer(service);

    assert_eq!(service.clone().oneshot(Request::new(())).await.unwrap_err(), Own);
    let until_end = layer().hold(distlock::layer::Hold::UntilBodyEnd).layer(service.into_inner());
    assert_eq!(until_end.oneshot(Request::new(())).await.unwrap_err(), Own);
}

#[tokio::test]
async fn any_body_and_any_request_body_will_do() {
    // Neither Send nor Sync nor a body of axum's.
    struct Local(std::rc::Rc<()>);
    let service = service_fn(|request: Request<Local>| async move {
        let _ = &request.body().0;
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });

    let request = Request::new(Local(std::rc::Rc::new(())));
    let response = layer().layer(service).oneshot(request).await.unwrap();

    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[test]
fn types_are_what_servers_need() {
    fn is<T: Clone + Debug + Send + Sync + 'static>() {}
    fn is_debug<T: Debug + Send + 'static>() {}
    type Key = fn(&u64) -> distlock::LockKey;
    type Fallback = fn(LockError) -> Result<(), Infallible>;
    type Route = axum::routing::Route;

    is::<LockLayer>();
    is::<LockService<Router>>();
    is::<FinishLayer>();
    is::<FinishService<Router>>();
    is::<Deadline>();
    is_debug::<LockBody<Body>>();
    is_debug::<LockFuture<Route, Body, Body>>();
    is_debug::<Rejection>();
    is_debug::<LockCallsLayer<Key, Fallback>>();
    is_debug::<LockCalls<Router, Key, Fallback>>();
}

#[tokio::test]
async fn service_inside_can_be_reached() {
    let mut service = layer().layer(7_u8);
    *service.get_mut() += 1;
    assert_eq!((*service.get_ref(), service.into_inner()), (8, 8));

    let mut service = FinishLayer::new().layer(7_u8);
    *service.get_mut() += 1;
    assert_eq!((*service.get_ref(), service.into_inner()), (8, 8));
}

#[tokio::test]
async fn future_polled_past_its_end_stays_pending() {
    let service = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    for layer in [layer(), layer().enabled(false)] {
        let mut future = std::pin::pin!(layer.layer(service).call(Request::new(())));
        future.as_mut().await.unwrap();
        let again = tokio::time::timeout(Duration::from_millis(5), future).await;
        assert!(again.is_err());
    }
}
