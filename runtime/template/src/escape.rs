//! How a value becomes part of a key.

use std::fmt;

/// Appends values to a key, percent-encoding whatever could be mistaken for the text around them.
///
/// Alphanumerics of any script, `-`, `_` and `.` stay; every other byte becomes `%XX`. So a value
/// never contains `:`, `/`, `%` or a bracket, and different values give different texts.
///
/// ```
/// use std::fmt::Write;
///
/// let mut key = String::from("stock:");
/// write!(distlock_template::Escaped::new(&mut key), "{}", "a/b ü")?;
/// assert_eq!(key, "stock:a%2Fb%20ü");
/// # Ok::<(), std::fmt::Error>(())
/// ```
#[derive(Debug)]
pub struct Escaped<'a> {
    key: &'a mut String,
    blank: bool,
}

impl<'a> Escaped<'a> {
    /// Writes to the end of `key`.
    pub fn new(key: &'a mut String) -> Self {
        Self { key, blank: true }
    }

    /// Whether nothing but white space was written so far.
    pub fn is_blank(&self) -> bool {
        self.blank
    }
}

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, value: &str) -> fmt::Result {
        self.blank = self.blank && value.trim().is_empty();
        let mut rest = value;
        while let Some(at) = rest.find(is_encoded) {
            self.key.push_str(&rest[..at]);
            // `find` stops at the start of a character, so there is one.
            let len = rest[at..].chars().next().map_or(1, char::len_utf8);
            for byte in rest[at..at + len].bytes() {
                self.key.push('%');
                self.key.push(char::from(HEX[usize::from(byte >> 4)]));
                self.key.push(char::from(HEX[usize::from(byte & 0xf)]));
            }
            rest = &rest[at + len..];
        }
        self.key.push_str(rest);
        Ok(())
    }
}

/// Whether a character of a value is percent-encoded; such characters separate placeholders.
pub fn is_encoded(character: char) -> bool {
    !(character.is_alphanumeric() || matches!(character, '-' | '_' | '.'))
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";
