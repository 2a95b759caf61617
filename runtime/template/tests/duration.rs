//! How durations are spelled, and what each misspelling is answered.

use std::time::Duration;

use distlock_template::{MAX_DURATION, duration};

fn refusal(text: &str) -> String {
    duration(text).unwrap_err().to_string()
}

#[test]
fn units_are_read() {
    for (text, millis) in [
        ("500ms", 500),
        ("2s", 2_000),
        ("0s", 0),
        ("0ms", 0),
        ("1m30s", 90_000),
        ("1.5s", 1_500),
        ("0.1s", 100),
        ("2h", 7_200_000),
        ("1h1m1s1ms", 3_661_001),
        ("1m0.25s", 60_250),
        ("90m", 5_400_000),
        ("007s", 7_000),
        ("8760h", 31_536_000_000),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
    }
}

#[test]
fn fractions_are_exact() {
    assert_eq!(duration("0.000000001s"), Ok(Duration::from_nanos(1)));
    assert_eq!(duration("0.5ms"), Ok(Duration::from_micros(500)));
    assert_eq!(duration("1.1s"), Ok(Duration::new(1, 100_000_000)));
}

#[test]
fn refusals_say_what_to_write() {
    for (text, answer) in [
        ("10", "`10` has no unit; did you mean `10s`?"),
        ("1m30", "`1m30` has no unit; did you mean `1m30s`?"),
        ("1s500", "`1s500` has no unit; did you mean `1s500ms`?"),
        ("1.5", "`1.5` has no unit; did you mean `1.5s`?"),
        ("10 s", "`10 s` has a space in it; did you mean `10s`?"),
        ("10sec", "`10sec` has the unit `sec`; did you mean `10s`?"),
        ("5 minutes", "`5 minutes` has a space in it; did you mean `5m`?"),
        ("10S", "`10S` has the unit `S`; did you mean `10s`?"),
        ("1h5min", "`1h5min` has the unit `min`; did you mean `1h5m`?"),
        (
            "3x",
            "`3x` has the unknown unit `x`; write a number and a unit, as in `500ms`, `10s`, \
             `1m30s` or `2h`",
        ),
        (
            "-1s",
            "`-1s` is negative; write a number and a unit, as in `500ms`, `10s`, `1m30s` or `2h`",
        ),
        (
            "",
            "a duration is empty; write a number and a unit, as in `500ms`, `10s`, `1m30s` or `2h`",
        ),
        (
            "30s1m",
            "`30s1m` has `m` after `s`; write the largest unit first and each one once, as in \
             `1m30s`",
        ),
        (
            "1s1s",
            "`1s1s` has `s` after `s`; write the largest unit first and each one once, as in \
             `1m30s`",
        ),
        (
            "1.5m30s",
            "`1.5m30s` has a fraction before its last unit; write whole numbers there, as in \
             `1m30s`",
        ),
        ("9999999h", "`9999999h` is too long; a duration may be at most 365 days (`8760h`)"),
    ] {
        assert_eq!(refusal(text), answer);
    }
}

#[test]
fn what_is_no_number_is_refused() {
    for text in
        ["s", "ms", ".5s", "1.s", "1..5s", "1.5.5s", "+1s", "1,5s", "∞", "1.0000000001s", " 1s"]
    {
        let refusal = refusal(text);
        assert!(refusal.contains("write a number and a unit"), "{text}: {refusal}");
    }
}

#[test]
fn what_follows_an_unknown_unit_may_be_of_any_script() {
    assert!(refusal("1x2\u{10a3f}").contains("unknown unit `x`"));
}

#[test]
fn the_longest_is_365_days() {
    assert_eq!(duration("8760h"), Ok(MAX_DURATION));
    for text in ["8760h1ms", "99999999999999999999999999999999999999999h", "18446744073709551616s"]
    {
        assert!(refusal(text).contains("at most 365 days"), "{text}");
    }
}
