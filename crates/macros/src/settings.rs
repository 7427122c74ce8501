//! The settings in `#[tool(…)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::{Expr, LitStr};

/// The settings that a tool can have, as an error lists them.
const KNOWN: &str = "`name = \"…\"`, `timeout = …`, `dry_run_support`, `exclusive`, `idempotent`, \
                     `pollable`, `rationale`, `requires_approval`, `running_sub_agents` and `strict`";

/// The maximum length of a name that all vendors accept.
const MAX_NAME: usize = 64;

/// The settings in `#[tool(…)]`.
#[derive(Default)]
pub(crate) struct Settings {
    /// The name, if it is not that of the function.
    pub(crate) name: Option<LitStr>,
    /// The calls of methods that set the settings, in the order in which they were written.
    pub(crate) calls: TokenStream,
    given: Vec<String>,
}

impl Settings {
    /// Reads one setting.
    pub(crate) fn read(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        let Some(name) = meta.path.get_ident() else { return Err(meta.error(unknown())) };
        let name = name.to_string();
        if self.given.contains(&name) {
            return Err(meta.error(format!("`{name}` is given twice")));
        }
        let call = match name.as_str() {
            "name" => {
                let name: LitStr = meta.value()?.parse()?;
                check_name(&name.value())
                    .map_err(|message| syn::Error::new(name.span(), message))?;
                self.name = Some(name);
                TokenStream::new()
            }
            "timeout" => {
                let limit: Expr = meta.value()?.parse()?;
                quote!(.with_timeout(#limit))
            }
            "dry_run_support" => quote!(.with_dry_run_support()),
            "exclusive" => quote!(.exclusive()),
            "idempotent" => quote!(.idempotent()),
            "pollable" => quote!(.pollable()),
            "rationale" => quote!(.with_rationale()),
            "requires_approval" => quote!(.requires_approval()),
            "running_sub_agents" => quote!(.running_sub_agents()),
            "strict" => quote!(.strict()),
            "description" => {
                return Err(meta.error("the doc comment of the function is the description"));
            }
            "read_only" => {
                return Err(
                    meta.error("a tool that only reads is `idempotent`, and has `dry_run_support`")
                );
            }
            _ => return Err(meta.error(unknown())),
        };
        if meta.input.peek(syn::Token![=]) {
            return Err(meta.error(format!("`{name}` takes no value")));
        }
        self.calls.extend(call);
        self.given.push(name);
        Ok(())
    }
}

fn unknown() -> String {
    format!("a tool has no such setting; the settings are {KNOWN}")
}

/// Checks that all vendors accept the name of a tool.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match name.len() {
        1..=MAX_NAME if name.chars().all(is_valid) => Ok(()),
        _ => Err(format!(
            "vendors refuse the name `{name}`: a name consists of 1 to {MAX_NAME} ASCII letters, \
             digits, `_` and `-`"
        )),
    }
}
