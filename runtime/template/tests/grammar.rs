//! The grammar of templates: what is taken apart, and what is refused with which words.

use std::collections::HashMap;
use std::fmt::Write;

use distlock_template::{Escaped, Segment, Template};

fn shape(template: &str) -> Vec<String> {
    let template = Template::parse(template).unwrap();
    template
        .segments()
        .iter()
        .map(|segment| match segment {
            Segment::Literal(text) => format!("text {text}"),
            Segment::Placeholder(placeholder) => format!("value {}", placeholder.text()),
        })
        .collect()
}

fn refusal(template: &str) -> String {
    Template::parse(template).unwrap_err().to_string()
}

fn fill(template: &str, values: &[&str]) -> String {
    let mut key = String::new();
    let mut values = values.iter();
    for segment in Template::parse(template).unwrap().segments() {
        match segment {
            Segment::Literal(text) => key.push_str(text),
            Segment::Placeholder(_) => {
                write!(Escaped::new(&mut key), "{}", values.next().unwrap()).unwrap();
            }
        }
    }
    key
}

/// Every text of at most `length` characters of `alphabet`, without the empty one.
fn texts(alphabet: &[char], length: u32) -> Vec<String> {
    let mut all = Vec::new();
    let mut last = vec![String::new()];
    for _ in 0..length {
        last = last
            .iter()
            .flat_map(|text| alphabet.iter().map(move |character| format!("{text}{character}")))
            .collect();
        all.extend(last.iter().cloned());
    }
    all
}

#[test]
fn text_and_placeholders_come_in_order() {
    assert_eq!(shape("jobs:nightly"), ["text jobs:nightly"]);
    assert_eq!(shape("<a>"), ["value a"]);
    assert_eq!(shape("a:<b>:<c.d>:e"), ["text a:", "value b", "text :", "value c.d", "text :e"]);
    assert_eq!(shape("stock:{<sku>}"), ["text stock:{", "value sku", "text }"]);
}

#[test]
fn doubled_brackets_are_literal() {
    assert_eq!(shape("x:<<id>>"), ["text x:<id>"]);
    assert_eq!(shape("<<<a>>>"), ["text <", "value a", "text >"]);
    assert_eq!(shape("<<<<a>>>>"), ["text <<a>>"]);
    assert_eq!(shape("order#1"), ["text order#1"]);
}

#[test]
fn white_space_around_a_placeholder_is_dropped() {
    let template = Template::parse("é:< a >").unwrap();
    let placeholder = template.placeholders().next().unwrap();

    assert_eq!(placeholder.text(), "a");
    assert_eq!(placeholder.span(), 3..8);
}

#[test]
fn refusals_quote_the_template_with_a_caret_line() {
    assert_eq!(
        refusal("é:a<b"),
        "`<` opens a placeholder that is never closed\n  é:a<b\n     ^^\nclose it, as in \
         `<sku_id>`; for a literal `<` write `<<`"
    );
    assert_eq!(
        refusal("a>b"),
        "`>` closes no placeholder\n  a>b\n   ^\nopen one before it, as in `<sku_id>`; for a \
         literal `>` write `>>`"
    );
    assert_eq!(
        refusal("\ta:<b<c>"),
        "`<` stands inside a placeholder\n  \\ta:<b<c>\n      ^^^\nclose the placeholder first, as \
         in `<sku_id>`; for a literal `<` write `<<`"
    );
    assert_eq!(
        refusal("a:<b>x<c>"),
        "the values of `<b>` and `<c>` run into each other, so different arguments could share one \
         lock\n  a:<b>x<c>\n    ^^^^^^^\nseparate them by a character that no value contains, such \
         as `:`, as in `<b>:<c>`"
    );
}

#[test]
fn templates_without_text_are_refused() {
    for template in ["", " ", "\n\t"] {
        assert!(refusal(template).contains("this one is empty"), "{template:?}");
    }
}

#[test]
fn empty_placeholders_are_refused() {
    for template in ["<>", "a:< >", "a:<b>:<\t>"] {
        assert!(refusal(template).contains("a placeholder is empty"), "{template:?}");
    }
}

#[test]
fn what_does_not_separate_two_values_is_refused() {
    for separator in ["", "a", "7", "-", "_", ".", "ü", "%", "a%b"] {
        let refusal = refusal(&format!("<a>{separator}<b>"));
        assert!(refusal.contains("run into each other"), "{separator:?}: {refusal}");
    }
    for separator in [":", "/", " ", "a:b", "%:", "€", "<<", "{"] {
        assert!(Template::parse(&format!("<a>{separator}<b>")).is_ok(), "{separator:?}");
    }
}

#[test]
fn every_small_text_is_parsed_or_refused_and_what_is_parsed_prints_back() {
    for text in texts(&['<', '>', ':', 'a', ' ', 'é'], 6) {
        let Ok(template) = Template::parse(&text) else { continue };
        let mut printed = String::new();
        for segment in template.segments() {
            match segment {
                Segment::Literal(literal) => {
                    assert!(!literal.is_empty(), "{text:?}");
                    printed.push_str(&literal.replace('<', "<<").replace('>', ">>"));
                }
                Segment::Placeholder(placeholder) => {
                    assert_eq!(printed.len(), placeholder.span().start, "{text:?}");
                    printed.push_str(&text[placeholder.span()]);
                }
            }
        }
        assert_eq!(printed, text);
    }
}

#[test]
fn different_values_give_different_keys_for_every_accepted_separator() {
    let values = texts(&['a', '3', 'A', '%', ':', '-', '/'], 3);
    for separator in [":", "%:", "-:-", ":a", "a:", "/", "%3A:"] {
        let template = format!("<a>{separator}<b>");
        let mut keys = HashMap::new();
        for a in &values {
            for b in values.iter().filter(|b| b.len() < 3) {
                let other = keys.insert(fill(&template, &[a, b]), (a, b));
                assert_eq!(other, None, "{template}: ({a}, {b})");
            }
        }
    }
}
