//! What the processes give up, and what others cannot see of them.

mod hijacked;
mod privileges;
mod sandbox;
