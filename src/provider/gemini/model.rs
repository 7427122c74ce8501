//! What follows from the name of a model.

#[cfg(feature = "http")]
use crate::error::{Error, ErrorKind};

/// The segments of a model's address, the last with what is asked of it. They are not yet encoded.
#[cfg(feature = "http")]
pub(super) fn path(model: &str, action: &str) -> Result<Vec<String>, Error> {
    let model = model.trim_matches('/');
    let mut path: Vec<String> = match model.contains('/') {
        true => model.split('/').map(str::to_owned).collect(),
        false => vec!["models".to_owned(), model.to_owned()],
    };
    let odd = |c: char| c.is_whitespace() || c.is_control();
    let leads_elsewhere = |part: &String| matches!(part.as_str(), "" | "." | "..");
    if path.iter().any(leads_elsewhere) || model.contains(odd) {
        let message = "the name of the model cannot be part of an address";
        return Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter("model"));
    }
    if let Some(last) = path.last_mut() {
        last.push_str(action);
    }
    Ok(path)
}

/// The generations of models that ask for different requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// Gemini 1 and 2, and Gemma.
    Second,
    /// Gemini 3 and later: it refuses a call without a signature, knows levels of thinking, and
    /// takes files in the result of a tool.
    Third,
}

impl Generation {
    /// Reads it off a name, such as `models/gemini-2.5-flash`. One that tells nothing, such as
    /// `gemini-flash-latest`, stands for a newer model.
    pub(super) fn of(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or_default();
        let number = name.strip_prefix("gemini-").unwrap_or_default();
        let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        match number.get(..digits).unwrap_or_default().parse::<u32>() {
            Ok(0..3) => Self::Second,
            Err(_) if name.starts_with("gemma") => Self::Second,
            Ok(_) | Err(_) => Self::Third,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_is_read_off_the_name() {
        for third in [
            "gemini-3-pro-preview",
            "gemini-3.1-pro",
            "models/gemini-3-flash",
            "gemini-10-x",
            "gemini-flash-latest",
            "tunedModels/mine",
        ] {
            assert_eq!(Generation::of(third), Generation::Third, "{third}");
        }
        for second in ["gemini-2.5-flash", "gemini-2.0-x-3", "gemma-3-27b", "x/gemini-1.5-pro"] {
            assert_eq!(Generation::of(second), Generation::Second, "{second}");
        }
    }

    #[cfg(feature = "http")]
    #[test]
    fn a_name_is_part_of_the_address_or_refused() {
        assert_eq!(path("m", ":x").unwrap(), ["models", "m:x"]);
        assert_eq!(path("models/m", ":x").unwrap(), ["models", "m:x"]);
        assert_eq!(path("tunedModels/m", ":x").unwrap(), ["tunedModels", "m:x"]);
        for odd in ["", " ", "a b", "a\nb", ".", "..", "models/../m", "a//b", "/"] {
            assert_eq!(path(odd, ":x").unwrap_err().parameter(), Some("model"), "{odd:?}");
        }
    }
}
