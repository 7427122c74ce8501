//! The code that the macros write.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{
    Attribute, Ident, ImplItem, ImplItemFn, Item, ItemFn, ItemImpl, Meta, TraitItemFn, parse_quote,
};

use crate::function::{Errors, FunctionKind, ToolFunction, check_state, remove_attributes};
use crate::settings::Settings;

/// The items that take the place of the item that a macro is on. If the item cannot be a tool, it
/// stays, beside the error.
pub(crate) struct Expansion {
    items: TokenStream,
    pub(crate) error: Option<syn::Error>,
}

impl Expansion {
    pub(crate) fn into_tokens(self) -> TokenStream {
        let Self { items, error } = self;
        let error = error.map(syn::Error::into_compile_error);
        quote!(#items #error)
    }
}

/// Expands `#[tool]` on a function.
pub(crate) fn tool(settings: TokenStream, item: TokenStream) -> Expansion {
    let mut function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let error = Some(not_a_function(&item, error));
            return Expansion { items: item, error };
        }
    };
    let tool = read_settings(settings)
        .and_then(|it| ToolFunction::read(&function.attrs, &function.sig, it, FunctionKind::Free));
    remove_attributes(&mut function.sig);
    let (value, error) = match tool {
        Ok(tool) => (tool.tool(&state()), None),
        Err(error) => (quote!(::core::unreachable!()), Some(error)),
    };
    let name = function.sig.ident.unraw();
    let maker = format_ident!("{name}_tool", span = function.sig.ident.span());
    let visibility = &function.vis;
    let attributes = function.attrs.iter().filter(|attribute| is_of_maker(attribute));
    let docs = format!("Returns the tool that calls `{name}`.");
    let maker = quote! {
        #(#attributes)*
        #[doc = #docs]
        #[must_use]
        #[allow(deprecated)]
        #visibility fn #maker() -> ::turnstream::Tool {
            #value
        }
    };
    function.attrs.push(allowed_lints());
    Expansion { items: quote!(#function #maker), error }
}

/// Expands `#[tools]` on an `impl` block.
pub(crate) fn tools(settings: &TokenStream, item: TokenStream) -> Expansion {
    let mut block: ItemImpl = match syn::parse2(item.clone()) {
        Ok(block) => block,
        Err(error) => {
            let message = "`#[tools]` is for `impl` blocks; put `#[tool]` on a function";
            let error = match syn::parse2::<Item>(item.clone()) {
                Ok(_) => syn::Error::new(error.span(), message),
                Err(error) => error,
            };
            return Expansion { items: item, error: Some(error) };
        }
    };
    let mut errors = Errors::default();
    if !settings.is_empty() {
        let message = "`#[tools]` has no settings; `#[tool(…)]` on a method sets those of a tool";
        errors.push(syn::Error::new_spanned(settings, message));
    }
    errors.add(check_block(&block));
    let (state, tools) = (state(), Ident::new("tools", Span::mixed_site()));
    let (mut pushes, mut names) = (Vec::new(), Vec::new());
    for item in &mut block.items {
        let ImplItem::Fn(method) = item else { continue };
        let Some(settings) = errors.add(take_settings(method)) else { continue };
        let Some(settings) = settings else { continue };
        let tool = ToolFunction::read(&method.attrs, &method.sig, settings, FunctionKind::Method);
        remove_attributes(&mut method.sig);
        let Some(tool) = errors.add(tool) else { continue };
        let tool = tool.tool(&state);
        let conditions = method.attrs.iter().filter(|it| it.path().is_ident("cfg"));
        pushes.push(quote!(#(#conditions)* #tools.push(#tool);));
        names.push(format!("`{}`", method.sig.ident.unraw()));
        method.attrs.push(allowed_lints());
    }
    if pushes.is_empty() && errors.is_empty() {
        let message =
            "none of these methods is a tool; put `#[tool]` on those that a model may call";
        errors.push(syn::Error::new_spanned(&block.self_ty, message));
    }
    let (value, error) = match errors.finish() {
        Ok(()) => {
            let value = quote! {
                let mut #tools = ::std::vec::Vec::new();
                #(#pushes)*
                #tools
            };
            (value, None)
        }
        Err(error) => (quote!(::core::unreachable!()), Some(error)),
    };
    let docs = format!("Returns the tools that call these methods: {}.", names.join(", "));
    let maker: ImplItemFn = parse_quote! {
        #[doc = #docs]
        #[must_use]
        #[allow(deprecated, unused_mut)]
        pub fn tools(self: ::std::sync::Arc<Self>) -> ::std::vec::Vec<::turnstream::Tool> {
            let #state = self;
            #value
        }
    };
    if block.trait_.is_none() {
        block.items.push(ImplItem::Fn(maker));
    }
    let check = error.is_none().then(|| {
        let of_type = &block.self_ty;
        quote_spanned! { of_type.span() =>
            const _: fn() = || {
                fn is_shared_by_calls<T: ::core::marker::Send + ::core::marker::Sync + 'static>() {}
                is_shared_by_calls::<#of_type>();
            };
        }
    });
    Expansion { items: quote!(#block #check), error }
}

fn state() -> Ident {
    Ident::new("state", Span::mixed_site())
}

/// Returns the reason why an item is not a function with a body.
fn not_a_function(item: &TokenStream, error: syn::Error) -> syn::Error {
    if let Ok(function) = syn::parse2::<TraitItemFn>(item.clone())
        && function.default.is_none()
    {
        return syn::Error::new_spanned(&function.sig.ident, "the function of a tool has a body");
    }
    match syn::parse2::<Item>(item.clone()) {
        Ok(_) => {
            let message = "`#[tool]` is for functions; put `#[tools]` on an `impl` block";
            syn::Error::new(error.span(), message)
        }
        Err(_) => error,
    }
}

/// Checks whether the methods of a block can be tools.
fn check_block(block: &ItemImpl) -> syn::Result<()> {
    if let Some((_, of_trait, _)) = &block.trait_ {
        let message = "`#[tools]` is for the methods of a type, not for those of a trait";
        return Err(syn::Error::new_spanned(of_trait, message));
    }
    if !block.generics.params.is_empty() {
        let message = "the tools of a generic type need `Tool::new`, since `#[tools]` cannot name \
                       the type of the state";
        return Err(syn::Error::new_spanned(&block.generics, message));
    }
    check_state(&block.self_ty)
}

/// Returns whether an attribute of a function also applies to the function that returns its tool.
fn is_of_maker(attribute: &Attribute) -> bool {
    ["allow", "cfg", "deny", "deprecated", "expect", "warn"]
        .iter()
        .any(|name| attribute.path().is_ident(name))
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
        let path = attribute.path().to_token_stream().to_string().replace(' ', "");
        matches!(path.as_str(), "tool" | "turnstream::tool" | "::turnstream::tool")
    };
    let Some(at) = method.attrs.iter().position(is_tool) else { return Ok(None) };
    let attribute = method.attrs.remove(at);
    if let Some(at) = method.attrs.iter().position(is_tool) {
        let second = method.attrs.remove(at);
        return Err(syn::Error::new_spanned(second, "`#[tool]` is given twice"));
    }
    let settings = match &attribute.meta {
        Meta::Path(_) => Settings::default(),
        Meta::List(list) => read_settings(list.tokens.clone())?,
        Meta::NameValue(value) => {
            let message = "settings are in parentheses: `#[tool(name = \"…\")]`";
            return Err(syn::Error::new_spanned(value, message));
        }
    };
    Ok(Some(settings))
}
