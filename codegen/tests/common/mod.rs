//! A reader of C++ integer expressions, independent of the printer: precedence as the language has it.

use std::collections::HashMap;

/// Values of names.
pub type Names = HashMap<String, i64>;

/// The value of `text`, every operation wrapping to 32 bits.
pub fn eval(text: &str, names: &Names) -> i64 {
    let mut parser = Parser { tokens: tokens(text), at: 0, names };
    let value = parser.conditional();
    assert_eq!(
        parser.at,
        parser.tokens.len(),
        "the expression {text:?} goes on after {:?}",
        &parser.tokens[..parser.at]
    );
    value
}

/// Evaluates the declarations of a C++ text in order (`const int a = 1, b = 2;`), adding to `names`.
pub fn declare(text: &str, names: &mut Names) {
    for line in text.lines().map(|line| line.split("//").next().unwrap_or_default().trim()) {
        let types = ["constexpr int ", "const int ", "const unsigned ", "const bool ", "int "];
        let Some(rest) = types.iter().find_map(|ty| line.strip_prefix(ty)) else { continue };
        let Some(rest) = rest.strip_suffix(';') else { continue };
        for declaration in split_top(rest, ',') {
            let (name, value) = declaration.split_once('=').expect("a declaration has a value");
            let value = eval(value, names);
            names.insert(name.trim().to_owned(), value);
        }
    }
}

/// `text` split at `separator` outside parentheses and brackets.
pub fn split_top(text: &str, separator: char) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        depth += i32::from("([".contains(c)) - i32::from(")]".contains(c));
        if c == separator && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().expect("starts with one").push(c);
        }
    }
    parts
}

fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let (mut tokens, mut i) = (Vec::new(), 0);
    while i < chars.len() {
        let c = chars[i];
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let start = i;
        if c.is_whitespace() {
            i += 1;
            continue;
        } else if word(c) {
            while i < chars.len() && word(chars[i]) {
                i += 1;
            }
        } else {
            let two: String = chars[i..(i + 2).min(chars.len())].iter().collect();
            i += if ["<<", ">>", "<=", ">=", "==", "!=", "&&", "||"].contains(&two.as_str()) { 2 } else { 1 };
        }
        tokens.push(chars[start..i].iter().collect());
    }
    tokens
}

/// Binary operators by precedence, loosest first.
const LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", "<=", ">", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

struct Parser<'a> {
    tokens: Vec<String>,
    at: usize,
    names: &'a Names,
}

impl Parser<'_> {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.peek() == token;
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &str) {
        assert!(self.take(token), "expected {token:?} at {:?}", &self.tokens[self.at..]);
    }

    fn conditional(&mut self) -> i64 {
        let condition = self.binary(0);
        if !self.take("?") {
            return condition;
        }
        let yes = self.conditional();
        self.expect(":");
        let no = self.conditional();
        if condition != 0 { yes } else { no }
    }

    fn binary(&mut self, level: usize) -> i64 {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1);
        while operators.contains(&self.peek()) {
            let operator = self.peek().to_owned();
            self.at += 1;
            let right = self.binary(level + 1);
            left = apply(&operator, left, right);
        }
        left
    }

    fn unary(&mut self) -> i64 {
        match self.peek() {
            "-" => {
                self.at += 1;
                wrap(-self.unary())
            }
            "!" => {
                self.at += 1;
                i64::from(self.unary() == 0)
            }
            "~" => {
                self.at += 1;
                wrap(!self.unary())
            }
            "(" => {
                self.at += 1;
                let value = if ["int", "unsigned"].contains(&self.peek()) {
                    self.at += 1;
                    self.expect(")");
                    return self.unary();
                } else {
                    self.conditional()
                };
                self.expect(")");
                value
            }
            _ => self.primary(),
        }
    }

    fn primary(&mut self) -> i64 {
        let token = self.peek().to_owned();
        self.at += 1;
        if self.take("(") {
            let first = self.conditional();
            self.expect(",");
            let second = self.conditional();
            self.expect(")");
            return match token.as_str() {
                "min" => first.min(second),
                "max" => first.max(second),
                other => panic!("unknown function {other}"),
            };
        }
        match token.as_str() {
            "true" => 1,
            "false" => 0,
            name => match name.trim_end_matches('u').parse() {
                Ok(number) => number,
                Err(_) => *self.names.get(name).unwrap_or_else(|| panic!("unknown name {name:?}")),
            },
        }
    }
}

fn wrap(value: i64) -> i64 {
    i64::from(value as i32)
}

fn apply(operator: &str, a: i64, b: i64) -> i64 {
    wrap(match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a.wrapping_mul(b),
        "/" => a / b,
        "%" => a % b,
        "<<" => i64::from((a as i32) << b),
        ">>" => a >> b,
        "&" => a & b,
        "|" => a | b,
        "^" => a ^ b,
        "<" => i64::from(a < b),
        "<=" => i64::from(a <= b),
        ">" => i64::from(a > b),
        ">=" => i64::from(a >= b),
        "==" => i64::from(a == b),
        "!=" => i64::from(a != b),
        "&&" => i64::from(a != 0 && b != 0),
        "||" => i64::from(a != 0 || b != 0),
        other => panic!("unknown operator {other}"),
    })
}
