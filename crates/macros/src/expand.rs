//! The code that the macros write.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{Attribute, Ident, ImplItem, ImplItemFn, ItemFn, ItemImpl, Meta, parse_quote};

use crate::function::{Place, ToolFunction};
use crate::settings::Settings;

/// Expands `#[tool]` on a function.
pub(crate) fn tool(settings: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let settings = read_settings(settings)?;
    let mut function: ItemFn = syn::parse2(item).map_err(|error| {
        syn::Error::new(
            error.span(),
            "`#[tool]` is for functions; put `#[tools]` on an `impl` block",
        )
    })?;
    let read = ToolFunction::read(&function.attrs, &mut function.sig, settings, Place::Free)?;
    let tool = read.tool(None);
    function.attrs.push(allowed_lints());
    let name = function.sig.ident.unraw();
    let maker = format_ident!("{name}_tool", span = function.sig.ident.span());
    let visibility = &function.vis;
    let conditions = function.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    let docs = format!("Returns the tool that calls [`{name}`].");
    Ok(quote! {
        #function

        #(#conditions)*
        #[doc = #docs]
        #[must_use]
        #visibility fn #maker() -> ::turnstream::Tool {
            #tool
        }
    })
}

/// Expands `#[tools]` on an `impl` block.
pub(crate) fn tools(settings: &TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    if !settings.is_empty() {
        let message = "`#[tools]` has no settings; `#[tool(…)]` on a method sets those of a tool";
        return Err(syn::Error::new(settings.span(), message));
    }
    let mut block: ItemImpl = syn::parse2(item).map_err(|error| {
        syn::Error::new(
            error.span(),
            "`#[tools]` is for `impl` blocks; put `#[tool]` on a function",
        )
    })?;
    if let Some((_, of_trait, _)) = &block.trait_ {
        let message = "`#[tools]` is for the methods of a type, not for those of a trait";
        return Err(syn::Error::new(of_trait.span(), message));
    }
    if !block.generics.params.is_empty() {
        let message = "the tools of a generic type need `Tool::new`, since `#[tools]` cannot name \
                       the type of the state";
        return Err(syn::Error::new(block.generics.span(), message));
    }
    let state = Ident::new("state", Span::mixed_site());
    let tools = Ident::new("tools", Span::mixed_site());
    let mut pushes = Vec::new();
    let mut names = Vec::new();
    for item in &mut block.items {
        let ImplItem::Fn(method) = item else { continue };
        let Some(settings) = take_settings(method)? else { continue };
        let read = ToolFunction::read(&method.attrs, &mut method.sig, settings, Place::Impl)?;
        let conditions = method.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
        let tool = read.tool(Some(&state));
        pushes.push(quote!(#(#conditions)* #tools.push(#tool);));
        method.attrs.push(allowed_lints());
        names.push(format!("[`{0}`](Self::{0})", method.sig.ident.unraw()));
    }
    if pushes.is_empty() {
        let message =
            "none of these methods is a tool; put `#[tool]` on those that a model may call";
        return Err(syn::Error::new(block.self_ty.span(), message));
    }
    let docs = format!("Returns the tools that call {}.", names.join(", "));
    let maker: ImplItemFn = parse_quote! {
        #[doc = #docs]
        #[must_use]
        pub fn tools(self: ::std::sync::Arc<Self>) -> ::std::vec::Vec<::turnstream::Tool> {
            let #state = self;
            let mut #tools = ::std::vec::Vec::new();
            #(#pushes)*
            #tools
        }
    };
    block.items.push(ImplItem::Fn(maker));
    Ok(quote!(#block))
}

/// The lints that ask for other parameters than a tool can have, or for a function that is not
/// `async`.
fn allowed_lints() -> Attribute {
    parse_quote!(#[allow(clippy::needless_pass_by_value, clippy::unused_async)])
}

fn read_settings(tokens: TokenStream) -> syn::Result<Settings> {
    let mut settings = Settings::default();
    syn::meta::parser(|meta| settings.read(&meta)).parse2(tokens)?;
    Ok(settings)
}

/// Removes `#[tool]` from a method. Returns its settings, or `None` if the method is not a tool.
fn take_settings(method: &mut ImplItemFn) -> syn::Result<Option<Settings>> {
    let is_tool = |attribute: &Attribute| {
        attribute.path().segments.last().is_some_and(|segment| segment.ident == "tool")
    };
    let Some(at) = method.attrs.iter().position(is_tool) else { return Ok(None) };
    let attribute = method.attrs.remove(at);
    let settings = match &attribute.meta {
        Meta::Path(_) => Settings::default(),
        Meta::List(list) => read_settings(list.tokens.clone())?,
        Meta::NameValue(value) => {
            let message = "settings are in parentheses: `#[tool(name = \"…\")]`";
            return Err(syn::Error::new(value.span(), message));
        }
    };
    Ok(Some(settings))
}
