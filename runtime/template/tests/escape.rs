//! How a value becomes part of a key.

use std::collections::HashMap;
use std::fmt::Write;

use distlock_template::{Escaped, is_encoded};

fn escaped(value: &str) -> String {
    let mut key = String::new();
    write!(Escaped::new(&mut key), "{value}").unwrap();
    key
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let hex = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn letters_digits_and_three_marks_stay() {
    for value in ["sku-7_a.b", "Grün", "東京", "٣", "-7", "1.5"] {
        assert_eq!(escaped(value), value);
    }
}

#[test]
fn all_else_is_percent_encoded_byte_by_byte() {
    assert_eq!(escaped("a/b:c"), "a%2Fb%3Ac");
    assert_eq!(escaped("100%"), "100%25");
    assert_eq!(escaped("€"), "%E2%82%AC");
    assert_eq!(escaped("\0\n "), "%00%0A%20");
    assert_eq!(escaped("{x}"), "%7Bx%7D");
}

#[test]
fn every_character_decodes_to_itself() {
    let mut all = HashMap::new();
    for character in '\0'..=char::MAX {
        let text = escaped(character.encode_utf8(&mut [0; 4]));
        assert_eq!(text.contains('%'), is_encoded(character), "{character:?}");
        assert_eq!(decoded(&text), character.to_string());
        assert_eq!(all.insert(text, character), None);
    }
}

#[test]
fn pieces_of_one_value_are_escaped_as_the_whole() {
    let mut key = String::new();
    let mut value = Escaped::new(&mut key);
    let (name, number) = ("a b", 7);
    write!(value, "{name}/{number}").unwrap();

    assert_eq!(key, escaped("a b/7"));
}

#[test]
fn only_white_space_is_blank() {
    for (value, blank) in [("", true), (" \t\u{a0}", true), (" x", false), ("0", false)] {
        let mut key = String::from("stock:");
        let mut escaped = Escaped::new(&mut key);
        write!(escaped, "{value}").unwrap();
        assert_eq!(escaped.is_blank(), blank, "{value:?}");
    }
}
