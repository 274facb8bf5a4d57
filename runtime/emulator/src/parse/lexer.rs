//! Text to tokens. PTX needs no more than this: words (with their dots and `::`), numbers, strings, punctuation.

use crate::error::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'a> {
    /// Opcode, directive, register, label or symbol; opcodes keep their modifiers.
    Word(&'a str),
    Int(i128),
    F32(u32),
    F64(u64),
    Str(&'a str),
    Punct(u8),
}

pub(super) fn tokens(text: &str) -> Result<Vec<(Token<'_>, u32)>> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(text.len() / 4);
    let (mut i, mut line) = (0, 1u32);
    while i < bytes.len() {
        let start = i;
        match bytes[i] {
            b'\n' => {
                line += 1;
                i += 1;
            }
            c if c.is_ascii_whitespace() => i += 1,
            b'/' if bytes.get(i + 1) == Some(&b'/') => {
                while i < bytes.len() && bytes[i] != b'\n' {
                    i += 1;
                }
            }
            b'/' if bytes.get(i + 1) == Some(&b'*') => {
                let end = text[i + 2..].find("*/").ok_or_else(|| syntax(line, "a comment that never ends"))?;
                line += count_lines(&bytes[i..i + 2 + end]);
                i += end + 4;
            }
            b'"' => {
                let end = text[i + 1..].find('"').ok_or_else(|| syntax(line, "a string that never ends"))?;
                out.push((Token::Str(&text[i + 1..i + 1 + end]), line));
                line += count_lines(&bytes[i..i + 1 + end]);
                i += end + 2;
            }
            c if c.is_ascii_digit() => {
                while i < bytes.len() && (bytes[i].is_ascii_alphanumeric() || bytes[i] == b'.') {
                    let exponent = matches!(bytes[i], b'e' | b'E')
                        && !text[start..i].starts_with("0x")
                        && !text[start..i].starts_with("0f");
                    i += 1;
                    if exponent && i < bytes.len() && matches!(bytes[i], b'+' | b'-') {
                        i += 1;
                    }
                }
                out.push((number(&text[start..i], line)?, line));
            }
            c if is_word_start(c) => {
                while i < bytes.len()
                    && (is_word(bytes[i])
                        || (bytes[i..].starts_with(b"::") && bytes.get(i + 2).is_some_and(|&c| is_word(c))))
                {
                    i += if bytes[i] == b':' { 2 } else { 1 };
                }
                out.push((Token::Word(&text[start..i]), line));
            }
            c if b"{}()[]<>,;:@!|=+-*&~".contains(&c) => {
                out.push((Token::Punct(c), line));
                i += 1;
            }
            _ => {
                let c = text[i..].chars().next().unwrap_or('?');
                return Err(syntax(line, &format!("unexpected character {c:?}")));
            }
        }
    }
    Ok(out)
}

pub(super) fn syntax(line: u32, what: &str) -> Error {
    Error::Syntax { line, what: what.into() }
}

fn count_lines(bytes: &[u8]) -> u32 {
    bytes.iter().filter(|&&b| b == b'\n').count() as u32
}

fn is_word_start(c: u8) -> bool {
    c.is_ascii_alphabetic() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

fn number(text: &str, line: u32) -> Result<Token<'static>> {
    let bad = || syntax(line, &format!("`{text}` is not a number"));
    let hex = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| bad());
    let lower = text.to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0f") {
        return u32::from_str_radix(digits, 16).map(Token::F32).map_err(|_| bad());
    }
    if let Some(digits) = lower.strip_prefix("0d") {
        return hex(digits).map(Token::F64);
    }
    let digits = lower.strip_suffix('u').filter(|_| !lower.starts_with("0x") || lower.len() > 3).unwrap_or(&lower);
    if let Some(digits) = digits.strip_prefix("0x") {
        return hex(digits).map(|v| Token::Int(v.into()));
    }
    if let Some(digits) = digits.strip_prefix("0b") {
        return u64::from_str_radix(digits, 2).map(|v| Token::Int(v.into())).map_err(|_| bad());
    }
    if digits.contains(['.', 'e']) {
        return digits.parse::<f64>().map(|v| Token::F64(v.to_bits())).map_err(|_| bad());
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return u64::from_str_radix(&digits[1..], 8).map(|v| Token::Int(v.into())).map_err(|_| bad());
    }
    digits.parse::<u64>().map(|v| Token::Int(v.into())).map_err(|_| bad())
}
