//! Names that are unique where they are visible, and legal in C++.

use std::collections::HashSet;

use super::reserved::is_reserved;

/// The names in use, by scope from the outermost to the innermost.
#[derive(Debug)]
pub struct Names {
    scopes: Vec<HashSet<String>>,
    /// How many placeholders have been taken, where nobody is given a name.
    placeholders: Option<usize>,
}

/// What starts a placeholder, and nothing else.
const PLACEHOLDER: &str = "placeholder_of_name_";

impl Names {
    /// Names that are none of `taken`.
    pub fn new(taken: impl IntoIterator<Item = String>) -> Self {
        Names { scopes: vec![taken.into_iter().collect()], placeholders: None }
    }

    /// A placeholder for each name, which [`words`] leaves out.
    pub fn placeholders() -> Self {
        Names { scopes: vec![HashSet::new()], placeholders: Some(0) }
    }

    pub fn enter(&mut self) {
        self.scopes.push(HashSet::new());
    }

    pub fn leave(&mut self) {
        self.scopes.pop();
    }

    /// `wanted`, or a numbered variant of it, taken in the present scope.
    pub fn take(&mut self, wanted: &str) -> String {
        if let Some(count) = &mut self.placeholders {
            *count += 1;
            return format!("{PLACEHOLDER}{count}");
        }
        let wanted = legal(wanted);
        let name = std::iter::once(wanted.clone())
            .chain((2..).map(|i| format!("{wanted}_{i}")))
            .find(|name| !self.scopes.iter().any(|scope| scope.contains(name)))
            .expect("there is always another number");
        self.scopes.last_mut().expect("the outermost scope stays").insert(name.clone());
        name
    }
}

/// The identifiers of a line of code that are not names given by [`Names`].
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    let code = if line.trim_start().starts_with('#') { "" } else { line.split("//").next().unwrap_or_default() };
    // Members and the parts of numbers hang on a dot or a digit.
    let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
    let words = words.filter_map(|word| word.split('.').next());
    words.filter(|word| word.starts_with(|c: char| !c.is_ascii_digit()) && !word.starts_with(PLACEHOLDER))
}

/// `name` without characters or words that C++ keeps for itself.
fn legal(name: &str) -> String {
    let mut name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        name.insert(0, 'v');
    }
    if is_reserved(&name) {
        name.push('_');
    }
    name
}
