//! Keys, through the public API.

use distlock::{LockErrorKind, LockKey};

#[test]
fn literal_refuses_placeholders() {
    let error = LockKey::literal("stock:lock:<sku_id>").check().unwrap_err();

    assert_eq!(error.kind(), LockErrorKind::InvalidKey);
    assert!(error.to_string().contains("lock_key!"), "{error}");
}
