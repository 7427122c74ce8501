//! A macro for the `Debug` implementations of types that show only some of their fields.

/// Implements `Debug` for a type, showing only the listed fields. In the fields' values, the
/// identifier in parentheses stands for the value that is shown.
macro_rules! impl_debug {
    ($type:ident) => {
        impl_debug!($type(_it));
    };
    ($type:ident($it:ident) $(, $field:ident = $value:expr)* $(,)?) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($field), &$value))*
                    .finish_non_exhaustive()
            }
        }
    };
}
