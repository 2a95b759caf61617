//! What the layer says of the requests that it does not let through.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post as on_post;
use distlock::layer::LockLayer;
use distlock::{HeldLock, LockClient};
use http::StatusCode;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::kit::{ask, hold, post};

/// Notes the level and the error of each event of the library.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<(Level, String)>>>);

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("distlock")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut error = ErrorField(String::new());
        event.record(&mut error);
        self.0.lock().unwrap().push((*event.metadata().level(), error.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct ErrorField(String);

impl Visit for ErrorField {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "distlock.error" {
            self.0 = format!("{value:?}");
        }
    }
}

#[tokio::test]
async fn faults_of_the_service_are_errors_and_contention_is_not() {
    let notes = Notes::default();
    let _quiet = tracing::subscriber::set_default(notes.clone());
    let client = LockClient::in_memory();
    let layer = LockLayer::new(&client, "layer:trace").wait(Duration::ZERO);
    let app = |layer| Router::new().route("/", on_post(|| async {}).route_layer(layer));
    let noted = || std::mem::take(&mut *notes.0.lock().unwrap());

    let held = hold(&client, "layer:trace").await;
    assert_eq!(ask(&app(layer.clone()), post("/")).await.status, StatusCode::LOCKED);
    drop(held);
    let [(level, error)] = &noted()[..] else { panic!("one event") };
    assert_eq!(*level, Level::DEBUG);
    assert!(error.contains("layer:trace"), "{error}");

    let short = layer.lease(Duration::from_millis(1));
    let answer = ask(&app(short), post("/")).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    let [(level, error)] = &noted()[..] else { panic!("one event") };
    assert_eq!(*level, Level::ERROR);
    assert!(error.contains("lease is 1ms"), "{error}");

    let demanding = Router::new().route("/", on_post(|_: HeldLock| async {}));
    ask(&demanding, post("/")).await;
    let [(level, error)] = &noted()[..] else { panic!("one event") };
    assert_eq!(*level, Level::ERROR);
    assert!(error.contains("mount a LockLayer"), "{error}");
}
