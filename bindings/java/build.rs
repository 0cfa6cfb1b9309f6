//! Options for the linker.

fn main() {
    // The JVM unloads the library with its class loader. Threads that have used it, and end later, still run the
    // destructors of their thread-local memory.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
