//! Until when a request holds its lock.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post as on_post;
use bytes::Bytes;
use distlock::layer::{Hold, LockLayer};
use distlock::{LockClient, LockKey, OnLost};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tower::ServiceExt;

use crate::kit::{Door, SOON, ask, freed, post};
use crate::support::{Store, on_every_store, unique_key};

type Frames = mpsc::UnboundedSender<Frame<Bytes>>;

/// A handler whose body is what the test sends.
fn streaming(layer: LockLayer) -> (Router, Frames) {
    let (frames, receiver) = mpsc::unbounded_channel();
    let receiver = std::sync::Mutex::new(Some(receiver));
    let handler = move || {
        let receiver = receiver.lock().unwrap().take().expect("one request a test");
        let frames = UnboundedReceiverStream::new(receiver).map(Ok::<_, Infallible>);
        std::future::ready(Response::new(Body::new(StreamBody::new(frames))))
    };
    let handler = std::sync::Arc::new(handler);
    let handler = move || (*handler)();
    (Router::new().route("/", on_post(handler).layer(layer)), frames)
}

fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

async fn is_free(store: &Store, key: &str) -> bool {
    store.owner_of(key).await.is_none()
}

on_every_store! {
    async fn lock_is_free_when_the_response_is_there(store: Store) {
        let key = unique_key("layer");
        let (app, frames) = streaming(LockLayer::new(&store.client(), key.clone()));

        let response = app.oneshot(post("/")).await.unwrap();

        assert!(is_free(&store, &key).await);
        frames.send(data("late")).unwrap();
        drop(frames);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "late");
    }
}

on_every_store! {
    async fn lock_is_held_until_the_last_frame(store: Store) {
        let key = unique_key("layer");
        let layer = LockLayer::new(&store.client(), key.clone()).hold(Hold::UntilBodyEnd);
        let (app, frames) = streaming(layer);

        let mut body = app.oneshot(post("/")).await.unwrap().into_body();
        frames.send(data("a")).unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        assert!(!is_free(&store, &key).await);
        drop(frames);

        assert!(body.frame().await.is_none());
        assert!(is_free(&store, &key).await, "free before the end is told");
    }
}

on_every_store! {
    async fn lock_is_free_when_the_trailers_are_there(store: Store) {
        let key = unique_key("layer");
        let layer = LockLayer::new(&store.client(), key.clone()).hold(Hold::UntilBodyEnd);
        let (app, frames) = streaming(layer);
        let mut body = app.oneshot(post("/")).await.unwrap().into_body();

        frames.send(Frame::trailers(HeaderMap::new())).unwrap();

        assert!(body.frame().await.unwrap().unwrap().is_trailers());
        assert!(is_free(&store, &key).await);
    }
}

on_every_store! {
    async fn lock_is_free_with_a_body_that_is_known_to_end(store: Store) {
        let key = unique_key("layer");
        let layer = LockLayer::new(&store.client(), key.clone()).hold(Hold::UntilBodyEnd);
        let app = |text: &'static str| {
            let handler = move || std::future::ready(Response::new(Body::new(Full::from(text))));
            Router::new().route("/", on_post(handler).layer(layer.clone()))
        };

        // Ended with its head.
        let response = app("").oneshot(post("/")).await.unwrap();
        assert!(is_free(&store, &key).await);
        assert_eq!(response.headers()["content-length"], "0");
        // Ends with its first frame.
        let response = app("whole").oneshot(post("/")).await.unwrap();
        assert_eq!(response.headers()["content-length"], "5");
        let mut body = response.into_body();
        assert!(!is_free(&store, &key).await);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "whole");
        assert!(is_free(&store, &key).await);
        assert!(body.frame().await.is_none());
    }
}

on_every_store! {
    async fn dropped_body_releases_promptly(store: Store) {
        let key = unique_key("layer");
        let layer = LockLayer::new(&store.client(), key.clone()).hold(Hold::UntilBodyEnd);
        let (app, frames) = streaming(layer);
        let mut body = app.oneshot(post("/")).await.unwrap().into_body();
        frames.send(data("a")).unwrap();
        let _ = body.frame().await;
        assert!(!is_free(&store, &key).await);

        drop(body);

        freed(&store, &key).await;
        assert!(frames.is_closed(), "the inner body is gone");
    }
}

on_every_store! {
    async fn lock_lost_while_streaming_ends_the_body_with_an_error(store: Store) {
        let key = unique_key("layer");
        let layer = LockLayer::new(&store.client(), key.clone()).hold(Hold::UntilBodyEnd);
        let (app, frames) = streaming(layer.lease(Duration::from_millis(1_500)));
        let mut body = app.oneshot(post("/")).await.unwrap().into_body();
        frames.send(data("a")).unwrap();
        let _ = body.frame().await;

        store.remove(&key).await;

        let next = tokio::time::timeout(SOON, body.frame()).await.expect("the loss wakes the body");
        let error = next.unwrap().unwrap_err();
        assert!(error.to_string().contains("lock lost"), "{error}");
        assert!(frames.is_closed(), "the inner body is gone");
        assert!(body.frame().await.is_none());
    }
}

on_every_store! {
    async fn lock_lost_while_streaming_is_only_signalled_if_so_set(store: Store) {
        let key = unique_key("layer");
        let layer = LockLayer::new(&store.client(), key.clone()).hold(Hold::UntilBodyEnd);
        let layer = layer.lease(Duration::from_millis(1_500)).on_lost(OnLost::Signal);
        let (app, frames) = streaming(layer);
        let body = app.oneshot(post("/")).await.unwrap().into_body();

        store.remove(&key).await;
        // By then it is lost, by a renewal or since none was confirmed.
        tokio::time::sleep(Duration::from_millis(1_600)).await;
        frames.send(data("whole")).unwrap();
        drop(frames);

        assert_eq!(body.collect().await.unwrap().to_bytes(), "whole");
    }
}

on_every_store! {
    async fn body_is_polled_inside_the_lock(store: Store) {
        let (key, client) = (unique_key("layer"), store.client());
        let layer = LockLayer::new(&client, key.clone()).hold(Hold::UntilBodyEnd);
        let nested = (client, key.clone());
        let handler = move || {
            let (client, key) = nested.clone();
            // Takes the lock again while it streams.
            let frames = tokio_stream::iter([()]).then(move |()| {
                let request = client.lock(LockKey::literal(key.clone())).wait(Duration::ZERO);
                async move { request.run(|_| async { Ok::<_, Infallible>(data("nested")) }).await.unwrap() }
            });
            std::future::ready(Response::new(Body::new(StreamBody::new(frames))))
        };
        let app = Router::new().route("/", on_post(handler).layer(layer));

        assert_eq!(ask(&app, post("/")).await.text(), "nested");
    }
}

on_every_store! {
    async fn dropped_request_drops_the_handler_and_releases_promptly(store: Store) {
        let key = unique_key("layer");
        for hold in [Hold::UntilResponse, Hold::UntilBodyEnd] {
            let door = Door::closed();
            let at_door = door.clone();
            let handler = move || async move { at_door.pass().await };
            let layer = LockLayer::new(&store.client(), key.clone()).hold(hold);
            let app = Router::new().route("/", on_post(handler).layer(layer));
            let asked = tokio::spawn(async move { ask(&app, post("/")).await });
            door.wait_for_entry(1).await;

            asked.abort();

            freed(&store, &key).await;
            door.let_in(1);
            assert!(asked.await.is_err());
            assert_eq!(door.finished(), 0);
        }
    }
}

on_every_store! {
    async fn request_dropped_while_it_waits_gives_its_place_up(store: Store) {
        let key = unique_key("layer");
        let app = Router::new().route(
            "/",
            on_post(|| async {}).layer(LockLayer::new(&store.client(), key.clone()).wait(SOON)),
        );
        let held = crate::kit::hold(&store.client(), &key).await;
        let asked = tokio::spawn(async move { ask(&app, post("/")).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        asked.abort();
        assert!(asked.await.is_err());

        held.release().await.unwrap();

        freed(&store, &key).await;
    }
}

on_every_store! {
    async fn panic_in_the_handler_releases(store: Store) {
        let key = unique_key("layer");
        for hold in [Hold::UntilResponse, Hold::UntilBodyEnd] {
            let layer = LockLayer::new(&store.client(), key.clone()).hold(hold);
            let handler = || async { if true { panic!("the handler's own") } };
            let app = Router::new().route("/", on_post(handler).layer(layer));

            let asked = tokio::spawn(async move { ask(&app, post("/")).await }).await;

            assert!(asked.unwrap_err().is_panic());
            freed(&store, &key).await;
        }
    }
}

/// A body that says nothing of its end before it is polled, and counts its polls past it.
struct Blunt(u8);

impl http_body::Body for Blunt {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        assert!(self.0 < 2, "polled past its end");
        self.0 += 1;
        Poll::Ready((self.0 == 1).then(|| Ok(data("x"))))
    }
}

#[tokio::test]
async fn body_is_never_polled_past_its_end() {
    let client = LockClient::in_memory();
    let layer = LockLayer::new(&client, "layer").hold(Hold::UntilBodyEnd);
    let handler = || std::future::ready(Response::new(Body::new(Blunt(0))));
    let app = Router::new().route("/", on_post(handler).layer(layer));

    let mut body = app.oneshot(post("/")).await.unwrap().into_body();

    assert!(body.frame().await.unwrap().is_ok());
    assert!(body.frame().await.is_none());
    assert!(body.frame().await.is_none());
}
