//! Puts the pieces together: the function a caller sees, and every mistake beside it.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, Ident, Item, ItemFn, Lit, Meta, Path, Signature, parse_quote};

use crate::attr::{DeviceArgs, KernelArgs};
use crate::check;
use crate::errors::Errors;
use crate::param::{Access, Param};
use crate::rewrite::{Rewriter, respanned};

pub fn kernel(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let function = match function(item.clone(), &mut errors) {
        Ok(function) => function,
        Err(error) => return beside(item, "kernel", error),
    };
    let args = KernelArgs::parse(args, &mut errors);
    check::kernel_signature(&function.sig, &mut errors);
    check::body(&function.block, &mut errors);
    let params: Vec<Param> = function.sig.inputs.iter().filter_map(|arg| Param::parse(arg, &mut errors)).collect();
    refuse_repeated_names(&params, &mut errors);
    if args.warps.is_none() {
        errors.at(&function.sig.ident, "say how many warps a CTA has: `#[kernel(warps = 4)]`");
    }
    let mut expanded = traced_function(&args, &function, &params);
    expanded.extend(errors.into_compile_errors());
    expanded
}

pub fn device(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let mut function = match function(item.clone(), &mut errors) {
        Ok(function) => function,
        Err(error) => return beside(item, "device", error),
    };
    let args = DeviceArgs::parse(args, &mut errors);
    check::device_signature(&function.sig, &mut errors);
    check::body(&function.block, &mut errors);
    Rewriter::new(&args.krate).device(&mut function);
    let mut expanded = function.into_token_stream();
    expanded.extend(errors.into_compile_errors());
    expanded
}

fn refuse_repeated_names(params: &[Param], errors: &mut Errors) {
    let mut seen: Vec<&Ident> = Vec::new();
    for name in params.iter().filter_map(Param::name) {
        if seen.contains(&name) {
            errors.at(name, format!("two parameters are named `{name}`"));
        }
        seen.push(name);
    }
}

/// The function under an attribute. One whose body is no Rust keeps its signature, so that the mistake is the only one.
fn function(item: TokenStream, errors: &mut Errors) -> syn::Result<ItemFn> {
    let error = match syn::parse2(item.clone()) {
        Ok(function) => return Ok(function),
        Err(error) => error,
    };
    let head = |input: syn::parse::ParseStream| {
        let mut attrs = input.call(Attribute::parse_outer)?;
        attrs.push(parse_quote!(#[allow(unused)]));
        let (vis, sig) = (input.parse()?, input.parse()?);
        let body: syn::Result<proc_macro2::Group> = input.parse();
        body?;
        Ok(ItemFn { attrs, vis, sig, block: parse_quote!({ ::core::unimplemented!() }) })
    };
    let Ok(function) = head.parse2(item) else { return Err(error) };
    errors.push(error);
    Ok(function)
}

/// Editors go on understanding the function while it has an error.
fn beside(item: TokenStream, attribute: &str, error: syn::Error) -> TokenStream {
    let error = match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Fn(_)) | Err(_) => error,
        Ok(other) => syn::Error::new_spanned(other, format!("`#[{attribute}]` stands before a function")),
    };
    let error = error.to_compile_error();
    quote!(#item #error)
}

fn traced_function(args: &KernelArgs, function: &ItemFn, params: &[Param]) -> TokenStream {
    let krate = &args.krate;
    let ItemFn { attrs, vis, sig, block } = function;
    let Signature { ident, generics, .. } = sig;
    let (impl_generics, where_clause) = (&generics, &generics.where_clause);
    let comptime = params.iter().filter_map(|param| match param {
        Param::Comptime(typed) => Some(typed),
        _ => None,
    });
    let declarations = params.iter().filter_map(|param| declaration(param, krate));
    let name = ident.to_string();
    let doc = documentation(attrs);
    let warps = count(args.warps.as_ref());
    let ctas_per_sm = count(args.ctas_per_sm.as_ref());
    let mut block = block.clone();
    let prologue = Rewriter::new(krate).kernel(params, &mut block);
    let scope = scope_imports(krate);
    let here = respanned(krate.to_token_stream(), ident.span());
    let spec = quote_spanned! {ident.span()=>
        #here::trace::KernelSpec {
            name: #name,
            doc: #doc,
            warps: #warps,
            ctas_per_sm: #ctas_per_sm,
            loc: #here::loc::Loc::caller(),
        }
    };
    let stmts = &block.stmts;
    quote! {
        #(#attrs)*
        #vis fn #ident #impl_generics (#(#comptime),*) -> ::core::result::Result<#krate::ir::Kernel, #krate::trace::TraceErrors> #where_clause {
            #krate::trace::trace(#spec, move || {
                #scope
                #(#declarations)*
                #prologue
                #(#stmts)*
            })
        }
    }
}

/// The traits whose methods tell run-time values from plain ones.
pub fn scope_imports(krate: &Path) -> TokenStream {
    quote! {
        #[allow(unused_imports)]
        use #krate::trace::control::{ComptimeEnds as _, ComptimeKind as _, FirstEnd as _, RunTimeKind as _, SecondEnd as _};
    }
}

fn declaration(param: &Param, krate: &Path) -> Option<TokenStream> {
    let control = |span| {
        let krate = respanned(krate.to_token_stream(), span);
        quote_spanned!(span=> #krate::trace::control)
    };
    match param {
        Param::Comptime(_) => None,
        Param::Pointer { name, ty, access } => {
            let text = name.to_string();
            let control = control(ty.span());
            let Access { mode, phase } = access;
            Some(quote_spanned! {ty.span()=>
                let #name = #control::pointer::<#ty, #control::#mode, _>(#text, #control::Phase::#phase);
            })
        }
        Param::Scalar { name, ty, .. } => {
            let control = control(ty.span());
            let text = name.to_string();
            Some(quote_spanned! {ty.span()=> let #name = #control::scalar::<#ty>(#text); })
        }
    }
}

fn count(value: Option<&Expr>) -> TokenStream {
    match value {
        None => quote!(1),
        Some(literal @ Expr::Lit(_)) => quote!(#literal),
        Some(other) => quote_spanned! {other.span()=> {
            #[allow(clippy::unnecessary_cast)] // the author's type is not known here
            let value = (#other) as u32;
            value
        }},
    }
}

/// The author's doc comment, lines joined, one leading space of each removed.
fn documentation(attrs: &[Attribute]) -> String {
    let lines: Vec<String> = attrs
        .iter()
        .filter_map(|attr| match &attr.meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                Expr::Lit(literal) => match &literal.lit {
                    Lit::Str(text) => Some(text.value()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        })
        .map(|line| line.strip_prefix(' ').map(str::to_owned).unwrap_or(line))
        .collect();
    lines.join("\n")
}
