//! A kernel's parameters: plain values known at trace time, pointers with a declared access, scalars.

use proc_macro2::Span;
use syn::{Attribute, FnArg, Ident, Meta, Pat, PatType, Token, Type};

use crate::errors::Errors;

pub enum Param {
    /// Stays a parameter of the expanded function, as written.
    Comptime(PatType),
    Pointer {
        name: Ident,
        ty: Type,
        access: Access,
    },
    Scalar {
        name: Ident,
        ty: Type,
        /// A `mut` parameter is a variable that starts as what is passed.
        mutable: bool,
    },
}

pub struct Access {
    /// The access mode's type.
    pub mode: Ident,
    /// Variant of `Phase`.
    pub phase: Ident,
}

const ACCESSES: [(&str, &str); 4] =
    [("read", "Read"), ("write_all", "WriteAll"), ("write_part", "WritePart"), ("read_write", "ReadWrite")];

enum Role {
    Comptime,
    Pointer(Access),
}

impl Param {
    pub fn parse(arg: &FnArg, errors: &mut Errors) -> Option<Self> {
        let typed = match arg {
            FnArg::Typed(typed) => typed,
            FnArg::Receiver(receiver) => {
                errors.at(receiver, "a kernel is a free function: pass what it needs as `#[comptime]` parameters");
                return None;
            }
        };
        let mut roles = Vec::new();
        let mut others = Vec::new();
        for attr in &typed.attrs {
            match role(attr, errors) {
                Some(role) => roles.push((attr, role)),
                None => others.push(attr.clone()),
            }
        }
        if let [_, (second, _), ..] = roles.as_slice() {
            errors.at(second, "a parameter is declared once: keep one of `#[comptime]` and the accesses");
        }
        match roles.into_iter().next() {
            Some((_, Role::Comptime)) => Some(Param::Comptime(PatType { attrs: others, ..typed.clone() })),
            role => {
                refuse_attributes(&others, errors);
                let (name, mutability) = plain_name(&typed.pat, errors)?;
                let ty = (*typed.ty).clone();
                Some(match role {
                    Some((_, Role::Pointer(access))) => {
                        if let Some(token) = mutability {
                            errors.at(
                                token,
                                format!("`{name}` names memory: a kernel changes what is in it, not the name"),
                            );
                        }
                        Param::Pointer { name, ty, access }
                    }
                    _ => Param::Scalar { name, ty, mutable: mutability.is_some() },
                })
            }
        }
    }
}

impl Param {
    /// The parameter's name, unless it is a pattern.
    pub fn name(&self) -> Option<&Ident> {
        match self {
            Param::Pointer { name, .. } | Param::Scalar { name, .. } => Some(name),
            Param::Comptime(typed) => match &*typed.pat {
                Pat::Ident(ident) => Some(&ident.ident),
                _ => None,
            },
        }
    }
}

fn role(attr: &Attribute, errors: &mut Errors) -> Option<Role> {
    let word = attr.path().get_ident()?.to_string();
    if word == "comptime" {
        if !matches!(attr.meta, Meta::Path(_)) {
            errors.at(attr, "`#[comptime]` takes no arguments");
        }
        return Some(Role::Comptime);
    }
    let (_, mode) = ACCESSES.iter().find(|(name, _)| *name == word)?;
    let span = attr.path().get_ident().map_or_else(Span::call_site, Ident::span);
    Some(Role::Pointer(Access { mode: Ident::new(mode, span), phase: phase(attr, &word, errors) }))
}

fn phase(attr: &Attribute, access: &str, errors: &mut Errors) -> Ident {
    let after = Ident::new("AfterWait", Span::call_site());
    let list = match &attr.meta {
        Meta::Path(_) => return after,
        Meta::List(list) => list,
        Meta::NameValue(_) => {
            errors.at(attr, format!("write `#[{access}]` or `#[{access}(before_wait)]`"));
            return after;
        }
    };
    match syn::parse2::<Ident>(list.tokens.clone()) {
        Ok(word) if word == "before_wait" => Ident::new("BeforeWait", word.span()),
        Ok(word) if word == "after_wait" => Ident::new("AfterWait", word.span()),
        _ => {
            errors.at(
                &list.tokens,
                format!(
                    "`#[{access}(...)]` takes `before_wait` (the kernel touches the memory before `pdl::wait()`) or \
                     `after_wait` (the default)"
                ),
            );
            after
        }
    }
}

fn refuse_attributes(attrs: &[Attribute], errors: &mut Errors) {
    for attr in attrs.iter().filter(|attr| !attr.path().is_ident("doc")) {
        errors.at(
            attr,
            "unknown declaration; a kernel's parameters take `#[comptime]`, `#[read]`, `#[write_all]`, \
             `#[write_part]` or `#[read_write]`",
        );
    }
}

fn plain_name(pat: &Pat, errors: &mut Errors) -> Option<(Ident, Option<Token![mut]>)> {
    match pat {
        Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => {
            Some((ident.ident.clone(), ident.mutability))
        }
        other => {
            errors.at(other, "a kernel's argument needs a plain name, which becomes its name in CUDA");
            None
        }
    }
}
