//! A function that becomes a tool.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprLit, FnArg, Ident, Lit, Meta, Pat, PatType, ReturnType, Signature, Type,
    TypePath, TypeReference,
};

use crate::settings::{Settings, check_name};

/// A function that becomes a tool.
pub(crate) struct ToolFunction {
    name: String,
    description: String,
    parameters: Vec<Parameter>,
    settings: Settings,
    is_async: bool,
    function: Ident,
    /// Where the compiler reports that the output cannot be that of a tool.
    output: Span,
}

enum Parameter {
    /// A value that the model writes.
    Argument(Box<Argument>),
    Context {
        is_reference: bool,
    },
}

struct Argument {
    name: Ident,
    of_type: Type,
    /// The docs, and the attributes for serde and schemars.
    attributes: Vec<Attribute>,
    default: Option<DefaultValue>,
}

enum DefaultValue {
    OfType,
    Expr(Box<Expr>),
}

/// Where the function of a tool stands.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Place {
    Free,
    /// In the block that `#[tools]` is on.
    Impl,
}

impl ToolFunction {
    /// Reads a function, and removes the attributes of its parameters that are meant for the tool.
    pub(crate) fn read(
        attributes: &[Attribute],
        signature: &mut Signature,
        settings: Settings,
        place: Place,
    ) -> syn::Result<Self> {
        check_signature(signature, place)?;
        let name = match &settings.name {
            Some(name) => name.value(),
            None => signature.ident.unraw().to_string(),
        };
        check_name(&name).map_err(|message| {
            let message = format!("{message}; `#[tool(name = \"…\")]` sets another name");
            syn::Error::new(signature.ident.span(), message)
        })?;
        let description = docs(attributes);
        if description.is_empty() {
            let message = "a tool needs a doc comment, which tells the model what the tool does";
            return Err(syn::Error::new(signature.ident.span(), message));
        }
        let typed = signature.inputs.iter_mut().filter_map(|input| match input {
            FnArg::Typed(parameter) => Some(parameter),
            FnArg::Receiver(_) => None,
        });
        let parameters = typed.map(Parameter::read).collect::<syn::Result<Vec<_>>>()?;
        let contexts = parameters.iter().filter(|it| matches!(it, Parameter::Context { .. }));
        if contexts.count() > 1 {
            let message = "a tool has one context; remove the second `ToolContext`";
            return Err(syn::Error::new(signature.inputs.span(), message));
        }
        let output = match &signature.output {
            ReturnType::Default => signature.ident.span(),
            ReturnType::Type(_, output) => output.span(),
        };
        Ok(Self {
            name,
            description,
            parameters,
            settings,
            is_async: signature.asyncness.is_some(),
            function: signature.ident.clone(),
            output,
        })
    }

    /// The expression that creates the tool. The function of a method belongs to `state`, an `Arc`.
    pub(crate) fn tool(&self, state: Option<&Ident>) -> TokenStream {
        let (args, cx) =
            (Ident::new("args", Span::mixed_site()), Ident::new("cx", Span::mixed_site()));
        let passed = self.parameters.iter().map(|parameter| match parameter {
            Parameter::Argument(argument) => {
                let name = &argument.name;
                quote!(#args.#name)
            }
            Parameter::Context { is_reference: true } => quote!(&#cx),
            Parameter::Context { is_reference: false } => quote!(#cx),
        });
        let function = &self.function;
        let function = match state {
            Some(state) => quote!(#state.#function),
            None => quote!(#function),
        };
        let call = quote!(#function(#(#passed),*));
        let call = if self.is_async { quote!(#call.await) } else { call };
        let cloned = state.map(|state| quote!(let #state = ::std::sync::Arc::clone(&#state);));
        let arguments = self.arguments();
        let pattern = match &arguments {
            Some(_) => quote!(#args: Arguments),
            None => quote!(()),
        };
        let takes_context =
            self.parameters.iter().any(|it| matches!(it, Parameter::Context { .. }));
        let cx = if takes_context { quote!(#cx) } else { quote!(_) };
        let run = quote! {
            move |#pattern, #cx| {
                #cloned
                async move { #call }
            }
        };
        let (name, description, calls) = (&self.name, &self.description, &self.settings.calls);
        let new = quote_spanned! { self.output =>
            ::turnstream::Tool::new(#name, #description, #run)
        };
        quote! {
            {
                #arguments
                #cloned
                #new #calls
            }
        }
    }

    /// Returns the struct with a field for each argument, or `None` if there are no arguments.
    fn arguments(&self) -> Option<TokenStream> {
        let arguments = self.parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Argument(argument) => Some(&**argument),
            Parameter::Context { .. } => None,
        });
        let arguments: Vec<&Argument> = arguments.collect();
        if arguments.is_empty() {
            return None;
        }
        let fields = arguments.iter().map(|argument| argument.field());
        let defaults = arguments.iter().filter_map(|argument| argument.default_function());
        Some(quote! {
            #[derive(
                ::turnstream::__macros::serde::Deserialize,
                ::turnstream::__macros::schemars::JsonSchema,
            )]
            #[serde(crate = "::turnstream::__macros::serde")]
            #[schemars(crate = "::turnstream::__macros::schemars")]
            struct Arguments {
                #(#fields,)*
            }
            #(#defaults)*
        })
    }
}

impl Parameter {
    fn read(parameter: &mut PatType) -> syn::Result<Self> {
        if let Some(is_reference) = context_type(&parameter.ty) {
            return Ok(Self::Context { is_reference });
        }
        let name = match &*parameter.pat {
            Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => {
                name.ident.clone()
            }
            Pat::Wild(wild) => {
                let message = "the name of a parameter tells the model what to write; replace `_`";
                return Err(syn::Error::new(wild.span(), message));
            }
            other => {
                let message = "the parameter of a tool is a name, which the model reads; take the \
                               value apart inside the function";
                return Err(syn::Error::new(other.span(), message));
            }
        };
        check_type(&parameter.ty)?;
        let mut default = None;
        let mut attributes = Vec::new();
        let mut others = Vec::new();
        for attribute in parameter.attrs.drain(..) {
            if attribute.path().is_ident("default") {
                default = Some(DefaultValue::read(&attribute)?);
            } else if ["doc", "serde", "schemars"].iter().any(|it| attribute.path().is_ident(it)) {
                attributes.push(attribute);
            } else {
                others.push(attribute);
            }
        }
        parameter.attrs = others;
        let of_type = (*parameter.ty).clone();
        Ok(Self::Argument(Box::new(Argument { name, of_type, attributes, default })))
    }
}

impl Argument {
    fn field(&self) -> TokenStream {
        let Self { name, of_type, attributes, default } = self;
        let default = match default {
            None => None,
            Some(DefaultValue::OfType) => Some(quote!(#[serde(default)])),
            Some(DefaultValue::Expr(_)) => {
                let path = self.default_name().to_string();
                Some(quote!(#[serde(default = #path)]))
            }
        };
        quote!(#(#attributes)* #default #name: #of_type)
    }

    fn default_name(&self) -> Ident {
        format_ident!("default_{}", self.name.unraw(), span = Span::call_site())
    }

    fn default_function(&self) -> Option<TokenStream> {
        let Some(DefaultValue::Expr(value)) = &self.default else { return None };
        let (name, of_type) = (self.default_name(), &self.of_type);
        let value = match &**value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
                quote_spanned!(text.span() => ::core::convert::Into::into(#text))
            }
            value => quote!(#value),
        };
        Some(quote!(fn #name() -> #of_type { #value }))
    }
}

impl DefaultValue {
    fn read(attribute: &Attribute) -> syn::Result<Self> {
        Ok(match &attribute.meta {
            Meta::Path(_) => Self::OfType,
            Meta::List(list) => Self::Expr(Box::new(list.parse_args()?)),
            Meta::NameValue(value) => Self::Expr(Box::new(value.value.clone())),
        })
    }
}

fn check_signature(signature: &Signature, place: Place) -> syn::Result<()> {
    let fail = |span: Span, message: &str| Err(syn::Error::new(span, message));
    if let Some(token) = signature.constness {
        return fail(token.span, "a tool is not a `const fn`");
    }
    if let Some(token) = signature.unsafety {
        return fail(token.span, "a tool is not an `unsafe fn`, since a model calls it");
    }
    if let Some(abi) = &signature.abi {
        return fail(abi.span(), "a tool is not an `extern fn`");
    }
    if !signature.generics.params.is_empty() {
        let message = "a tool has no type parameters and no lifetimes, since its schema describes \
                       one type for each argument";
        return fail(signature.generics.span(), message);
    }
    let receiver = signature.receiver();
    match (place, receiver) {
        (Place::Free, Some(receiver)) => {
            let message =
                "`#[tool]` is for functions without `self`; put `#[tools]` on the `impl` block";
            fail(receiver.span(), message)
        }
        (Place::Impl, Some(receiver)) if receiver.mutability.is_some() => {
            let message = "calls may run at the same time, so a tool takes `&self`; state that \
                           changes can be in a `Mutex`";
            fail(receiver.span(), message)
        }
        (Place::Impl, Some(receiver)) if receiver.reference.is_none() => {
            fail(receiver.span(), "a tool can be called again and again, so it takes `&self`")
        }
        (Place::Free, None) | (Place::Impl, Some(_)) => Ok(()),
        (Place::Impl, None) => {
            let message = "a tool of an `impl` block takes `&self`; a function without it is a \
                           tool with `#[tool]`, outside the block";
            fail(signature.ident.span(), message)
        }
    }
}

/// Returns whether the type is a reference to the context of a call, or `None` if it is another
/// type.
fn context_type(of_type: &Type) -> Option<bool> {
    let is_context = |path: &TypePath| {
        path.path.segments.last().is_some_and(|segment| segment.ident == "ToolContext")
    };
    match of_type {
        Type::Path(path) if is_context(path) => Some(false),
        Type::Reference(TypeReference { elem, mutability: None, .. }) => match &**elem {
            Type::Path(path) if is_context(path) => Some(true),
            _ => None,
        },
        _ => None,
    }
}

fn check_type(of_type: &Type) -> syn::Result<()> {
    struct Checks(Option<syn::Error>);

    impl Visit<'_> for Checks {
        fn visit_type_reference(&mut self, reference: &TypeReference) {
            let message = "the value of a parameter is read from the model's JSON, so it cannot be \
                           a reference; take an owned value, such as `String`";
            self.0.get_or_insert_with(|| syn::Error::new(reference.span(), message));
        }

        fn visit_type_impl_trait(&mut self, of_type: &syn::TypeImplTrait) {
            let message = "the schema describes one type for each argument, so a parameter cannot \
                           be `impl Trait`";
            self.0.get_or_insert_with(|| syn::Error::new(of_type.span(), message));
        }

        fn visit_type_path(&mut self, path: &TypePath) {
            if path.path.is_ident("Self") {
                let message = "write the name of the type in place of `Self`";
                self.0.get_or_insert_with(|| syn::Error::new(path.span(), message));
            }
            visit::visit_type_path(self, path);
        }
    }

    let mut checks = Checks(None);
    checks.visit_type(of_type);
    checks.0.map_or(Ok(()), Err)
}

/// Returns the text of the doc comment.
fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(it) if it.path.is_ident("doc") => match &it.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<String> = lines
        .flat_map(|text| text.split('\n').map(str::to_owned).collect::<Vec<_>>())
        .map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned())
        .collect();
    lines.join("\n").trim().to_owned()
}
