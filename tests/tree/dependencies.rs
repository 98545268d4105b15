//! What is linked: our crates among each other, and licences, copies and origins of everybody else's,
//! against deny.toml. `cargo deny` reads the same file; these rules need nothing installed.

use crate::files;
use crate::report;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// A crate of this workspace.
pub(crate) struct OurPackage {
    /// Its folder from the root of the tree; empty for the root.
    pub(crate) folder: String,
    /// Crates of this workspace that it is built from, tests aside.
    pub(crate) imports: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    id: String,
    version: String,
    license: Option<String>,
    license_file: Option<String>,
    source: Option<String>,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
}

#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

#[derive(Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    crate_: String,
    reason: String,
}

fn metadata() -> Metadata {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", &platform])
        .current_dir(files::root())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes the format that was asked for")
}

fn deny() -> Deny {
    let text = std::fs::read_to_string(files::root().join("deny.toml")).expect("deny.toml is there");
    toml::from_str(&text).unwrap_or_else(|error| panic!("deny.toml: {error}"))
}

/// Everybody else's packages that are built on this platform.
fn foreign() -> Vec<Package> {
    let metadata = metadata();
    let used: BTreeSet<String> = metadata.resolve.nodes.into_iter().map(|node| node.id).collect();
    metadata.packages.into_iter().filter(|p| p.source.is_some() && used.contains(&p.id)).collect()
}

/// Our own packages.
pub(crate) fn our_packages() -> Vec<OurPackage> {
    let root = files::root().to_string_lossy().into_owned();
    let imports = |package: &Package| {
        let ours =
            package.dependencies.iter().filter(|d| d.path.is_some() && d.kind.as_deref() != Some("dev"));
        ours.map(|d| d.name.trim_start_matches("ringsmith-").to_owned()).collect()
    };
    metadata()
        .packages
        .iter()
        .filter(|package| package.source.is_none())
        .map(|package| {
            let folder = package.manifest_path.trim_start_matches(&root).trim_end_matches("Cargo.toml");
            OurPackage { folder: folder.trim_matches('/').to_owned(), imports: imports(package) }
        })
        .collect()
}

#[test]
fn licences_are_allowed() {
    let allowed: Vec<spdx::Licensee> = deny()
        .licenses
        .allow
        .iter()
        .map(|licence| spdx::Licensee::parse(licence).unwrap_or_else(|error| panic!("deny.toml: {error}")))
        .collect();
    let mut broken = Vec::new();
    for package in foreign() {
        let name = format!("{} {}", package.name, package.version);
        let Some(licence) = &package.license else {
            broken.push(format!("{name}: names no licence ({:?})", package.license_file));
            continue;
        };
        match spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX) {
            Ok(expression) if expression.evaluate(|needed| allowed.iter().any(|a| a.satisfies(needed))) => {}
            Ok(_) => broken.push(format!("{name}: {licence} is not allowed by deny.toml")),
            Err(error) => broken.push(format!("{name}: {licence}: {error}")),
        }
    }
    report("everything linked has a licence that deny.toml allows", &broken);
}

#[test]
fn nothing_is_linked_twice() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in foreign() {
        versions.entry(package.name).or_default().insert(package.version);
    }
    let skipped = deny().bans.skip;
    let is_skipped =
        |name: &str, version: &str| skipped.iter().any(|s| s.crate_ == format!("{name}@{version}"));
    let mut broken = Vec::new();
    for (name, versions) in &versions {
        let counted: Vec<&String> = versions.iter().filter(|version| !is_skipped(name, version)).collect();
        if counted.len() > 1 {
            broken.push(format!("{name}: {counted:?}"));
        }
    }
    for skip in &skipped {
        let (name, version) = skip.crate_.split_once('@').unwrap_or_default();
        if versions.get(name).is_none_or(|versions| !versions.contains(version)) || skip.reason.is_empty() {
            broken.push(format!("deny.toml: {} is skipped and not there, or without a reason", skip.crate_));
        }
    }
    report("every crate is linked in one version", &broken);
}

#[test]
fn everything_comes_from_the_public_registry() {
    let from_registry = |source: &String| source == "registry+https://github.com/rust-lang/crates.io-index";
    let broken: Vec<String> = foreign()
        .iter()
        .filter(|package| !package.source.as_ref().is_some_and(from_registry))
        .map(|package| format!("{} {}: {:?}", package.name, package.version, package.source))
        .collect();
    report("dependencies come from crates.io", &broken);
}
