//! A measured figure, or the reason why there is none.

use serde::{Deserialize, Serialize};

/// A measured value, or the reason why it is missing. A missing value never counts as "no".
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured<T> {
    /// The figure.
    #[serde(rename = "measured")]
    Value(T),
    /// The reason why there is no figure.
    NotMeasured(String),
}

impl<T> Measured<T> {
    /// Creates a missing value with its reason.
    pub fn not(because: impl Into<String>) -> Self {
        Self::NotMeasured(because.into())
    }

    /// Returns the figure, or the reason why it is missing.
    pub(crate) fn or_why(figure: Option<T>, because: impl Into<String>) -> Self {
        figure.map_or_else(|| Self::not(because), Self::Value)
    }

    /// Returns the figure, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::NotMeasured(_) => None,
        }
    }

    /// Returns the reason why there is no figure.
    pub(crate) fn why_not(&self) -> Option<&str> {
        match self {
            Self::Value(_) => None,
            Self::NotMeasured(because) => Some(because),
        }
    }
}

impl<T> Default for Measured<T> {
    fn default() -> Self {
        Self::not("the audit ended before this part")
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
