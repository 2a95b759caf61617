//! Whatever text comes in: templates, values, durations are read or refused, and never mixed up.
//!
//! `PROPTEST_CASES=1000000 cargo test fuzz` looks longer. What it finds is kept beside this file.

use std::fmt::Write;
use std::time::Duration;

use distlock_template::{
    Escaped, MAX_DURATION, RoutePart, Segment, Template, duration, is_encoded,
};
use proptest::prelude::*;

/// Text in which what matters to the grammar is frequent.
fn template() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[<>]{1,3}",
        4 => "<[a-z_. ]{1,4}>",
        2 => "[:/{}%. \t-]{1,2}",
        1 => "[a-z0-9]{1,3}",
        1 => "\\PC{1,3}",
        1 => any::<String>(),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// A value that is easily mistaken for two values, or for the text around it.
fn value() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[:/%<>{} .-]{1,2}",
        "[a1Aé的]{1,2}",
        "%[0-9A-F]{2}",
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 1..4).prop_map(|pieces| pieces.concat())
}

fn fill(template: &Template<'_>, values: &[String]) -> String {
    let mut key = String::new();
    let mut values = values.iter();
    for segment in template.segments() {
        match segment {
            Segment::Literal(text) => key.push_str(text),
            Segment::Placeholder(_) => {
                let value = values.next().expect("a value for each placeholder");
                write!(Escaped::new(&mut key), "{value}").expect("a string");
            }
        }
    }
    key
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(&after[..2]).expect("two digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).expect("the bytes of a text")
}

proptest! {
    #[test]
    fn any_template_is_taken_apart_or_refused_with_a_place(text in template()) {
        match Template::parse(&text) {
            Ok(template) => {
                let mut again = String::new();
                let mut after_literal = false;
                for segment in template.segments() {
                    match segment {
                        Segment::Literal(literal) => {
                            prop_assert!(!literal.is_empty() && !after_literal);
                            again += &literal.replace('<', "<<").replace('>', ">>");
                        }
                        Segment::Placeholder(placeholder) => {
                            prop_assert!(!placeholder.text().trim().is_empty());
                            again += &text[placeholder.span()];
                        }
                    }
                    after_literal = matches!(segment, Segment::Literal(_));
                }
                prop_assert_eq!(again, text);
            }
            Err(error) => {
                let span = error.span();
                prop_assert!(text.get(span).is_some(), "not a part of the template");
                prop_assert!(error.to_string().lines().count() >= 2);
            }
        }
    }

    #[test]
    fn different_values_never_give_the_same_key(
        text in template(),
        (one, other) in (1_usize..5).prop_flat_map(|count| {
            let values = || prop::collection::vec(value(), count);
            (values(), values())
        }),
    ) {
        let Ok(template) = Template::parse(&text) else { return Ok(()) };
        if template.placeholders().count() == one.len() {
            let (a, b) = (fill(&template, &one), fill(&template, &other));
            prop_assert_eq!(a == b, one == other, "{:?} and {:?} give {:?}", one, other, a);
        }
    }

    #[test]
    fn values_next_to_each_other_stay_apart(
        separator in "[:/-_.%a0]{1,3}",
        one in (value(), value()),
        other in (value(), value()),
    ) {
        let text = format!("<a>{separator}<b>");
        let Ok(template) = Template::parse(&text) else { return Ok(()) };
        let key = |(a, b): &(String, String)| fill(&template, &[a.clone(), b.clone()]);
        prop_assert_eq!(key(&one) == key(&other), one == other);
    }

    #[test]
    fn escaped_value_can_be_read_back(value in value()) {
        let mut key = String::new();
        let mut escaped = Escaped::new(&mut key);
        write!(escaped, "{value}").expect("a string");
        prop_assert_eq!(escaped.is_blank(), value.trim().is_empty());
        prop_assert_eq!(decoded(&key), value);
        prop_assert!(!key.contains(|c| is_encoded(c) && c != '%'), "{}", key);
    }

    #[test]
    fn any_placeholder_is_a_part_of_a_request_or_refused(
        inside in prop_oneof![
            "(header|query|path|method|[a-z]{1,3})( ?: ?)?[a-z-]{0,3}( as )?[a-z0-9]{0,4}",
            "\\PC{1,8}",
        ],
    ) {
        let text = format!("<{inside}>");
        let Ok(template) = Template::parse(&text) else { return Ok(()) };
        for placeholder in template.placeholders() {
            if let Err(error) = RoutePart::parse(&text, placeholder) {
                prop_assert!(error.to_string().lines().count() >= 2);
            }
        }
    }

    #[test]
    fn any_text_is_a_duration_or_refused(
        text in prop_oneof!["[0-9.hms -]{0,12}", "[0-9]{1,30}(h|m|s|ms)", "\\PC{0,8}", any::<String>()],
    ) {
        match duration(&text) {
            Ok(duration) => prop_assert!(duration <= MAX_DURATION),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn duration_is_the_sum_of_its_parts(
        hours in prop::option::of(0_u64..4000),
        minutes in prop::option::of(0_u64..100_000),
        seconds in prop::option::of(0_u64..1_000_000),
        milliseconds in prop::option::of(0_u64..100_000_000),
    ) {
        let parts = [(hours, "h", 3_600_000), (minutes, "m", 60_000), (seconds, "s", 1000), (milliseconds, "ms", 1)];
        let (mut text, mut sum) = (String::new(), 0);
        for (number, unit, factor) in parts {
            if let Some(number) = number {
                write!(text, "{number}{unit}").expect("a string");
                sum += number * factor;
            }
        }
        let sum = Duration::from_millis(sum);
        if !text.is_empty() && sum <= MAX_DURATION {
            prop_assert_eq!(duration(&text), Ok(sum));
        } else {
            prop_assert!(duration(&text).is_err());
        }
    }

    #[test]
    fn fraction_is_exact_to_the_nanosecond(seconds in 0_u32..100_000, nanoseconds in 0_u32..1_000_000_000) {
        let text = format!("{seconds}.{nanoseconds:09}s");
        prop_assert_eq!(duration(&text), Ok(Duration::new(seconds.into(), nanoseconds)));
    }
}
