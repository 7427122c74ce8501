//! A function that becomes a tool.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprLit, FnArg, Ident, Lifetime, Lit, Meta, Pat, PatType, Path, Receiver,
    ReturnType, Signature, Type, TypeImplTrait, TypePath, TypeReference,
};

use crate::settings::{Settings, check_name};

/// A function that becomes a tool.
pub(crate) struct ToolFunction {
    name: String,
    description: Description,
    parameters: Vec<Parameter>,
    settings: Settings,
    is_async: bool,
    function: Ident,
    receiver: Option<StateReceiver>,
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

enum Description {
    Text(String),
    /// An expression in `#[doc = …]`, such as `include_str!("…")`.
    Expr(Box<Expr>),
}

/// How a method takes its state.
#[derive(Clone, Copy)]
enum StateReceiver {
    Reference,
    Arc,
}

/// The kind of a function that is a tool.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum FunctionKind {
    Free,
    /// In the block that `#[tools]` is on.
    Method,
}

impl ToolFunction {
    /// Reads a function.
    pub(crate) fn read(
        attributes: &[Attribute],
        signature: &Signature,
        settings: Settings,
        kind: FunctionKind,
    ) -> syn::Result<Self> {
        let receiver = check_signature(signature, kind)?;
        let name = match &settings.name {
            Some(name) => name.value(),
            None => signature.ident.unraw().to_string(),
        };
        check_name(&name).map_err(|message| {
            let message = format!("{message}; `#[tool(name = \"…\")]` sets another name");
            syn::Error::new(signature.ident.span(), message)
        })?;
        let description = Description::read(attributes, &signature.ident)?;
        let typed = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(parameter) => Some(parameter),
            FnArg::Receiver(_) => None,
        });
        let (mut parameters, mut errors) = (Vec::new(), Errors::default());
        for parameter in typed {
            parameters.extend(errors.add(Parameter::read(parameter)));
        }
        let is_context = |parameter: &&Parameter| matches!(parameter, Parameter::Context { .. });
        if parameters.iter().filter(is_context).count() > 1 {
            let message = "a tool has one context; remove the second `ToolContext`";
            errors.push(syn::Error::new_spanned(&signature.inputs, message));
        }
        let output = match &signature.output {
            ReturnType::Default => signature.ident.span(),
            ReturnType::Type(_, output) => {
                errors.add(check_output(output));
                output.span()
            }
        };
        errors.finish()?;
        Ok(Self {
            name,
            description,
            parameters,
            settings,
            is_async: signature.asyncness.is_some(),
            function: signature.ident.clone(),
            receiver,
            output,
        })
    }

    /// Returns the expression that creates the tool. `state` is the variable with the `Arc` that
    /// methods belong to.
    pub(crate) fn tool(&self, state: &Ident) -> TokenStream {
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
        // A method of `Arc`, such as `clone`, is not meant.
        let call = match self.receiver {
            None => quote!(#function(#(#passed),*)),
            Some(StateReceiver::Reference) => quote!(Self::#function(&#state, #(#passed),*)),
            Some(StateReceiver::Arc) => quote!(Self::#function(#state, #(#passed),*)),
        };
        let call = if self.is_async { quote!(#call.await) } else { call };
        let cloned = self.receiver.map(|_| quote!(let #state = ::std::sync::Arc::clone(&#state);));
        let arguments = self.arguments();
        let pattern = match &arguments {
            Some(_) => quote!(#args: __Arguments),
            None => quote!(()),
        };
        let takes_context =
            self.parameters.iter().any(|it| matches!(it, Parameter::Context { .. }));
        let cx = if takes_context { quote!(#cx) } else { quote!(_) };
        let (name, description, calls) = (&self.name, &self.description, &self.settings.calls);
        let new = quote_spanned! { self.output =>
            ::turnstream::Tool::new(#name, #description, move |#pattern, #cx| {
                #cloned
                async move { #call }
            })
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
            #[serde(crate = "::turnstream::__macros::serde", expecting = "an object")]
            #[schemars(crate = "::turnstream::__macros::schemars")]
            #[allow(deprecated, non_snake_case)]
            struct __Arguments {
                #(#fields,)*
            }
            #(#defaults)*
        })
    }
}

impl Parameter {
    fn read(parameter: &PatType) -> syn::Result<Self> {
        if let Some(is_reference) = context_type(&parameter.ty)? {
            return Ok(Self::Context { is_reference });
        }
        let name = match &*parameter.pat {
            Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => {
                name.ident.clone()
            }
            Pat::Wild(wild) => {
                let message = "the name of a parameter tells the model what to write; replace `_`";
                return Err(syn::Error::new_spanned(wild, message));
            }
            other => {
                let message = "the parameter of a tool is a name, which the model reads; take the \
                               value apart inside the function";
                return Err(syn::Error::new_spanned(other, message));
            }
        };
        check_type(&parameter.ty)?;
        let mut default = None;
        let mut attributes = Vec::new();
        for attribute in &parameter.attrs {
            if attribute.path().is_ident("default") {
                if default.is_some() {
                    let message = "the default is given twice";
                    return Err(syn::Error::new_spanned(attribute, message));
                }
                default = Some(DefaultValue::read(attribute)?);
            } else if attribute.path().is_ident("cfg") {
                let message = "a parameter cannot have `#[cfg]`; the function can";
                return Err(syn::Error::new_spanned(attribute, message));
            } else if is_of_field(attribute) {
                attributes.push(attribute.clone());
            }
        }
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
        format_ident!("__default_{}", self.name.unraw(), span = Span::call_site())
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
        Some(quote!(#[allow(deprecated)] fn #name() -> #of_type { #value }))
    }
}

impl DefaultValue {
    fn read(attribute: &Attribute) -> syn::Result<Self> {
        let value: Expr = match &attribute.meta {
            Meta::Path(_) => return Ok(Self::OfType),
            Meta::List(list) => list.parse_args()?,
            Meta::NameValue(value) => value.value.clone(),
        };
        let mut checks = TypeChecks::default();
        checks.visit_expr(&value);
        checks.errors.finish()?;
        Ok(Self::Expr(Box::new(value)))
    }
}

impl Description {
    fn read(attributes: &[Attribute], name: &Ident) -> syn::Result<Self> {
        let docs = attributes.iter().filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(doc) if doc.path.is_ident("doc") => Some(&doc.value),
            _ => None,
        });
        let mut lines = Vec::new();
        for doc in docs {
            match doc {
                Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
                    lines.extend(doc_lines(&text.value()));
                }
                // The text of a file, for example.
                expr if lines.is_empty() => return Ok(Self::Expr(Box::new(expr.clone()))),
                expr => {
                    let message = "the description of a tool is a doc comment or one expression";
                    return Err(syn::Error::new_spanned(expr, message));
                }
            }
        }
        let text = lines.join("\n").trim().to_owned();
        if text.is_empty() {
            let message = "a tool needs a doc comment, which tells the model what the tool does";
            return Err(syn::Error::new(name.span(), message));
        }
        Ok(Self::Text(text))
    }
}

impl ToTokens for Description {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Self::Text(text) => text.to_tokens(tokens),
            Self::Expr(expr) => expr.to_tokens(tokens),
        }
    }
}

/// Returns the lines of a doc comment, without the space and the star with which they begin.
fn doc_lines(text: &str) -> Vec<String> {
    let is_block = text.contains('\n');
    let line = |line: &str| {
        let line = match is_block {
            true => line.trim_start().strip_prefix('*').unwrap_or(line),
            false => line,
        };
        line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned()
    };
    text.split('\n').map(line).collect()
}

/// Returns whether an attribute of a parameter is one of its field.
fn is_of_field(attribute: &Attribute) -> bool {
    ["doc", "serde", "schemars"].iter().any(|name| attribute.path().is_ident(name))
}

/// Removes the attributes of parameters that are meant for the tool.
pub(crate) fn remove_attributes(signature: &mut Signature) {
    for input in &mut signature.inputs {
        if let FnArg::Typed(parameter) = input {
            parameter.attrs.retain(|it| !is_of_field(it) && !it.path().is_ident("default"));
        }
    }
}

/// The errors of several parts, which are reported together.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Returns the value of a part, or keeps its error.
    pub(crate) fn add<T>(&mut self, part: syn::Result<T>) -> Option<T> {
        part.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn finish(self) -> syn::Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Checks whether a function with this signature can be a tool. Returns how a method takes its
/// state.
fn check_signature(
    signature: &Signature,
    kind: FunctionKind,
) -> syn::Result<Option<StateReceiver>> {
    let fail = |part: &dyn ToTokens, message: &str| Err(syn::Error::new_spanned(part, message));
    if let Some(token) = signature.constness {
        return fail(&token, "a tool is not a `const fn`");
    }
    if let Some(token) = signature.unsafety {
        return fail(&token, "a tool is not an `unsafe fn`, since a model calls it");
    }
    if let Some(abi) = &signature.abi {
        return fail(abi, "a tool is not an `extern fn`");
    }
    let generics = &signature.generics;
    if generics.type_params().next().is_some() || generics.const_params().next().is_some() {
        let message = "a tool has no type parameters, since its schema describes one type for \
                       each argument";
        return fail(generics, message);
    }
    if generics.lt_token.is_some() {
        return fail(generics, "a tool has no named lifetimes; remove them");
    }
    match (kind, signature.receiver()) {
        (FunctionKind::Free, None) => Ok(None),
        (FunctionKind::Free, Some(receiver)) => {
            let message =
                "`#[tool]` is for functions without `self`; put `#[tools]` on the `impl` block";
            fail(receiver, message)
        }
        (FunctionKind::Method, Some(receiver)) => match state_receiver(receiver) {
            Some(taken) => Ok(Some(taken)),
            None if is_mutable(receiver) => {
                let message = "calls may run at the same time, so a tool takes `&self`; state that \
                               changes can be in a `Mutex`";
                fail(receiver, message)
            }
            None => fail(receiver, "a tool can be called again and again, so it takes `&self`"),
        },
        (FunctionKind::Method, None) => {
            let message = "a tool of an `impl` block takes `&self`; a function without it is a \
                           tool with `#[tool]`, outside the block";
            fail(&signature.ident, message)
        }
    }
}

/// Returns how a method takes its state, or `None` if a tool cannot take it so.
fn state_receiver(receiver: &Receiver) -> Option<StateReceiver> {
    match &*receiver.ty {
        Type::Reference(TypeReference { mutability: None, elem, .. }) => {
            matches!(&**elem, Type::Path(it) if it.path.is_ident("Self"))
                .then_some(StateReceiver::Reference)
        }
        Type::Path(it) => {
            let is_arc = it.path.segments.last().is_some_and(|segment| segment.ident == "Arc");
            is_arc.then_some(StateReceiver::Arc)
        }
        _ => None,
    }
}

fn is_mutable(receiver: &Receiver) -> bool {
    matches!(&*receiver.ty, Type::Reference(TypeReference { mutability: Some(_), .. }))
}

/// Returns whether a type is a reference to the context of a call, or `None` if it is another type.
fn context_type(of_type: &Type) -> syn::Result<Option<bool>> {
    let is_context = |of_type: &Type| match of_type {
        Type::Path(TypePath { path: Path { segments, .. }, .. }) => {
            segments.last().is_some_and(|segment| segment.ident == "ToolContext")
        }
        _ => false,
    };
    Ok(match without_groups(of_type) {
        Type::Reference(TypeReference { elem, mutability, .. })
            if is_context(without_groups(elem)) =>
        {
            if mutability.is_some() {
                let message = "a tool takes `ToolContext` or `&ToolContext`";
                return Err(syn::Error::new_spanned(of_type, message));
            }
            Some(true)
        }
        of_type if is_context(of_type) => Some(false),
        _ => None,
    })
}

/// Removes the groups that other macros put around a type.
fn without_groups(of_type: &Type) -> &Type {
    match of_type {
        Type::Group(group) => without_groups(&group.elem),
        Type::Paren(group) => without_groups(&group.elem),
        of_type => of_type,
    }
}

/// Finds the parts of a type, or of a default value, that an argument cannot have.
#[derive(Default)]
struct TypeChecks {
    errors: Errors,
}

impl Visit<'_> for TypeChecks {
    fn visit_type_reference(&mut self, reference: &TypeReference) {
        let message = "the value of a parameter is read from the model's JSON, so it cannot be a \
                       reference; take an owned value, such as `String` (the context has the type \
                       `&ToolContext`, by this name)";
        self.errors.push(syn::Error::new_spanned(reference, message));
    }

    fn visit_type_impl_trait(&mut self, of_type: &TypeImplTrait) {
        let message = "the schema describes one type for each argument, so a parameter cannot be \
                       `impl Trait`";
        self.errors.push(syn::Error::new_spanned(of_type, message));
    }

    fn visit_path(&mut self, path: &Path) {
        if path.segments.first().is_some_and(|segment| segment.ident == "Self") {
            let message = "write the name of the type in place of `Self`";
            self.errors.push(syn::Error::new_spanned(path, message));
        }
        visit::visit_path(self, path);
    }
}

fn check_type(of_type: &Type) -> syn::Result<()> {
    let mut checks = TypeChecks::default();
    checks.visit_type(of_type);
    checks.errors.finish()
}

/// Finds references in the type of an output.
struct OutputChecks(Errors);

impl Visit<'_> for OutputChecks {
    fn visit_type_reference(&mut self, reference: &TypeReference) {
        if reference.lifetime.as_ref().is_none_or(|lifetime| lifetime.ident != "static") {
            let message = "the output of a tool outlives the call, so it cannot be a reference; \
                           return an owned value, such as `String`";
            self.0.push(syn::Error::new_spanned(reference, message));
        }
    }
}

fn check_output(output: &Type) -> syn::Result<()> {
    let mut checks = OutputChecks(Errors::default());
    checks.visit_type(output);
    checks.0.finish()
}

/// Finds a named lifetime in the type of a state.
pub(crate) fn check_state(of_type: &Type) -> syn::Result<()> {
    struct Checks(Errors);

    impl Visit<'_> for Checks {
        fn visit_lifetime(&mut self, lifetime: &Lifetime) {
            if lifetime.ident != "static" {
                let message = "calls may outlive the value that they belong to, so its type has no \
                               lifetime but `'static`";
                self.0.push(syn::Error::new_spanned(lifetime, message));
            }
        }
    }

    let mut checks = Checks(Errors::default());
    checks.visit_type(of_type);
    checks.0.finish()
}
