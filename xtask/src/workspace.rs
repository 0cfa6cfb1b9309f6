//! The workspace as Cargo sees it, with those of the bindings.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// Where compilation starts, relative to the repository.
    pub(crate) targets: Vec<Target>,
}

pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) for_tests_only: bool,
}

pub(crate) struct Target {
    pub(crate) kind: String,
    pub(crate) path: String,
}

/// Workspaces of their own, so that the server is built without other languages' tools and libraries.
const BINDINGS: [&str; 2] = ["bindings", "bindings/rust"];

/// Returns the packages of the repository's workspace and of those of the bindings.
pub(crate) fn read(root: &Path) -> Result<Vec<Package>, String> {
    let mut packages = read_in(root, root)?;
    for bindings in BINDINGS.map(|folder| root.join(folder)) {
        if bindings.is_dir() {
            packages.append(&mut read_in(&bindings, root)?);
        }
    }
    Ok(packages)
}

/// Runs `cargo metadata`, without the network and without external packages.
fn read_in(directory: &Path, root: &Path) -> Result<Vec<Package>, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(directory)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    parse(&output.stdout, root)
}

fn parse(json: &[u8], root: &Path) -> Result<Vec<Package>, String> {
    let metadata: Value =
        serde_json::from_slice(json).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"]
        .as_array()
        .ok_or("cargo metadata: no packages")?;
    Ok(packages
        .iter()
        .map(|package| parse_package(package, root))
        .collect())
}

fn parse_package(package: &Value, root: &Path) -> Package {
    let dependencies = list(&package["dependencies"]).map(|dependency| Dependency {
        name: word(&dependency["name"]),
        for_tests_only: dependency["kind"] == "dev",
    });
    let targets = list(&package["targets"]).map(|target| {
        let path = word(&target["src_path"]);
        let relative = Path::new(&path)
            .strip_prefix(root)
            .map(|path| path.to_string_lossy().into_owned());
        Target {
            kind: word(&target["kind"][0]),
            path: relative.unwrap_or(path),
        }
    });
    Package {
        name: word(&package["name"]),
        dependencies: dependencies.collect(),
        targets: targets.collect(),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_cargo_prints() {
        let json = br#"{"packages":[{"name":"a","dependencies":[{"name":"b","kind":null},{"name":"c","kind":"dev"}],
            "targets":[{"kind":["lib"],"src_path":"/r/a/src/lib.rs"}]}]}"#;
        let packages = parse(json, Path::new("/r")).expect("valid");
        assert_eq!(packages[0].name, "a");
        assert!(!packages[0].dependencies[0].for_tests_only);
        assert!(packages[0].dependencies[1].for_tests_only);
        assert_eq!(packages[0].targets[0].path, "a/src/lib.rs");
        assert!(parse(b"{}", Path::new("/r")).is_err());
    }
}
