//! A figure, or why there is none.

use serde::{Deserialize, Serialize};

/// Something that was measured, or the reason why it was not. "I don't know" is never "no".
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured<T> {
    /// The figure.
    #[serde(rename = "measured")]
    Value(T),
    /// The reason why there is none.
    NotMeasured(String),
}

impl<T> Measured<T> {
    /// Not measured, because …
    pub fn not(because: impl Into<String>) -> Self {
        Self::NotMeasured(because.into())
    }

    /// The figure, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::NotMeasured(_) => None,
        }
    }

    /// Why it was not.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            Self::Value(_) => None,
            Self::NotMeasured(because) => Some(because),
        }
    }
}

impl<T> Default for Measured<T> {
    fn default() -> Self {
        Self::not("it was not come to")
    }
}

impl<T> From<Result<T, String>> for Measured<T> {
    fn from(result: Result<T, String>) -> Self {
        match result {
            Ok(value) => Self::Value(value),
            Err(because) => Self::NotMeasured(because),
        }
    }
}
