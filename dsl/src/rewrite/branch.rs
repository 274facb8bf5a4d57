//! `if`, `while` and `match`: a statement `if` may branch at run time, the others are comptime.

use proc_macro2::Span;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{BinOp, Block, Expr, ExprBinary, ExprIf, ExprMatch, ExprWhile, Pat, Stmt};

use super::{Rewriter, Tail, binding, internal, verbatim};

/// Whether the branches show that the value of the `if` is `()`.
pub fn ends_in_unit(node: &ExprIf) -> bool {
    let then = block_ends_in_unit(&node.then_branch);
    match &node.else_branch {
        None => true,
        Some((_, other)) => {
            then && match &**other {
                Expr::If(node) => ends_in_unit(node),
                Expr::Block(node) => block_ends_in_unit(&node.block),
                _ => false,
            }
        }
    }
}

fn block_ends_in_unit(block: &Block) -> bool {
    match block.stmts.last() {
        None | Some(Stmt::Local(_) | Stmt::Item(_)) => true,
        Some(Stmt::Macro(stmt)) => stmt.semi_token.is_some(),
        Some(Stmt::Expr(_, Some(_))) => true,
        Some(Stmt::Expr(expr, None)) => match expr {
            Expr::ForLoop(_) | Expr::While(_) | Expr::Assign(_) => true,
            Expr::Binary(node) => super::operator::is_compound_assignment(&node.op),
            Expr::If(node) => ends_in_unit(node),
            Expr::Block(node) => block_ends_in_unit(&node.block),
            _ => false,
        },
    }
}

/// Whether a condition binds names: `if let`, alone or in a chain.
fn binds(cond: &Expr) -> bool {
    match cond {
        Expr::Let(_) => true,
        Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) => binds(left) || binds(right),
        _ => false,
    }
}

impl Rewriter<'_> {
    pub(super) fn statement_if(&mut self, node: &mut ExprIf) -> Expr {
        if binds(&node.cond) {
            self.pattern_if(node, Tail::Unit);
            return Expr::If(node.clone());
        }
        let span = node.if_token.span;
        let control = self.control(span);
        self.expr(&mut node.cond);
        self.block(&mut node.then_branch, Tail::Unit);
        let branch = internal("__branch", span);
        let (attrs, cond, then) = (&node.attrs, &node.cond, &node.then_branch);
        let otherwise = node.else_branch.as_mut().map(|(token, other)| {
            self.in_tail(other, Tail::Unit);
            let other = as_block(other);
            // A span of the expansion's own keeps lints from reading `} if` as a forgotten `else`.
            let span = Span::mixed_site().located_at(token.span);
            quote_spanned! {span=> if #branch.otherwise() #other }
        });
        verbatim(quote_spanned! {span=>
            #(#attrs)* {
                let mut #branch = #control::Condition::branch(#cond);
                if #branch.then() #then
                #otherwise
                #branch.end();
            }
        })
    }

    pub(super) fn value_if(&mut self, node: &mut ExprIf) -> Expr {
        if binds(&node.cond) {
            self.pattern_if(node, Tail::Value);
            return Expr::If(node.clone());
        }
        self.expr(&mut node.cond);
        *node.cond = self.comptime_condition("ValueIf", &node.cond);
        self.block(&mut node.then_branch, Tail::Value);
        if let Some((_, other)) = &mut node.else_branch {
            match &mut **other {
                Expr::If(node) => **other = self.value_if(node),
                other => self.in_tail(other, Tail::Value),
            }
        }
        Expr::If(node.clone())
    }

    /// `if let` is comptime: run-time values match no patterns.
    fn pattern_if(&mut self, node: &mut ExprIf, tail: Tail) {
        self.scopes.enter();
        self.chain(&mut node.cond);
        self.block(&mut node.then_branch, tail);
        self.scopes.leave();
        if let Some((_, other)) = &mut node.else_branch {
            self.in_tail(other, tail);
        }
    }

    /// A chain of `let`s and conditions, whose `&&` must stay.
    fn chain(&mut self, cond: &mut Expr) {
        match cond {
            Expr::Let(node) => {
                self.expr(&mut node.expr);
                self.declare_pattern(&node.pat);
            }
            Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) => {
                self.chain(left);
                self.chain(right);
            }
            other => {
                self.expr(other);
                *other = self.comptime_condition("LetChain", other);
            }
        }
    }

    pub(super) fn while_loop(&mut self, node: &mut ExprWhile) {
        self.scopes.enter();
        if binds(&node.cond) {
            self.chain(&mut node.cond);
        } else {
            self.expr(&mut node.cond);
            *node.cond = self.comptime_condition("While", &node.cond);
        }
        self.block(&mut node.body, Tail::Unit);
        self.scopes.leave();
    }

    pub(super) fn matching(&mut self, node: &mut ExprMatch, tail: Tail) {
        let scrutinee = is_place(&node.expr).then(|| node.expr.clone());
        self.expr(&mut node.expr);
        for arm in &mut node.arms {
            self.scopes.enter();
            self.declare_pattern(&arm.pat);
            if let Some((_, guard)) = &mut arm.guard {
                self.expr(guard);
                **guard = self.comptime_condition("MatchGuard", guard);
            }
            self.in_tail(&mut arm.body, tail);
            self.scopes.leave();
        }
        if let Some(place) = scrutinee
            && node.arms.iter().any(|arm| tests_a_literal(&arm.pat))
        {
            let (span, control, value) = (place.span(), self.control(place.span()), &node.expr);
            let checked = quote_spanned!(span=> #control::Match::comptime(&#place));
            *node.expr = verbatim(quote_spanned!(span=> { if false { #checked; } #value }));
        }
    }

    pub(super) fn comptime_condition(&self, construct: &str, cond: &Expr) -> Expr {
        let span = cond.span();
        let control = self.control(span);
        let construct = syn::Ident::new(construct, span);
        verbatim(quote_spanned!(span=> #control::#construct::comptime(#cond)))
    }

    /// Names bound by a pattern of a comptime construct.
    pub(super) fn declare_pattern(&mut self, pat: &Pat) {
        for found in binding::bindings(pat) {
            self.scopes.declare(&found.name, false);
        }
    }
}

fn as_block(expr: &Expr) -> proc_macro2::TokenStream {
    match expr {
        Expr::Block(block) => quote!(#block),
        other => quote!({ #other }),
    }
}

fn is_place(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) => true,
        Expr::Field(node) => is_place(&node.base),
        Expr::Paren(node) => is_place(&node.expr),
        _ => false,
    }
}

fn tests_a_literal(pat: &Pat) -> bool {
    match pat {
        Pat::Lit(_) | Pat::Range(_) => true,
        Pat::Or(node) => node.cases.iter().any(tests_a_literal),
        Pat::Paren(node) => tests_a_literal(&node.pat),
        Pat::Ident(node) => node.subpat.as_ref().is_some_and(|(_, sub)| tests_a_literal(sub)),
        _ => false,
    }
}
