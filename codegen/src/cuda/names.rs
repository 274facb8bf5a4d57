//! Names that are unique where they are visible, and legal in C++.

use std::collections::HashSet;

/// The names in use, by scope from the outermost to the innermost.
#[derive(Debug)]
pub struct Names {
    scopes: Vec<HashSet<String>>,
}

impl Names {
    pub fn new(taken: impl IntoIterator<Item = String>) -> Self {
        Names { scopes: vec![taken.into_iter().collect()] }
    }

    pub fn enter(&mut self) {
        self.scopes.push(HashSet::new());
    }

    pub fn leave(&mut self) {
        self.scopes.pop();
    }

    /// `wanted`, or a numbered variant of it, taken in the present scope.
    pub fn take(&mut self, wanted: &str) -> String {
        let wanted = legal(wanted);
        let name = std::iter::once(wanted.clone())
            .chain((2..).map(|i| format!("{wanted}_{i}")))
            .find(|name| !self.scopes.iter().any(|scope| scope.contains(name)))
            .expect("there is always another number");
        self.scopes.last_mut().expect("the outermost scope stays").insert(name.clone());
        name
    }
}

/// `name` without characters or words that C++ keeps for itself.
fn legal(name: &str) -> String {
    let mut name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        name.insert(0, 'v');
    }
    if RESERVED.contains(&name.as_str()) || name.starts_with("__") {
        name.push('_');
    }
    name
}

const RESERVED: &[&str] = &[
    "alignas",
    "alignof",
    "and",
    "and_eq",
    "asm",
    "auto",
    "bitand",
    "bitor",
    "blockDim",
    "blockIdx",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "compl",
    "const",
    "const_cast",
    "constexpr",
    "continue",
    "decltype",
    "default",
    "delete",
    "do",
    "double",
    "dynamic_cast",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "goto",
    "gridDim",
    "if",
    "inline",
    "int",
    "long",
    "main",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "not_eq",
    "nullptr",
    "operator",
    "or",
    "or_eq",
    "private",
    "protected",
    "public",
    "register",
    "reinterpret_cast",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "static_assert",
    "static_cast",
    "struct",
    "switch",
    "template",
    "this",
    "thread_local",
    "threadIdx",
    "throw",
    "true",
    "try",
    "typedef",
    "typeid",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "wchar_t",
    "while",
    "xor",
    "xor_eq",
    // ours, and functions that the printed text calls
    "TensorMap",
    "abs",
    "bf16",
    "e4m3",
    "f16",
    "fabsf",
    "floorf",
    "fma",
    "fmaf",
    "fmaxf",
    "fminf",
    "max",
    "min",
    "rsqrtf",
    "sqrtf",
];
