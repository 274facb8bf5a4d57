//! `let`, and whatever else binds names: a fresh variable for each `mut`, a name for printing for the others.

use proc_macro2::Span;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Ident, Local, Pat, PatIdent, Stmt};

use super::{Rewriter, Tail, internal, marker};

pub struct Binding {
    pub name: Ident,
    pub mutable: bool,
}

/// The names that a pattern binds by value.
pub fn bindings(pat: &Pat) -> Vec<Binding> {
    let mut pat = pat.clone();
    take_bindings(&mut pat)
}

/// The names that a pattern binds by value, which lose their `mut`.
fn take_bindings(pat: &mut Pat) -> Vec<Binding> {
    #[derive(Default)]
    struct Take(Vec<Binding>);
    impl VisitMut for Take {
        fn visit_pat_ident_mut(&mut self, node: &mut PatIdent) {
            let is_constant = node.subpat.is_none()
                && node.mutability.is_none()
                && node.ident.to_string().starts_with(|first: char| first.is_uppercase());
            if node.by_ref.is_none() && !is_constant {
                let mutable = node.mutability.take().is_some();
                self.0.push(Binding { name: node.ident.clone(), mutable });
            }
            visit_mut::visit_pat_ident_mut(self, node);
        }
        fn visit_expr_mut(&mut self, _: &mut Expr) {}
    }
    let mut take = Take::default();
    take.visit_pat_mut(pat);
    take.0
}

impl Rewriter<'_> {
    pub(super) fn local(&mut self, mut local: Local) -> Vec<Stmt> {
        let Some(init) = &mut local.init else { return vec![Stmt::Local(local)] };
        let plain = is_plainly_comptime(&init.expr);
        self.expr(&mut init.expr);
        if let Some((_, diverge)) = &mut init.diverge {
            self.in_tail(diverge, Tail::Value);
        }
        if plain {
            let mut stmts = Vec::new();
            for found in bindings(&local.pat) {
                self.scopes.declare(&found.name, found.mutable);
                if found.mutable {
                    stmts.push(self.scope_marker(&found.name));
                }
            }
            stmts.insert(0, Stmt::Local(local));
            return stmts;
        }
        let bound = match simple_name(&mut local.pat) {
            Some(name) => {
                let declared = name.clone();
                // The initialiser's binding is the expansion's own, under the same name in messages.
                name.ident = Ident::new(&name.ident.to_string(), Span::mixed_site().located_at(name.ident.span()));
                name.mutability = None;
                let mutable = declared.mutability.is_some();
                self.bind(Binding { name: declared.ident, mutable }, &name.ident)
            }
            None => self.bind_pattern(&mut local.pat),
        };
        std::iter::once(Stmt::Local(local)).chain(bound).collect()
    }

    /// Declares the names of a pattern; returns the statements that rebind them.
    pub(super) fn bind_pattern(&mut self, pat: &mut Pat) -> Vec<Stmt> {
        take_bindings(pat).into_iter().flat_map(|binding| self.bind_to_itself(binding)).collect()
    }

    pub(super) fn bind_to_itself(&mut self, binding: Binding) -> Vec<Stmt> {
        let value = binding.name.clone();
        self.bind(binding, &value)
    }

    /// Declares a name and gives it the value held by another.
    fn bind(&mut self, Binding { name, mutable }: Binding, value: &Ident) -> Vec<Stmt> {
        self.scopes.declare(&name, mutable);
        let span = name.span();
        let control = self.control(span);
        let (text, given) = (name.to_string(), internal("__kind", span));
        let kind = self.kind(&quote_spanned!(span=> #value), span);
        let (mutability, method) = if mutable { (quote!(mut), "variable") } else { (quote!(), "value") };
        let method = Ident::new(method, span);
        let bound = statement(quote_spanned! {span=>
            let #mutability #name = match #kind { #given => #control::Bind::#method(#value, #text, #given) };
        });
        let marker = mutable.then(|| self.scope_marker(&name));
        std::iter::once(bound).chain(marker).collect()
    }

    pub(super) fn scope_marker(&self, name: &Ident) -> Stmt {
        let control = self.control(name.span());
        let (marker, text) = (marker(name), name.to_string());
        statement(quote_spanned!(name.span()=> let #marker = #control::Declared::here(#text);))
    }
}

/// The name of a pattern that is nothing but a name, perhaps with a type.
fn simple_name(pat: &mut Pat) -> Option<&mut PatIdent> {
    match pat {
        Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => Some(ident),
        Pat::Type(typed) => simple_name(&mut typed.pat),
        _ => None,
    }
}

/// Initialisers that are certainly no run-time value, and whose type may not be known yet where they stand.
fn is_plainly_comptime(init: &Expr) -> bool {
    match init {
        Expr::Closure(_) => true,
        Expr::Path(path) => path.path.is_ident("None"),
        Expr::Macro(mac) => mac.mac.path.is_ident("vec") && mac.mac.tokens.is_empty(),
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path.path.segments.last().is_some_and(|last| {
                last.ident == "default"
                    || last.ident == "with_capacity"
                    || (last.ident == "new" && call.args.is_empty())
            }),
            _ => false,
        },
        _ => false,
    }
}

fn statement(tokens: proc_macro2::TokenStream) -> Stmt {
    let span = tokens.span();
    syn::parse2(tokens).unwrap_or_else(|_| Stmt::Expr(Expr::Verbatim(quote_spanned!(span=> ())), None))
}
