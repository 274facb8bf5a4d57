//! Expressions with their precedence, so that parentheses stand only where C++ or a reader needs them.

use std::fmt;

/// Precedence levels of C++, loosest first.
pub mod prec {
    /// `?:`
    pub const CONDITIONAL: u8 = 3;
    /// `||`
    pub const LOGICAL_OR: u8 = 4;
    /// `&&`
    pub const LOGICAL_AND: u8 = 5;
    /// `|`
    pub const OR: u8 = 6;
    /// `^`
    pub const XOR: u8 = 7;
    /// `&`
    pub const AND: u8 = 8;
    /// `==` `!=`
    pub const EQUALITY: u8 = 9;
    /// `<` `<=` `>` `>=`
    pub const RELATION: u8 = 10;
    /// `<<` `>>`
    pub const SHIFT: u8 = 11;
    /// `+` `-`
    pub const SUM: u8 = 12;
    /// `*` `/` `%`
    pub const PRODUCT: u8 = 13;
    /// prefix operators and casts
    pub const UNARY: u8 = 15;
    /// names, literals, calls, subscripts
    pub const PRIMARY: u8 = 16;
}

/// A C++ expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expr {
    text: String,
    prec: u8,
}

impl Expr {
    /// A name, a literal, a call, a subscript.
    pub fn primary(text: impl Into<String>) -> Self {
        Expr { text: text.into(), prec: prec::PRIMARY }
    }

    /// A prefix operator or a cast before `operand`.
    pub fn prefix(operator: &str, operand: &Expr) -> Self {
        // `- -x` must not become `--x`.
        let text = operand.at_least(prec::UNARY);
        let space = if operator == "-" && text.starts_with('-') { " " } else { "" };
        Expr { text: format!("{operator}{space}{text}"), prec: prec::UNARY }
    }

    /// A left-associative binary operator.
    pub fn binary(level: u8, operator: &str, left: &Expr, right: &Expr) -> Self {
        let text = format!("{} {operator} {}", left.under(level, level), right.under(level, level + 1));
        Expr { text, prec: level }
    }

    /// `cond ? yes : no`.
    pub fn conditional(cond: &Expr, yes: &Expr, no: &Expr) -> Self {
        let [cond, yes] = [cond, yes].map(|e| e.at_least(prec::CONDITIONAL + 1));
        Expr { text: format!("{cond} ? {yes} : {}", no.at_least(prec::CONDITIONAL)), prec: prec::CONDITIONAL }
    }

    /// `function(arguments)`.
    pub fn call(function: &str, arguments: &[&Expr]) -> Self {
        let arguments: Vec<_> = arguments.iter().map(|a| a.text.as_str()).collect();
        Expr::primary(format!("{function}({})", arguments.join(", ")))
    }

    /// `self[index]`.
    pub fn subscript(&self, index: &Expr) -> Self {
        Expr::primary(format!("{}[{index}]", self.at_least(prec::PRIMARY)))
    }

    /// Whether it is a name or a literal: as cheap to repeat as to name.
    pub fn is_atom(&self) -> bool {
        self.text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.')
    }

    /// The text, in parentheses if it binds looser than `level`.
    pub fn at_least(&self, level: u8) -> String {
        if self.prec < level { format!("({})", self.text) } else { self.text.clone() }
    }

    /// The text as an operand of an operator of precedence `parent`, which needs at least `level`. Shifts, bitwise
    /// operators and mixed logic get parentheses that C++ does not ask for: few readers know those levels by heart.
    fn under(&self, parent: u8, level: u8) -> String {
        let obscure = matches!(parent, prec::SHIFT | prec::AND | prec::XOR | prec::OR);
        let mixed = parent == prec::LOGICAL_OR && self.prec == prec::LOGICAL_AND;
        let inner_obscure = matches!(self.prec, prec::SHIFT | prec::AND | prec::XOR | prec::OR) && self.prec != parent;
        if (obscure && self.prec < prec::UNARY && self.prec != parent) || mixed || inner_obscure {
            format!("({})", self.text)
        } else {
            self.at_least(level)
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
