//! Tells the linker that Node.js provides Node-API.

fn main() {
    napi_build::setup();
}
