//! `#[derive(Traced)]`: a struct of run-time values is one.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Fields, Index, Path, parse_quote};

use crate::rewrite::respanned;

pub fn derive(input: TokenStream) -> TokenStream {
    match syn::parse2::<DeriveInput>(input).and_then(implementation) {
        Ok(implementation) => implementation,
        Err(error) => error.to_compile_error(),
    }
}

fn implementation(mut input: DeriveInput) -> syn::Result<TokenStream> {
    let krate: Path = crate_path(&input)?;
    let fields = match &input.data {
        Data::Struct(data) => data.fields.clone(),
        Data::Enum(data) => {
            return Err(syn::Error::new_spanned(
                data.enum_token,
                "which variant an enum has is known only to Rust, so it cannot be a run-time value: derive `Traced` for \
                 structs of handles",
            ));
        }
        Data::Union(data) => {
            return Err(syn::Error::new_spanned(data.union_token, "a union cannot be made of run-time values"));
        }
    };
    // Without type parameters a bound says nothing that the calls below do not, and would be reported at the derive.
    if input.generics.type_params().next().is_some() {
        let bounds = input.generics.make_where_clause();
        for field in &fields {
            let ty = &field.ty;
            bounds.predicates.push(parse_quote!(#ty: #krate::trace::control::Traced));
        }
    }
    let visits = members(&fields).map(|(member, span)| {
        let suffix = format!("{{}}_{member}");
        let krate = respanned(krate.to_token_stream(), span);
        quote_spanned! {span=>
            #krate::trace::control::Traced::visit(&mut self.#member, &::std::format!(#suffix, name), f);
        }
    });
    let name = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::trace::control::Traced for #name #type_generics #where_clause {
            fn visit(
                &mut self,
                name: &str,
                f: &mut dyn ::core::ops::FnMut(&str, &mut #krate::ir::ValueId),
            ) {
                #(#visits)*
            }
        }
    })
}

/// `#[traced(crate = path)]`, or the facade.
fn crate_path(input: &DeriveInput) -> syn::Result<Path> {
    let mut krate = parse_quote!(::lathe);
    for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("traced")) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("`#[traced(...)]` takes only `crate = path`"));
            }
            krate = meta.value()?.parse()?;
            Ok(())
        })?;
    }
    Ok(krate)
}

fn members(fields: &Fields) -> impl Iterator<Item = (TokenStream, proc_macro2::Span)> {
    fields.iter().enumerate().map(|(at, field)| {
        let index = Index::from(at);
        let member = field.ident.as_ref().map_or_else(|| quote!(#index), |name| quote!(#name));
        (member, field.ty.span())
    })
}
