//! The request features that a model supports, derived from the model's name.

/// A generation of models. Each generation requires requests in a different form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelGeneration {
    /// The Gemini 1, Gemini 2 and Gemma models.
    Gemini2OrEarlier,
    /// Gemini 3 and later models, which reject calls without a signature, support thinking levels,
    /// and accept files in tool results.
    Gemini3OrLater,
}

impl ModelGeneration {
    /// Determines a model's generation from its name, such as `models/gemini-2.5-flash`. A name
    /// without a version, such as `gemini-flash-latest`, is assumed to refer to a newer model.
    pub(super) fn from_model_name(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or_default();
        let number = name.strip_prefix("gemini-").unwrap_or_default();
        let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        match number.get(..digits).unwrap_or_default().parse::<u32>() {
            Ok(0..3) => Self::Gemini2OrEarlier,
            Err(_) if name.starts_with("gemma") => Self::Gemini2OrEarlier,
            Ok(_) | Err(_) => Self::Gemini3OrLater,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_generation_is_read_from_the_model_name() {
        for third in [
            "gemini-3-pro-preview",
            "gemini-3.1-pro",
            "models/gemini-3-flash",
            "gemini-10-x",
            "gemini-flash-latest",
            "tunedModels/mine",
        ] {
            assert_eq!(
                ModelGeneration::from_model_name(third),
                ModelGeneration::Gemini3OrLater,
                "{third}"
            );
        }
        for second in ["gemini-2.5-flash", "gemini-2.0-x-3", "gemma-3-27b", "x/gemini-1.5-pro"] {
            assert_eq!(
                ModelGeneration::from_model_name(second),
                ModelGeneration::Gemini2OrEarlier,
                "{second}"
            );
        }
    }
}
