//! Empty: the package only names where the sources of nginx come from.
#![forbid(unsafe_code)]
