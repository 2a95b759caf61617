//! What waits, and for how long.

use std::future::pending;
use std::pin::pin;

use tokio::runtime;
use tokio::time::timeout;

use super::*;

const LIMIT: Duration = Duration::from_millis(20);
const SLACK: Duration = Duration::from_secs(5);

/// Whoever keeps a future and polls it no more must not make others' entries stay.
#[tokio::test]
async fn a_request_that_is_forgotten_holds_up_no_memory() {
    let pulse = Pulse::new(LIMIT);
    let _forgotten = pulse.begin();
    let late = pulse.begin();
    assert_eq!(timeout(SLACK, pulse.within(late, pin!(pending::<()>()))).await, Ok(None));
    for _ in 0..1000 {
        let number = pulse.begin();
        pulse.answered(number);
    }
    assert!(pulse.state().under_way.is_empty(), "{}", pulse.state().under_way.len());
}

#[test]
fn a_request_is_watched_though_the_runtime_of_the_watch_ends() {
    let pulse = Pulse::new(Duration::from_millis(200));
    let [ending, other] =
        [(); 2].map(|()| runtime::Builder::new_current_thread().enable_all().build().unwrap());
    ending.block_on(async { pulse.begin() });
    other.block_on(async {
        let number = pulse.begin();
        let mut reply = pin!(pending::<()>());
        let mut waiting = pin!(pulse.within(number, reply.as_mut()));
        poll_fn(|context| {
            assert!(waiting.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        ending.shutdown_background();
        assert_eq!(timeout(SLACK, waiting).await, Ok(None));
    });
}

/// Of one that waits for several, or of an executor of the user's.
#[tokio::test]
async fn a_waker_that_panics_keeps_no_other_request_waiting() {
    struct Panics;

    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("of a waker, on purpose");
        }
    }

    let pulse = Pulse::new(LIMIT);
    let mut reply = pin!(pending::<()>());
    let mut panicking = pin!(pulse.within(pulse.begin(), reply.as_mut()));
    let panics = Waker::from(Arc::new(Panics));
    assert!(panicking.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
    // A task of its own, which only its waker wakes.
    let waiting = tokio::spawn({
        let pulse = Arc::clone(&pulse);
        async move { pulse.within(pulse.begin(), pin!(pending::<()>())).await }
    });
    assert_eq!(timeout(SLACK, waiting).await.expect("never woken").unwrap(), None);
}
