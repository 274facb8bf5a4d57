//! Expressions: children first, then the node itself.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, ExprAssign, ExprBinary, ExprForLoop, ExprRange, Item, Macro, RangeLimits, Stmt, Token};

use super::{Rewriter, Tail, branch, internal, operator, verbatim};

/// Standard macros whose arguments are expressions.
const KNOWN_MACROS: [&str; 8] =
    ["vec", "assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne", "dbg"];

impl Rewriter<'_> {
    pub(super) fn expr(&mut self, expr: &mut Expr) {
        match expr {
            Expr::If(node) => {
                *expr = if branch::ends_in_unit(node) { self.statement_if(node) } else { self.value_if(node) };
            }
            Expr::While(node) => self.while_loop(node),
            Expr::Match(node) => self.matching(node, Tail::Value),
            Expr::ForLoop(node) => self.for_loop(node),
            Expr::Block(node) => self.block(&mut node.block, Tail::Value),
            Expr::Unsafe(node) => self.block(&mut node.block, Tail::Value),
            Expr::Closure(node) => {
                self.scopes.enter();
                for input in &node.inputs {
                    self.declare_pattern(input);
                }
                self.in_tail(&mut node.body, Tail::Value);
                self.scopes.leave();
            }
            Expr::Assign(node) => *expr = self.assign(node),
            Expr::Binary(node) if operator::is_compound_assignment(&node.op) => *expr = self.compound_assign(node),
            Expr::Binary(node) => {
                let later_change = changes_variables(&node.right);
                self.operand(&mut node.left, later_change);
                self.expr(&mut node.right);
                if let Some(rewritten) = self.binary(node) {
                    *expr = rewritten;
                }
            }
            Expr::Cast(node) => {
                self.expr(&mut node.expr);
                self.cast(node);
            }
            Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => self.leave(expr),
            Expr::Try(node) => {
                self.expr(&mut node.expr);
                let span = node.question_token.span();
                let (control, inner) = (self.control(span), &node.expr);
                *node.expr = verbatim(quote_spanned!(span=> #control::Question::note(#inner)));
            }
            Expr::Tuple(node) => node.elems.iter_mut().for_each(|elem| self.kept(elem)),
            Expr::Array(node) => node.elems.iter_mut().for_each(|elem| self.kept(elem)),
            Expr::Repeat(node) => self.kept(&mut node.expr),
            Expr::Struct(node) => {
                for field in &mut node.fields {
                    let shorthand = field.colon_token.is_none();
                    self.kept(&mut field.expr);
                    if shorthand && !matches!(field.expr, Expr::Path(_)) {
                        field.colon_token = Some(Token![:](field.expr.span()));
                    }
                }
                if let Some(rest) = &mut node.rest {
                    self.expr(rest);
                }
            }
            Expr::Call(node) => {
                let keeps = is_constructor(&node.func) || node.args.iter().any(changes_variables);
                self.expr(&mut node.func);
                node.args.iter_mut().for_each(|arg| self.operand(arg, keeps));
            }
            Expr::MethodCall(node) => {
                let stores = node.method == "push" || node.method == "insert" || node.method == "replace";
                let later_change = node.args.iter().any(changes_variables);
                self.operand(&mut node.receiver, later_change);
                node.args.iter_mut().for_each(|arg| self.operand(arg, stores || later_change));
            }
            Expr::Macro(node) => self.known_macro(&mut node.mac),
            other => visit_mut::visit_expr_mut(&mut Children(self), other),
        }
    }

    /// A value that is stored inside another: a run-time variable is stored as what it is now.
    fn kept(&mut self, expr: &mut Expr) {
        if let Expr::Path(path) = expr
            && let Some(name) = path.path.get_ident()
            && self.scopes.is_mutable(name)
        {
            let span = name.span();
            let (control, kind) = (self.control(span), self.kind(&quote!(#name), span));
            let given = internal("__kind", span);
            *expr = verbatim(quote_spanned!(span=> (match #kind { #given => #control::Keep::keep(#name, #given) })));
        } else {
            self.expr(expr);
        }
    }

    /// A variable among operands that change variables is read in its turn.
    fn operand(&mut self, expr: &mut Expr, keep: bool) {
        if keep { self.kept(expr) } else { self.expr(expr) }
    }

    fn for_loop(&mut self, node: &mut ExprForLoop) {
        self.iterable(&mut node.expr);
        self.scopes.enter();
        let bound = self.bind_pattern(&mut node.pat);
        self.block(&mut node.body, Tail::Unit);
        self.scopes.leave();
        node.body.stmts.splice(0..0, bound);
    }

    /// What a `for` runs over: a range there, also behind `.step_by(n)` and the like, may have run-time ends.
    fn iterable(&mut self, expr: &mut Expr) {
        match expr {
            Expr::MethodCall(node) if holds_range(&node.receiver) => {
                self.iterable(&mut node.receiver);
                node.args.iter_mut().for_each(|arg| self.expr(arg));
            }
            Expr::Paren(node) if holds_range(&node.expr) => {
                self.iterable(&mut node.expr);
                if let Expr::Verbatim(_) = &*node.expr {
                    *expr = (*node.expr).clone();
                }
            }
            Expr::Range(ExprRange { start: Some(start), end: Some(end), limits, .. }) => {
                self.expr(start);
                self.expr(end);
                let span = start.span();
                let control = self.control(span);
                let method = match limits {
                    RangeLimits::HalfOpen(_) => quote_spanned!(span=> Range::range),
                    RangeLimits::Closed(_) => quote_spanned!(span=> RangeInclusive::range_inclusive),
                };
                let (first, last) = (internal("__first", span), internal("__last", span));
                let kind = internal("__kind", span);
                *expr = verbatim(quote_spanned! {span=>
                    (match (#start, #end) {
                        (#first, #last) => {
                            let #kind = (&&#control::Ends::of(&#first, &#last)).kind();
                            #control::#method(#kind, (#first, #last))
                        }
                    })
                });
            }
            other => {
                self.expr(other);
                let span = other.span();
                let control = self.control(span);
                *other = verbatim(quote_spanned!(span=> #control::Iterate::over(#other)));
            }
        }
    }

    /// `return`, `break` and `continue` note their place, for the run-time scopes that they may cross.
    fn leave(&mut self, expr: &mut Expr) {
        let (span, word) = match expr {
            Expr::Return(node) => {
                node.expr.iter_mut().for_each(|value| self.expr(value));
                (node.return_token.span(), "return")
            }
            Expr::Break(node) => {
                node.expr.iter_mut().for_each(|value| self.expr(value));
                (node.break_token.span(), "break")
            }
            Expr::Continue(node) => (node.continue_token.span(), "continue"),
            _ => return,
        };
        let control = self.control(span);
        *expr = verbatim(quote_spanned!(span=> { #control::leaving(#word); #expr }));
    }

    /// Rewrites the arguments of standard macros; what other macros do with their tokens is theirs.
    pub(super) fn known_macro(&mut self, mac: &mut Macro) {
        let known = mac.path.segments.last().is_some_and(|last| KNOWN_MACROS.iter().any(|name| last.ident == name));
        if !known {
            return;
        }
        if let Ok(mut args) = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(mac.tokens.clone()) {
            args.iter_mut().for_each(|arg| self.kept(arg));
            mac.tokens = quote!(#args);
        } else if let Ok((mut value, count)) = repeated.parse2(mac.tokens.clone()) {
            self.kept(&mut value);
            mac.tokens = quote!(#value; #count);
        }
    }
}

/// Whether a `for` runs over a range, perhaps behind `.step_by(n)` and the like.
fn holds_range(expr: &Expr) -> bool {
    match expr {
        Expr::Range(ExprRange { start, end, .. }) => start.is_some() && end.is_some(),
        Expr::MethodCall(node) => holds_range(&node.receiver),
        Expr::Paren(node) => holds_range(&node.expr),
        _ => false,
    }
}

/// `value; count`, as in `vec![value; count]`.
fn repeated(input: syn::parse::ParseStream) -> syn::Result<(Expr, TokenStream)> {
    let value = input.parse()?;
    input.parse::<Token![;]>()?;
    Ok((value, input.parse()?))
}

/// Whether evaluating an operand assigns to something.
fn changes_variables(expr: &Expr) -> bool {
    struct Find(bool);
    impl Visit<'_> for Find {
        fn visit_expr_assign(&mut self, _: &ExprAssign) {
            self.0 = true;
        }
        fn visit_expr_binary(&mut self, node: &ExprBinary) {
            self.0 |= operator::is_compound_assignment(&node.op);
            visit::visit_expr_binary(self, node);
        }
    }
    let mut find = Find(false);
    find.visit_expr(expr);
    find.0
}

/// `Some`, `Pair`, `Self::New`: by convention only constructors start with a capital.
fn is_constructor(func: &Expr) -> bool {
    match func {
        Expr::Path(path) => path
            .path
            .segments
            .last()
            .is_some_and(|last| last.ident.to_string().starts_with(|first: char| first.is_uppercase())),
        _ => false,
    }
}

/// Hands the children of a node that needs no rewriting itself back to the rewriter.
struct Children<'a, 'b>(&'a mut Rewriter<'b>);

impl VisitMut for Children<'_, '_> {
    fn visit_expr_mut(&mut self, node: &mut Expr) {
        self.0.expr(node);
    }

    fn visit_block_mut(&mut self, node: &mut Block) {
        self.0.block(node, Tail::Value);
    }

    fn visit_stmt_mut(&mut self, _: &mut Stmt) {}

    /// Array lengths and const arguments are constants of their own.
    fn visit_type_mut(&mut self, _: &mut syn::Type) {}

    fn visit_item_mut(&mut self, _: &mut Item) {}
}
