//! What a test needs to run: `requires!(Can::BeDormouse, "curl", Root)`.

use crate::scene::applies;
use crate::terminator::Can;
use crate::tools;

/// Something that a test needs. What is missing is reported.
pub trait Requirement {
    /// Whether it is there.
    fn is_met(&self) -> bool;
}

/// An ability of the chosen terminator.
impl Requirement for Can {
    fn is_met(&self) -> bool {
        applies(*self)
    }
}

/// An installed program.
impl Requirement for &str {
    fn is_met(&self) -> bool {
        tools::present(&[self])
    }
}

/// The rights of root.
pub struct Root;

impl Requirement for Root {
    fn is_met(&self) -> bool {
        rustix::process::geteuid().is_root() || tools::unavailable("this test needs root")
    }
}

/// A condition that the test has examined and reported itself.
impl Requirement for bool {
    fn is_met(&self) -> bool {
        *self
    }
}

/// Returns from the test unless each [`Requirement`] is met. They are examined in their order.
#[macro_export]
macro_rules! requires {
    ($($what:expr),+) => {
        if !($($crate::requirement::Requirement::is_met(&$what))&&+) {
            return;
        }
    };
}
