//! What the compiler's lints cannot see about this workspace's sources:
//!
//! 1. `unsafe` stands only in the modules listed in [`MAY_HOLD_UNSAFE`];
//! 2. the core's atomics, locks and `Arc` come through its `sync` module;
//! 3. examples and the CPU tasks forbid unsafe code;
//! 4. every source file opens with a head comment;
//! 5. every workspace member takes the workspace's lints.
//!
//! The checks read tokens, so comments, strings and attribute arguments do not count.
//! They do not expand macros and do not resolve names: they stop an oversight, not someone
//! who renames `std`. Each check is a function over sources in memory, and has a test
//! that plants what it must find.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tokens::{Token, closing, paths, tokens};

#[path = "tidy/tokens.rs"]
mod tokens;

/// A place that may hold `unsafe`, as a path from the root.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// This file: it must exist, and must need the permission.
    File(&'a str),
    /// Everything under this folder, whether or not it is there yet.
    Future(&'a str),
}

/// The only places where the keyword `unsafe` may stand.
const MAY_HOLD_UNSAFE: &[Place<'_>] = &[
    Place::File("holoflow-core/src/memory/provider.rs"),
    Place::File("holoflow-core/src/memory/host.rs"),
    Place::File("holoflow-core/src/memory/handle.rs"),
    Place::File("holoflow-core/src/storage/region.rs"),
    Place::File("holoflow-core/src/storage/bank.rs"),
    Place::File("holoflow-core/src/storage/delay_ring.rs"),
    Place::File("holoflow-core/src/storage/ring.rs"),
    Place::File("holoflow-core/src/storage/side.rs"),
    Place::File("holoflow-core/src/storage/window.rs"),
    Place::File("holoflow-core/src/device.rs"),
    Place::File("holoflow-core/src/testkit/ledger.rs"),
    Place::File("holoflow-core/src/testkit/fake_device.rs"),
    // The only code that will name cudarc's items.
    Place::Future("holoflow-cuda/src/sys/"),
    // The counting allocator of the benches.
    Place::Future("tests/bench/"),
];

/// Where the core's modules lie, and the one that may name atomics and locks.
const CORE: &str = "holoflow-core/src/";
const DOOR: &str = "holoflow-core/src/sync.rs";

/// Paths that only [`DOOR`] may name. `loom` is also free inside modules under `cfg(loom)`.
const BEHIND_THE_DOOR: &[&[&str]] = &[
    &["std", "sync"],
    &["core", "sync"],
    &["alloc", "sync"],
    &["parking_lot"],
    &["crossbeam"],
    &["loom"],
];

// ---------------------------------------------------------------------------------------
// The workspace itself

#[test]
fn unsafe_stands_only_where_it_may() {
    let sources = workspace_sources();
    assert!(
        sources.iter().any(|s| s.path == "tests/tidy.rs"),
        "the walk misses this very file"
    );
    clean(misplaced_unsafe(&sources, MAY_HOLD_UNSAFE));
}

#[test]
fn the_core_reaches_atomics_and_locks_through_sync() {
    let sources = workspace_sources();
    assert!(
        sources.iter().any(|s| s.path == DOOR),
        "{DOOR} is not there"
    );
    clean(past_the_door(&sources));
}

#[test]
fn examples_and_cpu_tasks_forbid_unsafe_code() {
    clean(missing_forbid(&workspace_sources()));
}

#[test]
fn every_source_file_opens_with_a_head_comment() {
    clean(missing_head(&workspace_sources()));
}

#[test]
fn every_member_takes_the_workspace_lints() {
    let manifests = workspace_files(&|name| name == "Cargo.toml");
    clean(missing_lints(&manifests));
}

fn clean(findings: Vec<String>) {
    assert!(findings.is_empty(), "\n  {}\n", findings.join("\n  "));
}

// ---------------------------------------------------------------------------------------
// The checks

/// A file of the workspace: its path from the root, with `/`, and its text.
struct Source {
    path: String,
    text: String,
}

fn misplaced_unsafe(sources: &[Source], allowed: &[Place<'_>]) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        let may = allowed.iter().any(|place| match *place {
            Place::File(path) => source.path == path,
            Place::Future(folder) => source.path.starts_with(folder),
        });
        if may {
            continue;
        }
        for token in tokens(&source.text).iter().filter(|t| t.is_word("unsafe")) {
            findings.push(format!(
                "{}:{}: `unsafe` outside the modules that may hold it",
                source.path, token.line
            ));
        }
    }
    for place in allowed {
        let Place::File(path) = *place else { continue };
        match sources.iter().find(|s| s.path == path) {
            None => findings.push(format!("{path}: may hold `unsafe` but does not exist")),
            Some(source) if !tokens(&source.text).iter().any(|t| t.is_word("unsafe")) => {
                findings.push(format!("{path}: may hold `unsafe` but holds none"));
            }
            Some(_) => {}
        }
    }
    findings
}

fn past_the_door(sources: &[Source]) -> Vec<String> {
    let core: Vec<(&Source, Vec<Token>)> = sources
        .iter()
        .filter(|s| s.path.starts_with(CORE) && s.path != DOOR)
        .map(|s| (s, tokens(&s.text)))
        .collect();
    // A module under `cfg(loom)` in a file of its own frees that file and those below it.
    let mut loom_only: Vec<String> = Vec::new();
    for (source, tokens) in &core {
        let areas = loom_areas(tokens);
        if areas.whole_file {
            loom_only.push(source.path.clone());
        }
        for name in areas.files {
            let folder = module_folder(&source.path);
            loom_only.push(format!("{folder}{name}.rs"));
            loom_only.push(format!("{folder}{name}/"));
        }
    }

    let mut findings = Vec::new();
    for (source, tokens) in &core {
        let areas = loom_areas(tokens);
        let loom_file = loom_only
            .iter()
            .any(|p| source.path == *p || (p.ends_with('/') && source.path.starts_with(p)));
        for path in paths(tokens) {
            let Some(what) = BEHIND_THE_DOOR
                .iter()
                .find(|behind| path.starts_with(behind))
            else {
                continue;
            };
            let free = loom_file || areas.blocks.iter().any(|block| block.contains(&path.at));
            if *what == ["loom"] && free {
                continue;
            }
            findings.push(format!(
                "{}:{}: `{}` past `crate::sync`",
                source.path,
                tokens[path.at].line,
                path.names.join("::")
            ));
        }
    }
    findings
}

fn missing_forbid(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut found_cpu = false;
    for source in sources {
        let example = source
            .path
            .strip_prefix("examples/")
            .is_some_and(|rest| !rest.contains('/') || rest.split('/').nth(1) == Some("main.rs"));
        let cpu = source.path == "holoflow-cpu/src/lib.rs";
        found_cpu |= cpu;
        if (example || cpu) && !forbids_unsafe_code(&tokens(&source.text)) {
            findings.push(format!("{}: lacks #![forbid(unsafe_code)]", source.path));
        }
    }
    if !found_cpu {
        findings.push("holoflow-cpu/src/lib.rs: is not there".to_owned());
    }
    findings
}

fn missing_head(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter(|s| s.path.split('/').any(|part| part == "src"))
        .filter(|s| !s.text.starts_with("//!"))
        .map(|s| format!("{}: does not open with a `//!` head comment", s.path))
        .collect()
}

fn missing_lints(manifests: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    let Some(root) = manifests.iter().find(|m| m.path == "Cargo.toml") else {
        return vec!["Cargo.toml: is not there".to_owned()];
    };
    let members = toml_strings(&root.text, "workspace", "members");
    if members.is_empty() {
        findings.push("Cargo.toml: no workspace members found".to_owned());
    }
    for member in &members {
        let path = match member.as_str() {
            "." => "Cargo.toml".to_owned(),
            folder => format!("{folder}/Cargo.toml"),
        };
        if !manifests.iter().any(|m| m.path == path) {
            findings.push(format!("{path}: is a member but is not there"));
        }
    }
    // Every package in the tree, so that one reached by a path dependency counts as well.
    for manifest in manifests {
        let package = toml_lines(&manifest.text).any(|(table, _)| table == "package");
        let inherits = toml_lines(&manifest.text).any(|(table, line)| {
            let line: String = line.chars().filter(|c| !c.is_whitespace()).collect();
            table == "lints" && line == "workspace=true"
        });
        if package && !inherits {
            findings.push(format!(
                "{}: lacks `[lints] workspace = true`",
                manifest.path
            ));
        }
    }
    findings
}

// ---------------------------------------------------------------------------------------
// Reading files

fn workspace_sources() -> Vec<Source> {
    workspace_files(&|name| name.ends_with(".rs"))
}

fn workspace_files(wanted: &dyn Fn(&str) -> bool) -> Vec<Source> {
    fn walk(root: &Path, folder: &Path, wanted: &dyn Fn(&str) -> bool, found: &mut Vec<Source>) {
        let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| {
                entry
                    .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
                    .path()
            })
            .collect();
        paths.sort();
        for path in paths {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let kind = fs::symlink_metadata(&path)
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
                .file_type();
            if kind.is_dir() {
                // Cargo marks each target folder, whatever its name, as a cache.
                let built =
                    (folder == root && name == "target") || path.join("CACHEDIR.TAG").exists();
                if !name.starts_with('.') && !built {
                    walk(root, &path, wanted, found);
                }
            } else if kind.is_file() && wanted(&name) {
                let text =
                    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                let from_root = path.strip_prefix(root).unwrap_or(&path);
                let parts: Vec<_> = from_root
                    .components()
                    .map(|part| part.as_os_str().to_string_lossy())
                    .collect();
                found.push(Source {
                    path: parts.join("/"),
                    text,
                });
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(root, root, wanted, &mut found);
    found
}

/// The folder of the modules declared in this file, ending in `/`.
fn module_folder(path: &str) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    match file {
        "mod.rs" | "lib.rs" | "main.rs" => format!("{folder}/"),
        _ => format!("{folder}/{}/", file.trim_end_matches(".rs")),
    }
}

/// The lines of a manifest without comments, each with the name of its table.
fn toml_lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut table = "";
    text.lines().filter_map(move |line| {
        // No name or path in our manifests holds a '#'.
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            // An array's closing line is no header.
            if !line.contains('"') {
                table = name.trim_matches(['[', ']']).trim();
            }
        }
        (!line.is_empty()).then_some((table, line))
    })
}

/// The strings of the array `key` in `table`, on one line or several.
fn toml_strings(text: &str, table: &str, key: &str) -> Vec<String> {
    let mut inside = false;
    let mut strings = Vec::new();
    for (at, line) in toml_lines(text) {
        let starts = at == table
            && line
                .split_once('=')
                .is_some_and(|(left, _)| left.trim() == key);
        if inside || starts {
            strings.extend(line.split('"').skip(1).step_by(2).map(str::to_owned));
            inside = !line.ends_with(']');
        }
    }
    strings
}

// ---------------------------------------------------------------------------------------
// Attributes

/// What of a file is compiled under `cfg(loom)` only.
struct LoomAreas {
    whole_file: bool,
    /// Modules declared here with a file of their own.
    files: Vec<String>,
    /// Token ranges of modules written here.
    blocks: Vec<Range<usize>>,
}

fn loom_areas(tokens: &[Token]) -> LoomAreas {
    let mut areas = LoomAreas {
        whole_file: false,
        files: Vec::new(),
        blocks: Vec::new(),
    };
    for start in 0..tokens.len() {
        if !tokens[start].is_sign('#') {
            continue;
        }
        let inner = tokens.get(start + 1).is_some_and(|t| t.is_sign('!'));
        let open = start + 1 + usize::from(inner);
        if !tokens.get(open).is_some_and(|t| t.is_sign('[')) {
            continue;
        }
        let end = closing(tokens, open);
        if !requires_loom(&tokens[open + 1..end]) {
            continue;
        }
        if inner {
            // Inner attributes of inline modules are not in use here.
            areas.whole_file = true;
            continue;
        }
        let Some(module) = module_after(tokens, end + 1) else {
            continue;
        };
        match tokens.get(module + 2) {
            Some(t) if t.is_sign(';') => areas.files.push(tokens[module + 1].text.clone()),
            Some(t) if t.is_sign('{') => {
                areas.blocks.push(module + 2..closing(tokens, module + 2));
            }
            _ => {}
        }
    }
    areas
}

/// Whether the attribute is a `cfg(…)` that names `loom`, not inside `not(…)` or `any(…)`.
fn requires_loom(attribute: &[Token]) -> bool {
    if !attribute.first().is_some_and(|t| t.is_word("cfg")) {
        return false;
    }
    let mut at = 1;
    while let Some(token) = attribute.get(at) {
        if token.is_word("not") || token.is_word("any") {
            at = closing(attribute, at + 1);
        } else if token.is_word("loom") {
            return true;
        }
        at += 1;
    }
    false
}

/// The `mod` of the module declared at `at`, past other attributes and its visibility.
fn module_after(tokens: &[Token], mut at: usize) -> Option<usize> {
    loop {
        let token = tokens.get(at)?;
        if token.is_word("mod") {
            return Some(at);
        } else if token.is_sign('#') {
            at = closing(tokens, at + 1) + 1;
        } else if token.is_word("pub") {
            at += 1;
            if tokens.get(at)?.is_sign('(') {
                at = closing(tokens, at) + 1;
            }
        } else {
            return None;
        }
    }
}

/// Whether the file has the inner attribute `#![forbid(…, unsafe_code, …)]`.
fn forbids_unsafe_code(tokens: &[Token]) -> bool {
    tokens.windows(5).enumerate().any(|(at, window)| {
        window[0].is_sign('#')
            && window[1].is_sign('!')
            && window[2].is_sign('[')
            && window[3].is_word("forbid")
            && window[4].is_sign('(')
            && tokens[at + 4..closing(tokens, at + 4)]
                .iter()
                .any(|t| t.is_word("unsafe_code"))
    })
}

// ---------------------------------------------------------------------------------------
// Tests of the checks: each finds what is planted

fn source(path: &str, text: &str) -> Source {
    Source {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

#[test]
fn misplaced_unsafe_is_found() {
    let allowed = [Place::File("x/src/ring.rs"), Place::Future("x/src/sys/")];
    let check = |sources: &[Source]| misplaced_unsafe(sources, &allowed);
    let ring = || source("x/src/ring.rs", "unsafe { f() }");

    assert_eq!(check(&[ring()]), [""; 0]);
    assert_eq!(
        check(&[ring(), source("x/src/sys/copy.rs", "unsafe fn g() {}")]),
        [""; 0]
    );
    assert_eq!(
        check(&[
            ring(),
            source("x/src/lib.rs", "#![forbid(unsafe_code)] // unsafe")
        ]),
        [""; 0]
    );

    let planted = "fn a() {}\nfn b() { unsafe { f() } }";
    assert_eq!(
        check(&[ring(), source("x/src/lib.rs", planted)]),
        ["x/src/lib.rs:2: `unsafe` outside the modules that may hold it"]
    );
    // A file whose name only starts alike is another file.
    assert_eq!(
        check(&[ring(), source("x/src/ring.rs.rs", "unsafe")]).len(),
        1
    );
    assert_eq!(
        check(&[
            ring(),
            source("x/src/lib.rs", "#[unsafe(no_mangle)] fn f() {}")
        ])
        .len(),
        1
    );
}

#[test]
fn a_needless_permission_is_found() {
    let allowed = [Place::File("x/src/ring.rs")];
    assert_eq!(
        misplaced_unsafe(&[source("x/src/ring.rs", "// unsafe")], &allowed),
        ["x/src/ring.rs: may hold `unsafe` but holds none"]
    );
    assert_eq!(
        misplaced_unsafe(&[], &allowed),
        ["x/src/ring.rs: may hold `unsafe` but does not exist"]
    );
}

#[test]
fn atomics_and_locks_past_the_door_are_found() {
    let check = |text: &str| past_the_door(&[source("holoflow-core/src/x.rs", text)]).len();
    for planted in [
        "use std::sync::atomic::AtomicU64;",
        "use std::{fmt, sync::{Arc, Mutex}};",
        "fn f(x: &::std::sync::RwLock<u8>) {}",
        "use std::sync::*;",
        "use std::sync;",
        "let a = core::sync::atomic::AtomicBool::new(true);",
        "extern crate alloc; use alloc::sync::Arc;",
        "use parking_lot::Mutex;",
        "use crossbeam::utils::CachePadded;",
        "use loom::thread;",
        "#[cfg(test)] mod tests { use std::sync::Arc; }",
        "#[cfg(not(loom))] mod tests { use loom::thread; }",
        "#[cfg(any(test, loom))] mod tests { use loom::thread; }",
        "#[cfg(loom)] mod tests {} use loom::thread;",
        "#[cfg(loom)] mod tests { use std::sync::Arc; }",
        "#[cfg(loom)] use loom::thread;",
    ] {
        assert!(check(planted) > 0, "not found: {planted}");
    }
    for fine in [
        "use crate::sync::{Arc, Mutex, atomic::AtomicU64};",
        "// use std::sync::Arc;",
        "/// [`Arc`](std::sync::Arc)\nfn f() {}",
        "const S: &str = \"std::sync::Arc\";",
        "use std::{fmt, time::Duration};",
        "let sync = 1; let loom = sync;",
        "#[cfg(loom)] mod tests { use loom::thread; fn f() { loom::model(|| {}); } }",
        "#[cfg(all(test, loom))] #[allow(dead_code)] pub(crate) mod tests { use loom::thread; }",
    ] {
        assert_eq!(check(fine), 0, "found: {fine}");
    }
}

#[test]
fn a_module_file_under_cfg_loom_may_name_loom() {
    let at = |path: &str, text: &str| source(&format!("{CORE}{path}"), text);
    let model = || at("storage/ring/models.rs", "use loom::thread;");
    assert_eq!(past_the_door(&[model()]).len(), 1);
    let ring = at("storage/ring.rs", "#[cfg(all(test, loom))] mod models;");
    assert_eq!(past_the_door(&[model(), ring]).len(), 0);
    let ring = at("storage/ring.rs", "#[cfg(test)] mod models;");
    assert_eq!(past_the_door(&[model(), ring]).len(), 1);
    let inner = at("models.rs", "#![cfg(loom)] use loom::thread;");
    assert_eq!(past_the_door(&[inner]).len(), 0);
    // The door itself and other crates are not this check's business.
    let elsewhere = [
        source(DOOR, "use std::sync::Arc;"),
        source("holoflow-cpu/src/lib.rs", "use std::sync::Arc;"),
    ];
    assert_eq!(past_the_door(&elsewhere).len(), 0);
}

#[test]
fn a_missing_forbid_is_found() {
    let check = |path: &str, text: &str| {
        let good = source("holoflow-cpu/src/lib.rs", "//! x\n#![forbid(unsafe_code)]");
        let mut sources = vec![source(path, text)];
        if path != good.path {
            sources.push(good);
        }
        missing_forbid(&sources).len()
    };
    let good = "//! x\n#![allow(a)]\n#![forbid(missing_docs, unsafe_code)]\nfn main() {}";
    assert_eq!(check("examples/a.rs", good), 0);
    assert_eq!(check("examples/a/main.rs", good), 0);
    assert_eq!(check("examples/a/part.rs", ""), 0);
    for planted in [
        "fn main() {}",
        "// #![forbid(unsafe_code)]",
        "#![deny(unsafe_code)]",
        "#[forbid(unsafe_code)] fn main() {}",
        "#![forbid(missing_docs)]",
        "const S: &str = \"#![forbid(unsafe_code)]\";",
    ] {
        assert_eq!(check("examples/a.rs", planted), 1, "{planted}");
        assert_eq!(check("examples/a/main.rs", planted), 1, "{planted}");
        assert_eq!(check("holoflow-cpu/src/lib.rs", planted), 1, "{planted}");
    }
    assert_eq!(missing_forbid(&[]).len(), 1);
}

#[test]
fn a_missing_head_comment_is_found() {
    let check = |path: &str, text: &str| missing_head(&[source(path, text)]).len();
    assert_eq!(check("x/src/a.rs", "//! What it is for.\n"), 0);
    assert_eq!(check("examples/a.rs", "fn main() {}"), 0);
    for planted in [
        "",
        "use std::fmt;",
        "// plain",
        "/// item",
        "use a;\n//! late",
    ] {
        assert_eq!(check("x/src/deep/a.rs", planted), 1, "{planted}");
        assert_eq!(check("src/lib.rs", planted), 1, "{planted}");
    }
}

#[test]
fn a_member_without_the_lints_is_found() {
    let root = "[workspace]\nmembers = [\n  \".\", # the root\n  \"a\",\n]\n\
                [package]\nname = \"r\"\n[lints]\nworkspace = true\n";
    let check =
        |member: &str| missing_lints(&[source("Cargo.toml", root), source("a/Cargo.toml", member)]);
    assert_eq!(check("[package]\n[lints]\nworkspace = true"), [""; 0]);
    assert_eq!(check("[package]\n[lints]\nworkspace=true # all"), [""; 0]);
    for planted in [
        "[package]",
        "[package]\n[lints]\n# workspace = true",
        "[package]\n[lints]\nworkspace = false",
        "[package]\n[lints.rust]\nworkspace = true",
        "[package]\nworkspace = true\n[lints]",
    ] {
        assert_eq!(
            check(planted),
            ["a/Cargo.toml: lacks `[lints] workspace = true`"],
            "{planted}"
        );
    }
    assert_eq!(
        missing_lints(&[source("Cargo.toml", root)]),
        ["a/Cargo.toml: is a member but is not there"]
    );
    assert_eq!(missing_lints(&[]).len(), 1);
    // A package that no list names still counts.
    let stray = [
        source("Cargo.toml", root),
        source("a/Cargo.toml", "[package]\n[lints]\nworkspace = true"),
        source("b/Cargo.toml", "[package]"),
    ];
    assert_eq!(missing_lints(&stray).len(), 1);
}
