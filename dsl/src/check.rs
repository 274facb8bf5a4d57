//! Refuses, by name and with the alternative, what syntax alone shows to be no kernel.
//!
//! What depends on types (a `while` or `match` on a run-time value, `as`) compiles to a trait bound whose message says
//! the same, see `rewrite`.

use syn::visit::{self, Visit};
use syn::{
    Expr, ExprAssign, ExprAsync, ExprAwait, ExprClosure, ExprLet, ExprLoop, ExprTry, ExprTryBlock, ExprYield, Item,
    Local, Pat, PatIdent, ReturnType, Signature, Type,
};

use crate::errors::Errors;

pub fn kernel_signature(sig: &Signature, errors: &mut Errors) {
    signature(sig, "kernel", errors);
    if let ReturnType::Type(_, ty) = &sig.output
        && !matches!(&**ty, Type::Tuple(tuple) if tuple.elems.is_empty())
    {
        errors.at(ty, "a kernel returns nothing: it stores its results through `#[write_all]` or `#[write_part]`");
    }
}

pub fn device_signature(sig: &Signature, errors: &mut Errors) {
    signature(sig, "device function", errors);
}

fn signature(sig: &Signature, what: &str, errors: &mut Errors) {
    if let Some(token) = &sig.asyncness {
        errors.at(token, format!("a {what} cannot be `async`: it runs once, at once, to be traced"));
    }
    if let Some(token) = &sig.constness {
        errors.at(token, format!("a {what} cannot be `const`: tracing it needs an ordinary call"));
    }
    if let Some(token) = &sig.unsafety {
        errors.at(token, format!("a {what} cannot be `unsafe`: tracing touches no device memory"));
    }
    if let Some(abi) = &sig.abi {
        errors.at(abi, format!("a {what} has no ABI of its own: remove `extern`"));
    }
    if let Some(variadic) = &sig.variadic {
        errors.at(variadic, format!("a {what} cannot be variadic"));
    }
}

pub fn body(block: &syn::Block, errors: &mut Errors) {
    Refusals { errors, closures: 0 }.visit_block(block);
}

struct Refusals<'a> {
    errors: &'a mut Errors,
    closures: usize,
}

impl Visit<'_> for Refusals<'_> {
    fn visit_expr_loop(&mut self, node: &ExprLoop) {
        self.errors.at(
            node.loop_token,
            "`loop` cannot be traced: nothing says how often it runs. A run-time loop is `for i in first..end`, with \
             `.step_by(n)` if need be; a comptime one is a `for` over plain values",
        );
        visit::visit_expr_loop(self, node);
    }

    fn visit_expr_try(&mut self, node: &ExprTry) {
        if self.closures == 0 {
            self.errors.at(
                node.question_token,
                "`?` would leave the kernel while it is being traced: do what can fail before calling the kernel and \
                 pass the result as a `#[comptime]` parameter",
            );
        }
        visit::visit_expr_try(self, node);
    }

    fn visit_expr_async(&mut self, node: &ExprAsync) {
        self.errors.at(
            node.async_token,
            "`async` means nothing in a kernel: an asynchronous copy is an operation, `copy_async`, with its own \
             `commit()` and `wait_all_but(n)`",
        );
    }

    fn visit_expr_await(&mut self, node: &ExprAwait) {
        self.errors.at(node.await_token, "`.await` means nothing in a kernel: wait for copies with `wait_all_but(n)`");
        visit::visit_expr_await(self, node);
    }

    fn visit_expr_yield(&mut self, node: &ExprYield) {
        self.errors.at(node.yield_token, "`yield` cannot be traced");
    }

    fn visit_expr_try_block(&mut self, node: &ExprTryBlock) {
        self.errors.at(node.try_token, "`try` blocks cannot be traced: do what can fail before calling the kernel");
    }

    fn visit_local(&mut self, node: &Local) {
        if node.init.is_none() {
            self.errors.at(
                node,
                "give the variable its value here: both sides of a run-time `if` are traced, so a later first \
                 assignment cannot be told from a change. For one of two values write `condition.select(a, b)`, or \
                 `let mut x = b; if condition { x = a; }`",
            );
        }
        if let Some(init) = &node.init {
            self.visit_expr(&init.expr);
            if let Some((_, diverge)) = &init.diverge {
                self.visit_expr(diverge);
            }
        }
    }

    fn visit_expr_assign(&mut self, node: &ExprAssign) {
        check_destructuring(&node.left, self.errors);
        visit::visit_expr_assign(self, node);
    }

    fn visit_arm(&mut self, node: &syn::Arm) {
        refuse_mutable_bindings(&node.pat, self.errors);
        visit::visit_arm(self, node);
    }

    fn visit_expr_let(&mut self, node: &ExprLet) {
        refuse_mutable_bindings(&node.pat, self.errors);
        visit::visit_expr_let(self, node);
    }

    fn visit_expr_closure(&mut self, node: &ExprClosure) {
        if let Some(token) = &node.asyncness {
            self.errors.at(token, "`async` means nothing in a kernel");
        }
        for input in &node.inputs {
            refuse_mutable_bindings(input, self.errors);
        }
        self.closures += 1;
        visit::visit_expr_closure(self, node);
        self.closures -= 1;
    }

    /// Nested items are functions, types and constants of their own, outside the kernel's language.
    fn visit_item(&mut self, _: &Item) {}
}

fn refuse_mutable_bindings(pat: &Pat, errors: &mut Errors) {
    struct Bindings<'a>(&'a mut Errors);
    impl Visit<'_> for Bindings<'_> {
        fn visit_pat_ident(&mut self, node: &PatIdent) {
            if let (Some(token), None) = (&node.mutability, &node.by_ref) {
                let name = &node.ident;
                self.0.at(
                    token,
                    format!("`mut` is for `let` in a kernel: bind `{name}` here, then `let mut {name} = {name};`"),
                );
            }
            visit::visit_pat_ident(self, node);
        }
    }
    Bindings(errors).visit_pat(pat);
}

fn check_destructuring(left: &Expr, errors: &mut Errors) {
    match left {
        Expr::Tuple(tuple) => tuple.elems.iter().for_each(|elem| check_destructuring(elem, errors)),
        Expr::Array(_) | Expr::Struct(_) | Expr::Call(_) => errors.at(
            left,
            "only tuples can be taken apart by an assignment in a kernel: `(a, b) = (x, y)`, or one assignment each",
        ),
        Expr::Range(_) => errors.at(left, "`..` in an assignment is not supported in a kernel: one assignment each"),
        Expr::Paren(inner) => check_destructuring(&inner.expr, errors),
        _ => {}
    }
}
