//! Options for the linker.

fn main() {
    // Node.js provides Node-API.
    napi_build::setup();
    // Node.js unloads the module with the last worker thread that has loaded it. The thread ends afterwards, and runs
    // the destructors of its thread-local memory.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
