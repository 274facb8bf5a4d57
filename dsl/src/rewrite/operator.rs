//! Comparisons, `&&`, `||` and `as`.

use proc_macro2::Span;
use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::{BinOp, Expr, ExprBinary, ExprCast, Ident};

use super::{Rewriter, internal, verbatim};

pub fn is_compound_assignment(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

/// The method of `Order` or `Equality` that stands for a comparison.
fn comparison(op: &BinOp) -> Option<(&'static str, &'static str, Span)> {
    Some(match op {
        BinOp::Lt(op) => ("Order", "lt", op.span()),
        BinOp::Le(op) => ("Order", "le", op.span()),
        BinOp::Gt(op) => ("Order", "gt", op.span()),
        BinOp::Ge(op) => ("Order", "ge", op.span()),
        BinOp::Eq(op) => ("Equality", "eq", op.span()),
        BinOp::Ne(op) => ("Equality", "ne", op.span()),
        _ => return None,
    })
}

impl Rewriter<'_> {
    /// Operands are already rewritten.
    pub(super) fn binary(&mut self, node: &ExprBinary) -> Option<Expr> {
        let ExprBinary { left, op, right, .. } = node;
        if let Some((family, method, span)) = comparison(op) {
            let control = self.control(span);
            let (family, method) = (Ident::new(family, span), Ident::new(method, span));
            let (left, right) = (borrowed(left), borrowed(right));
            return Some(verbatim(quote_spanned!(span=> #control::#family::#method(#left, #right))));
        }
        let (family, method, span) = match op {
            BinOp::And(op) => ("And", "and", op.span()),
            BinOp::Or(op) => ("Or", "or", op.span()),
            _ => return None,
        };
        let control = self.control(span);
        let (family, method) = (Ident::new(family, span), Ident::new(method, span));
        Some(verbatim(quote_spanned!(span=> #control::#family::#method(#left, || #right))))
    }

    /// `x as T` stays itself for plain values and is refused for run-time ones.
    pub(super) fn cast(&mut self, node: &mut ExprCast) {
        if matches!(&*node.expr, Expr::Lit(_)) {
            return;
        }
        let span = node.expr.span();
        let control = self.control(span);
        let (value, given) = (internal("__value", span), &node.expr);
        let kind = self.kind(&quote_spanned!(span=> #value), span);
        *node.expr = verbatim(quote_spanned! {span=>
            (match #given { #value => #control::AsCast::plain(#value, #kind) })
        });
    }
}

/// `&operand`, at the operand's own place so that messages point at it.
fn borrowed(operand: &Expr) -> proc_macro2::TokenStream {
    match operand {
        Expr::Path(_)
        | Expr::Lit(_)
        | Expr::MethodCall(_)
        | Expr::Call(_)
        | Expr::Field(_)
        | Expr::Index(_)
        | Expr::Paren(_) => {
            quote_spanned!(operand.span()=> &#operand)
        }
        other => quote_spanned!(operand.span()=> &(#other)),
    }
}
