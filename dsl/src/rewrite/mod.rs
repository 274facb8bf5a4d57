//! Rewrites a body in place: what the author wrote keeps its tokens, in the same order, around calls of
//! `lathe_codegen::trace::control`, where types decide between tracing and plain Rust.

mod assign;
mod binding;
mod branch;
mod expr;
mod operator;
mod scopes;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Block, Expr, FnArg, Ident, ItemFn, Pat, Path, Stmt};

use crate::expand::scope_imports;
use crate::param::Param;
use scopes::Scopes;

pub struct Rewriter<'a> {
    krate: &'a Path,
    scopes: Scopes,
}

/// What becomes of the value of a block.
#[derive(Clone, Copy, PartialEq)]
enum Tail {
    /// It is `()`, so an `if` there is a statement.
    Unit,
    /// It may be used: an `if` there is a statement only if its branches show that they end in `()`.
    Value,
}

impl<'a> Rewriter<'a> {
    pub fn new(krate: &'a Path) -> Self {
        Rewriter { krate, scopes: Scopes::default() }
    }

    /// Rewrites a kernel's body; returns the statements to put before it.
    pub fn kernel(&mut self, params: &[Param], block: &mut Block) -> TokenStream {
        self.scopes.enter();
        let mut prologue = TokenStream::new();
        for param in params {
            match param {
                Param::Comptime(typed) => prologue.extend(self.comptime_parameter(&typed.pat)),
                Param::Scalar { name, mutable: true, .. } => {
                    let name = binding::Binding { name: name.clone(), mutable: true };
                    self.bind_to_itself(name).iter().for_each(|stmt| stmt.to_tokens(&mut prologue));
                }
                Param::Pointer { name, .. } | Param::Scalar { name, .. } => self.scopes.declare(name, false),
            }
        }
        self.block(block, Tail::Unit);
        self.scopes.leave();
        prologue
    }

    /// Rewrites a device function.
    pub fn device(&mut self, function: &mut ItemFn) {
        self.scopes.enter();
        let mut prologue: Vec<Stmt> = Vec::new();
        let imports = scope_imports(self.krate);
        prologue.extend(syn::parse2::<Block>(quote!({ #imports })).map(|block| block.stmts).unwrap_or_default());
        for input in &mut function.sig.inputs {
            if let FnArg::Typed(typed) = input {
                prologue.extend(self.bind_pattern(&mut typed.pat));
            }
        }
        let tail = match function.sig.output {
            syn::ReturnType::Default => Tail::Unit,
            syn::ReturnType::Type(..) => Tail::Value,
        };
        self.block(&mut function.block, tail);
        self.scopes.leave();
        function.block.stmts.splice(0..0, prologue);
    }

    /// A comptime parameter keeps its pattern; a `mut` one is watched like a `let mut`.
    fn comptime_parameter(&mut self, pat: &Pat) -> TokenStream {
        let mut tokens = TokenStream::new();
        for found in binding::bindings(pat) {
            self.scopes.declare(&found.name, found.mutable);
            if found.mutable {
                self.scope_marker(&found.name).to_tokens(&mut tokens);
            }
        }
        tokens
    }

    /// The path of what the rewriting calls. All its tokens stand at `span`, which becomes the call's source location.
    fn control(&self, span: Span) -> TokenStream {
        let krate = respanned(self.krate.to_token_stream(), span);
        quote_spanned!(span=> #krate::trace::control)
    }

    fn block(&mut self, block: &mut Block, tail: Tail) {
        self.scopes.enter();
        self.statements(block, tail);
        self.scopes.leave();
    }

    /// The statements of a block whose scope is already open.
    fn statements(&mut self, block: &mut Block, tail: Tail) {
        let last = block.stmts.len().wrapping_sub(1);
        let mut stmts = Vec::with_capacity(block.stmts.len());
        for (at, stmt) in std::mem::take(&mut block.stmts).into_iter().enumerate() {
            match stmt {
                Stmt::Local(local) => stmts.extend(self.local(local)),
                Stmt::Item(item) => stmts.push(Stmt::Item(item)),
                Stmt::Macro(mut stmt) => {
                    self.known_macro(&mut stmt.mac);
                    stmts.push(Stmt::Macro(stmt));
                }
                Stmt::Expr(mut expr, semi) => {
                    let tail = if semi.is_some() || at != last { Tail::Unit } else { tail };
                    self.in_tail(&mut expr, tail);
                    stmts.push(Stmt::Expr(expr, semi));
                }
            }
        }
        block.stmts = stmts;
    }

    /// An expression whose value is the value of the enclosing block.
    fn in_tail(&mut self, expr: &mut Expr, tail: Tail) {
        match expr {
            Expr::If(node) => {
                let statement = tail == Tail::Unit || branch::ends_in_unit(node);
                *expr = if statement { self.statement_if(node) } else { self.value_if(node) };
            }
            Expr::Match(node) => self.matching(node, tail),
            Expr::Block(node) => self.block(&mut node.block, tail),
            Expr::Unsafe(node) => self.block(&mut node.block, tail),
            Expr::Paren(node) => self.in_tail(&mut node.expr, tail),
            other => self.expr(other),
        }
    }
}

/// The same tokens, standing at `span`.
pub fn respanned(tokens: TokenStream, span: Span) -> TokenStream {
    tokens
        .into_iter()
        .map(|mut token| {
            token.set_span(span);
            token
        })
        .collect()
}

/// A name that authors leave alone. It has their hygiene, because messages about a value of the expansion's own hygiene
/// are shown at the attribute, not at `span`.
fn internal(name: &str, span: Span) -> Ident {
    Ident::new(name, span)
}

/// Something that prints as these tokens, for places where syn wants an expression.
fn verbatim(tokens: TokenStream) -> Expr {
    Expr::Verbatim(tokens)
}

/// The companion of a `let mut` that remembers the run-time scope it was declared in.
fn marker(name: &Ident) -> Ident {
    // Hygiene of the author's name: a macro's `x` and the author's are two variables, with two companions.
    Ident::new(&format!("__scope_of_{}", name.to_string().trim_start_matches("r#")), name.span())
}
