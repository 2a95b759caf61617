//! Templates that cannot be: told when the layer is built.

use distlock::layer::LockLayer;
use distlock::{LockClient, LockErrorKind};

#[test]
fn template_that_cannot_be_is_an_error_that_says_what_to_write() {
    let client = LockClient::in_memory();
    let cases = [
        ("", "a key template needs a text"),
        ("layer:<>", "a placeholder is empty"),
        ("layer:<a><b>", "run into each other"),
        ("layer:<order.id>", "as in `<sku_id as u64>`"),
        ("layer:<sku_id as u65>", "did you mean `<sku_id as u64>`?"),
        ("layer:<headr:x>", "did you mean `<header:x>`?"),
    ];
    for (template, expected) in cases {
        let error = LockLayer::try_new(&client, template).unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Config, "{template}");
        assert!(error.to_string().contains(expected), "{template}: {error}");
    }
}

#[test]
#[should_panic(expected = "
  layer:<sku_id as u65>
        ^^^^^^^^^^^^^^^
did you mean `<sku_id as u64>`?")]
fn convenience_constructor_panics_with_the_same_text() {
    let _ = LockLayer::new(&LockClient::in_memory(), "layer:<sku_id as u65>");
}
