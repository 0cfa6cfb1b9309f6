//! Steps that are still to take before a configuration may run.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, Listed, OptionType, wrong_type};
use crate::option::value::RawValue;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest text, in characters: it is shown as an error.
const LENGTH_MAX: usize = 2000;

/// A step, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step(String);

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl OptionType for Step {
    const KIND: Kind = Kind::new("a step", "\"line 12: ssl_ocsp on\"", "TEXT");

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        if text.trim().is_empty() {
            let problem = Problem::new("this step is empty");
            return Err(problem.help("say what is to do, or remove it").into());
        }
        if text.chars().count() > LENGTH_MAX {
            let problem = Problem::new("this step is too long");
            return Err(problem
                .label(format!("at most {LENGTH_MAX} characters"))
                .into());
        }
        Ok(Self(text.to_owned()))
    }
}

impl Listed for Step {
    const KIND_OF_LIST: Kind = Kind::new("a list of steps", "[\"line 12: ssl_ocsp on\"]", "TEXT");
}
