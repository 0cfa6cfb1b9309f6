//! Options for the linker.
#![forbid(unsafe_code)]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // Programs linked with one version do not start with another.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdormouse.so.0");
        // Threads that have used the library run the destructors of their thread-local memory when they end, which
        // may be after dlclose().
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
