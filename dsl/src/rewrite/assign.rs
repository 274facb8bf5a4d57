//! Assignment: an instruction for run-time variables, plain assignment for comptime ones, which must not stand inside
//! a run-time scope.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, ExprAssign, ExprBinary, Ident};

use super::{Rewriter, internal, marker, verbatim};

/// The variable whose change an assignment to this place is.
fn root(place: &Expr) -> Option<&Ident> {
    match place {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Field(node) => root(&node.base),
        Expr::Index(node) if is_simple(&node.index) => root(&node.expr),
        Expr::Paren(node) => root(&node.expr),
        _ => None,
    }
}

/// Whether evaluating an index twice is the same as once.
fn is_simple(index: &Expr) -> bool {
    match index {
        Expr::Path(_) | Expr::Lit(_) => true,
        Expr::Field(node) => is_simple(&node.base),
        Expr::Paren(node) => is_simple(&node.expr),
        Expr::Binary(node) => is_simple(&node.left) && is_simple(&node.right),
        _ => false,
    }
}

impl Rewriter<'_> {
    /// What tells run-time values from plain ones, of the type of `value`.
    pub(super) fn kind(&self, value: &TokenStream, span: Span) -> TokenStream {
        let control = self.control(span);
        quote_spanned!(span=> (&#control::Probe::of(&#value)).kind())
    }

    pub(super) fn assign(&mut self, node: &mut ExprAssign) -> Expr {
        self.expr(&mut node.right);
        let (span, right) = (node.eq_token.span(), node.right.clone());
        match &mut *node.left {
            Expr::Infer(_) => Expr::Assign(node.clone()),
            Expr::Tuple(_) => {
                let mut names = Vec::new();
                let mut assignments = TokenStream::new();
                let pattern = self.destructure(&mut node.left, span, &mut names, &mut assignments);
                verbatim(quote_spanned!(span=> { let #pattern = #right; #assignments }))
            }
            left => {
                self.place(left);
                let value = internal("__value", right.span());
                let assigned = self.assign_to(left, &value, span);
                verbatim(quote_spanned!(span=> { let #value = #right; #assigned }))
            }
        }
    }

    fn destructure(
        &mut self,
        left: &mut Expr,
        span: Span,
        names: &mut Vec<Ident>,
        assignments: &mut TokenStream,
    ) -> TokenStream {
        match left {
            Expr::Tuple(tuple) => {
                let parts: Vec<_> =
                    tuple.elems.iter_mut().map(|elem| self.destructure(elem, span, names, assignments)).collect();
                quote!((#(#parts,)*))
            }
            Expr::Infer(_) => quote!(_),
            left => {
                self.place(left);
                let name = internal(&format!("__value_{}", names.len()), left.span());
                assignments.extend(self.assign_to(left, &name, span));
                names.push(name.clone());
                quote!(#name)
            }
        }
    }

    fn assign_to(&self, place: &Expr, value: &Ident, span: Span) -> TokenStream {
        let control = self.control(span);
        let (target, kind) = (internal("__place", place.span()), internal("__kind", value.span()));
        let kind_of_place = self.kind(&quote_spanned!(span=> *#target), span);
        let borrowed = quote_spanned!(place.span()=> &mut #place);
        let check =
            self.marker_of(place).map(|marker| quote_spanned!(span=> #control::Change::check(#kind, &#marker);));
        quote_spanned! {span=>
            match #borrowed {
                #target => {
                    let #kind = #kind_of_place;
                    #check
                    #control::Assign::assign(#kind, #target, #value);
                }
            }
        }
    }

    /// `x += e` stays itself, behind the check that a comptime `x` may change here.
    pub(super) fn compound_assign(&mut self, node: &mut ExprBinary) -> Expr {
        self.place(&mut node.left);
        self.expr(&mut node.right);
        let span = node.op.span();
        let Some(marker) = self.marker_of(&node.left) else { return Expr::Binary(node.clone()) };
        let place = &node.left;
        let (control, kind) = (self.control(span), self.kind(&quote!(#place), span));
        verbatim(quote_spanned!(span=> { #control::Change::check(#kind, &#marker); #node; }))
    }

    /// The companion of the `let mut` whose variable a change of this place changes.
    fn marker_of(&self, place: &Expr) -> Option<Ident> {
        root(place).filter(|name| self.scopes.is_mutable(name)).map(marker)
    }

    /// Rewrites what is inside a place (an index, a receiver) but not the place itself.
    fn place(&mut self, place: &mut Expr) {
        match place {
            Expr::Path(_) => {}
            Expr::Field(node) => self.place(&mut node.base),
            Expr::Index(node) => {
                self.place(&mut node.expr);
                self.expr(&mut node.index);
            }
            Expr::Paren(node) => self.place(&mut node.expr),
            other => self.expr(other),
        }
    }
}
