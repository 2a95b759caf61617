//! A strict user's crate: that it compiles is the test (see `tests/strict/`); here its functions run.

use std::sync::Arc;

use distlock::LockClient;
use strict_user::{hostile, reexported, shapes};

#[tokio::test]
async fn the_functions_of_a_strict_crate_work() {
    let client = LockClient::in_memory();
    let calls = async {
        let order = shapes::Order { id: 7, name: "x".into() };
        assert_eq!(reexported::by_path(1).await.unwrap(), 1);
        assert_eq!(reexported::by_name(2).await.unwrap(), 2);
        assert_eq!(reexported::from_macro(3).await.unwrap(), 3);
        assert_eq!(reexported::key(4).as_str(), "strict:reexported:key:4");
        assert_eq!(hostile::names(1, 2, 3, 4, 5, (6, 7), (8, 9)).await.unwrap(), 31);
        assert_eq!(hostile::fallback(1, 2).await, 3);
        assert_eq!(shapes::json(shapes::Json(order.clone()), String::new()).await.unwrap(), 7);
        assert_eq!(shapes::mutable(1, (2, 3)).await.unwrap(), 7);
        assert!(shapes::exits(Some(7), &order).await.unwrap().is_some());
        assert!(shapes::expressions(Arc::new(client.clone()), 1, 2).await.ends_with('3'));
        assert_eq!(shapes::stacked(5).await.unwrap(), 5);
        assert_eq!(
            strict_user::strict_prelude::older_edition((1, "a".into()), ("b", "c".into()))
                .await
                .unwrap(),
            2
        );
    };
    client.scope_default(calls).await;
}

#[cfg(feature = "blocking")]
#[test]
fn functions_of_a_strict_crate_that_are_not_async_work() {
    use strict_sync::{hostile, shapes};

    LockClient::in_memory().blocking().scope_default(|| {
        let order = shapes::Order { id: 7, name: "x".into() };
        assert_eq!(hostile::names(1, 2, 3, 4, (5, 6), (7, 8)).unwrap(), 23);
        assert_eq!(hostile::fallback(1, 2), 3);
        assert_eq!(shapes::params(order.clone(), 1, "u", String::new()).unwrap(), 8);
        assert!(shapes::exits(Some(7), &order).unwrap().is_some());
        assert!(shapes::expressions(Arc::new(LockClient::in_memory()), 1, 2).ends_with('3'));
        assert_eq!(shapes::stacked(5).unwrap(), 5);
    });
}
