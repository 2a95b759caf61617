//! Values of a key: read as their type and written again, so that each has one spelling.

use std::borrow::Cow;
use std::fmt;

use distlock_template::ValueType;
use uuid::Uuid;

/// A value as it stands in the key.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Signed(i128),
    Text(Cow<'a, str>),
    Unsigned(u128),
    Uuid(Uuid),
}

impl<'a> Value<'a> {
    /// `None` if `text` is none of this type.
    pub(crate) fn read(text: Cow<'a, str>, value_type: ValueType) -> Option<Self> {
        Some(match value_type {
            ValueType::Signed { bits } => {
                let value: i128 = text.parse().ok()?;
                // i128 shifts its sign in: what is left of a value that fits is its sign alone.
                let sign = value >> (bits - 1);
                Self::Signed((sign == 0 || sign == -1).then_some(value)?)
            }
            ValueType::Text => Self::Text(text),
            ValueType::Unsigned { bits } => {
                let value: u128 = text.parse().ok()?;
                let fits = bits >= 128 || value >> bits == 0;
                Self::Unsigned(fits.then_some(value)?)
            }
            ValueType::Uuid => Self::Uuid(Uuid::parse_str(&text).ok()?),
        })
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
            Self::Uuid(value) => value.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, value_type: ValueType) -> Option<String> {
        Value::read(text.into(), value_type).map(|value| value.to_string())
    }

    #[test]
    fn spellings_of_a_number_are_one() {
        for text in ["7", "007", "+7"] {
            assert_eq!(read(text, ValueType::Unsigned { bits: 64 }).as_deref(), Some("7"));
            assert_eq!(read(text, ValueType::Signed { bits: 8 }).as_deref(), Some("7"));
        }
        assert_eq!(read("-0", ValueType::Signed { bits: 8 }).as_deref(), Some("0"));
    }

    #[test]
    fn a_number_keeps_to_its_type() {
        for bits in [8, 16, 32, 64, 128] {
            let most = u128::MAX >> (128 - bits);
            let most_signed = i128::MAX >> (128 - bits);
            let unsigned = |text: String| read(&text, ValueType::Unsigned { bits }).is_some();
            let signed = |text: String| read(&text, ValueType::Signed { bits }).is_some();
            assert!(unsigned(most.to_string()) && !unsigned(format!("{most}0")));
            assert!(signed(most_signed.to_string()) && signed((-most_signed - 1).to_string()));
            if bits < 128 {
                assert!(!unsigned((most + 1).to_string()));
                assert!(!signed((most_signed + 1).to_string()));
                assert!(!signed((-most_signed - 2).to_string()));
            }
        }
        for text in ["", "-1", "1.0", "x", " 7", "0x7"] {
            assert_eq!(read(text, ValueType::Unsigned { bits: 64 }), None, "{text}");
        }
    }

    #[test]
    fn spellings_of_a_uuid_are_one() {
        let one = "0f1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        let spellings =
            [one.to_owned(), one.to_uppercase(), one.replace('-', ""), format!("{{{one}}}")];
        for text in spellings {
            assert_eq!(read(&text, ValueType::Uuid).as_deref(), Some(one));
        }
        assert_eq!(read("0f1b", ValueType::Uuid), None);
    }
}
