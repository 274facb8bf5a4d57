//! Which names a body declares, and which of them with `let mut`.

use std::collections::HashMap;

use syn::Ident;

#[derive(Default)]
pub struct Scopes(Vec<HashMap<Ident, bool>>);

impl Scopes {
    pub fn enter(&mut self) {
        self.0.push(HashMap::new());
    }

    pub fn leave(&mut self) {
        self.0.pop();
    }

    pub fn declare(&mut self, name: &Ident, mutable: bool) {
        if let Some(scope) = self.0.last_mut() {
            scope.insert(name.clone(), mutable);
        }
    }

    /// Whether the innermost declaration of `name` is a `let mut`.
    pub fn is_mutable(&self, name: &Ident) -> bool {
        self.0.iter().rev().find_map(|scope| scope.get(name)).copied().unwrap_or(false)
    }
}
