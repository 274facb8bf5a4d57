use std::fmt;

use crate::dtype::Dtype;

/// A constant that parameterises an instruction.
#[derive(Clone, PartialEq, Debug)]
pub enum Attr {
    /// A count, an offset, an integer literal.
    Int(i64),
    /// A float literal.
    Float(f64),
    /// A flag.
    Bool(bool),
    /// An element type.
    Dtype(Dtype),
    /// A choice or a text.
    Text(String),
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Int(v) => write!(f, "{v}"),
            Attr::Float(v) => write!(f, "{v:?}"),
            Attr::Bool(v) => write!(f, "{v}"),
            Attr::Dtype(v) => write!(f, "{v}"),
            Attr::Text(v) => write!(f, "{v:?}"),
        }
    }
}

impl From<i64> for Attr {
    fn from(v: i64) -> Self {
        Attr::Int(v)
    }
}

impl From<i32> for Attr {
    fn from(v: i32) -> Self {
        Attr::Int(v.into())
    }
}

impl From<u32> for Attr {
    fn from(v: u32) -> Self {
        Attr::Int(v.into())
    }
}

impl From<bool> for Attr {
    fn from(v: bool) -> Self {
        Attr::Bool(v)
    }
}

impl From<f64> for Attr {
    fn from(v: f64) -> Self {
        Attr::Float(v)
    }
}

impl From<Dtype> for Attr {
    fn from(v: Dtype) -> Self {
        Attr::Dtype(v)
    }
}

impl From<&str> for Attr {
    fn from(v: &str) -> Self {
        Attr::Text(v.to_owned())
    }
}

/// An instruction's attributes, by name, in the order of the text form.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Attrs(Vec<(&'static str, Attr)>);

impl Attrs {
    /// No attributes.
    pub const fn none() -> Self {
        Attrs(Vec::new())
    }

    /// These, and `name` too.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Attr>) -> Self {
        self.set(name, value);
        self
    }

    /// Sets `name`, replacing what was there.
    pub fn set(&mut self, name: &'static str, value: impl Into<Attr>) {
        let value = value.into();
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// The attribute `name`.
    pub fn get(&self, name: &str) -> Option<&Attr> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// The integer `name`; 0 if absent.
    pub fn int(&self, name: &str) -> i64 {
        match self.get(name) {
            Some(Attr::Int(v)) => *v,
            _ => 0,
        }
    }

    /// The flag `name`; false if absent.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Attr::Bool(true)))
    }

    /// The text `name`; empty if absent.
    pub fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Attr::Text(v)) => v,
            _ => "",
        }
    }

    /// The element type `name`.
    pub fn dtype(&self, name: &str) -> Option<Dtype> {
        match self.get(name) {
            Some(Attr::Dtype(v)) => Some(*v),
            _ => None,
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Attr)> {
        self.0.iter().map(|(n, v)| (*n, v))
    }
}
