//! The lock in services of tonic.

use ::tonic::server::NamedService;
use ::tonic::{Code, Status};

use super::finish::FinishService;
use super::grpc::status_with_retry_info;
use super::meaning::{Cut, meaning};
use super::service::LockService;
use crate::error::LockError;

impl<S: NamedService> NamedService for LockService<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: NamedService> NamedService for FinishService<S> {
    const NAME: &'static str = S::NAME;
}

/// As [`LockLayer`](crate::layer::LockLayer) answers: for methods that return the errors of locks that
/// they take themselves, such as those of `#[distributed_lock]`.
impl From<LockError> for Status {
    fn from(error: LockError) -> Self {
        let meaning = meaning(error.kind(), Cut::No);
        meaning.report(&error);
        let code = Code::from_i32(i32::from(meaning.grpc_code));
        match error.retry_after() {
            Some(delay) => {
                let details = status_with_retry_info(meaning.grpc_code, meaning.detail, delay);
                Self::with_details(code, meaning.detail, details.into())
            }
            None => Self::new(code, meaning.detail),
        }
    }
}
