//! The arguments of `#[kernel(...)]` and `#[device(...)]`.

use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Expr, Ident, Lit, Path, Token, parse_quote};

use crate::errors::Errors;

pub struct KernelArgs {
    pub warps: Option<Expr>,
    pub ctas_per_sm: Option<Expr>,
    pub krate: Path,
}

pub struct DeviceArgs {
    pub krate: Path,
}

impl KernelArgs {
    pub fn parse(args: TokenStream, errors: &mut Errors) -> Self {
        let mut parsed = KernelArgs { warps: None, ctas_per_sm: None, krate: default_crate() };
        for arg in arguments(args.clone(), errors) {
            match (arg.key.to_string().as_str(), arg.value) {
                ("warps", Value::Expr(value)) => {
                    expect_in(&value, 1..=32, "warps a CTA", errors);
                    parsed.warps = Some(value);
                }
                ("ctas_per_sm", Value::Expr(value)) => {
                    expect_in(&value, 1..=32, "CTAs an SM", errors);
                    parsed.ctas_per_sm = Some(value);
                }
                ("crate", Value::Path(path)) => parsed.krate = path,
                (other, _) => errors.at(
                    &arg.key,
                    format!("unknown argument `{other}`; `#[kernel]` takes `warps`, `ctas_per_sm` and `crate`"),
                ),
            }
        }
        parsed
    }
}

impl DeviceArgs {
    pub fn parse(args: TokenStream, errors: &mut Errors) -> Self {
        let mut parsed = DeviceArgs { krate: default_crate() };
        for arg in arguments(args, errors) {
            match arg.value {
                Value::Path(path) => parsed.krate = path,
                Value::Expr(_) => {
                    errors.at(&arg.key, format!("unknown argument `{}`; `#[device]` takes only `crate`", arg.key))
                }
            }
        }
        parsed
    }
}

fn default_crate() -> Path {
    parse_quote!(::lathe)
}

struct Argument {
    key: Ident,
    value: Value,
}

enum Value {
    Expr(Expr),
    Path(Path),
}

impl Parse for Argument {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let key = Ident::parse_any(input)?;
        input.parse::<Token![=]>()?;
        let value = if key == "crate" { Value::Path(input.parse()?) } else { Value::Expr(input.parse()?) };
        Ok(Argument { key, value })
    }
}

fn arguments(args: TokenStream, errors: &mut Errors) -> Vec<Argument> {
    let parser = Punctuated::<Argument, Token![,]>::parse_terminated;
    let parsed = syn::parse::Parser::parse2(parser, args).unwrap_or_else(|error| {
        errors.push(error);
        Punctuated::new()
    });
    let mut seen: Vec<Argument> = Vec::new();
    for argument in parsed {
        if seen.iter().any(|earlier| earlier.key == argument.key) {
            errors.at(&argument.key, format!("`{}` is given twice", argument.key));
        } else {
            seen.push(argument);
        }
    }
    seen
}

/// Literals are judged here, at their token; other expressions when the kernel is traced.
fn expect_in(value: &Expr, range: std::ops::RangeInclusive<u32>, what: &str, errors: &mut Errors) {
    let Expr::Lit(literal) = value else { return };
    let accepted = match &literal.lit {
        Lit::Int(int) => int.base10_parse::<u32>().is_ok_and(|n| range.contains(&n)),
        _ => false,
    };
    if !accepted {
        errors.at(value, format!("expected {} to {} {what}", range.start(), range.end()));
    }
}
