//! What the macros accept and refuse, and in which words. `TRYBUILD=overwrite` writes the words down
//! anew; read them then as carefully as code.

#[test]
fn what_is_accepted_compiles() {
    trybuild::TestCases::new().pass("pass/*.rs");
}

#[test]
fn what_is_refused_says_what_to_write() {
    trybuild::TestCases::new().compile_fail("fail/*.rs");
}

#[cfg(feature = "blocking")]
#[test]
fn what_is_refused_on_functions_that_are_not_async_says_what_to_write() {
    trybuild::TestCases::new().compile_fail("fail_sync/*.rs");
}

#[cfg(not(feature = "blocking"))]
#[test]
fn functions_that_are_not_async_need_a_feature() {
    trybuild::TestCases::new().compile_fail("fail_without_blocking/*.rs");
}
