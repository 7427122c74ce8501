//! Reads JSON that a model wrote.
//!
//! Models write some values in a form that their schema or type does not accept, although the
//! meaning is certain: `5.0` for an integer, and `null` for an optional field that is not nullable.
//! These forms are read here, before validation and before serde: [by the schema](read_by_schema)
//! for the arguments of tools, and [by the type](read_by_type) for typed arguments and answers. A
//! value whose meaning would have to be guessed, such as `5.5` or `"5"` for an integer, is left
//! unchanged.

mod by_schema;
mod by_type;
mod fields;
mod numbers;
mod readings;
mod schema_types;

pub(crate) use by_schema::read_by_schema;
pub(crate) use by_type::{read_arguments_by_type, read_by_type};
pub(crate) use fields::JsonFields;
pub(crate) use readings::is_reading_of;
pub(crate) use schema_types::{is_of_type, json_eq};
