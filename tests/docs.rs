//! What `cargo test` is to check in the documentation, and would pass over without a word:
//!
//! 1. the README and every page of `docs/` are doctests of the facade (`src/doctests.rs`);
//! 2. no block is excused from compiling or running;
//! 3. a block of JSON is JSON, and a graph file if it has nodes, without errors or warnings;
//! 4. links between pages lead somewhere;
//! 5. an example with tests has `test = true` in the manifest, without which they never run.
//!
//! Each check is a function over text, and has a test that plants what it must find.

use std::fs;
use std::path::{Path, PathBuf};

use holoflow::compiler::Compiler;
use holoflow::graph::GraphSpec;
use holoflow::registry::Registry;

/// A file: its path from the root, with `/`, and its text.
struct Page {
    path: String,
    text: String,
}

#[test]
fn every_page_is_a_doctest() {
    let pages = pages();
    assert!(pages.len() > 5, "the walk misses pages");
    clean(missing(&pages, &read("src/doctests.rs")));
}

#[test]
fn no_block_is_excused() {
    clean(excused(&pages()));
}

#[test]
fn blocks_of_json_are_what_they_seem() {
    let pages = pages();
    let graphs = pages
        .iter()
        .flat_map(json_blocks)
        .filter(|(_, text)| text.contains("\"nodes\""));
    assert!(graphs.count() > 1, "the walk misses graph files");
    clean(wrong_json(&pages));
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut pages = pages();
    pages.push(page("CONTRIBUTING.md".to_owned()));
    let root = root();
    clean(dead_links(&pages, &|path| root.join(path).exists()));
}

#[test]
fn tests_in_examples_are_run() {
    let examples: Vec<_> = files("examples", ".rs").into_iter().map(page).collect();
    assert!(!examples.is_empty(), "no example found");
    clean(unrun(&examples, &read("Cargo.toml")));
}

// ---------------------------------------------------------------------------------------
// The checks

fn missing(pages: &[Page], doctests: &str) -> Vec<String> {
    let absent = |page: &&Page| !doctests.contains(&format!("include_str!(\"../{}\")", page.path));
    pages
        .iter()
        .filter(absent)
        .map(|page| format!("{}: is not in src/doctests.rs", page.path))
        .collect()
}

fn excused(pages: &[Page]) -> Vec<String> {
    let mut findings = Vec::new();
    for page in pages {
        let fences = (1..).zip(page.text.lines()).filter_map(|(number, line)| {
            let words = line.trim_start().strip_prefix("```")?;
            Some((number, words))
        });
        // Every second fence closes a block.
        for (number, words) in fences.step_by(2) {
            let word = words.split(',').next().unwrap_or_default();
            let fine = match word {
                "rust" | "text" | "sh" | "json" | "toml" => word == words,
                "compile_fail" => words
                    .strip_prefix("compile_fail,E")
                    .is_some_and(|code| code.len() == 4),
                _ => false,
            };
            if !fine {
                findings.push(format!("{}:{number}: a block of `{words}`", page.path));
            }
        }
    }
    findings
}

/// Each block of JSON with the line that opens it.
fn json_blocks(page: &Page) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Vec<&str>)> = None;
    for (number, line) in (1..).zip(page.text.lines()) {
        open = match (open, line.trim()) {
            (None, "```json") => Some((number, Vec::new())),
            (None, _) => None,
            (Some((number, lines)), "```") => {
                blocks.push((number, lines.join("\n")));
                None
            }
            (Some((number, mut lines)), _) => {
                lines.push(line);
                Some((number, lines))
            }
        };
    }
    blocks
}

fn wrong_json(pages: &[Page]) -> Vec<String> {
    let mut registry = Registry::new();
    holoflow::cpu::register_all(&mut registry).expect("no kind is there twice");
    let mut findings = Vec::new();
    for page in pages {
        for (number, text) in json_blocks(page) {
            let wrong = match serde_json::from_str::<serde_json::Value>(&text) {
                Err(error) => error.to_string(),
                Ok(value) if value.get("nodes").is_none() => continue,
                Ok(_) => match GraphSpec::from_json_str(&text) {
                    Err(errors) => errors.to_string(),
                    Ok((_, warnings)) if !warnings.is_empty() => warnings[0].to_string(),
                    Ok((graph, _)) => match Compiler::new(&registry).plan(&graph) {
                        Err(errors) => errors.to_string(),
                        Ok(_) => continue,
                    },
                },
            };
            findings.push(format!("{}:{number}: {wrong}", page.path));
        }
    }
    findings
}

fn dead_links(pages: &[Page], exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for page in pages {
        let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for link in page.text.split("](").skip(1) {
            let link = link.split([')', '#']).next().unwrap_or_default();
            if link.is_empty() || link.contains("://") {
                continue;
            }
            let mut parts: Vec<_> = folder.split('/').filter(|part| !part.is_empty()).collect();
            for part in link.split('/') {
                match part {
                    ".." => drop(parts.pop()),
                    part => parts.push(part),
                }
            }
            if !exists(&parts.join("/")) {
                findings.push(format!(
                    "{}: a link to {link}, which is not there",
                    page.path
                ));
            }
        }
    }
    findings
}

fn unrun(examples: &[Page], manifest: &str) -> Vec<String> {
    let entries: Vec<_> = manifest.split("[[example]]").skip(1).collect();
    let run = |name: &str| {
        entries.iter().any(|entry| {
            let lines: Vec<_> = entry.lines().take_while(|l| !l.starts_with('[')).collect();
            lines.contains(&&*format!("name = \"{name}\"")) && lines.contains(&"test = true")
        })
    };
    examples
        .iter()
        .filter(|example| example.text.contains("#[test]"))
        .filter_map(|example| {
            let name = example.path.rsplit('/').next()?.strip_suffix(".rs")?;
            (!run(name)).then(|| format!("{}: its tests are not run", example.path))
        })
        .collect()
}

fn clean(findings: Vec<String>) {
    assert!(findings.is_empty(), "\n  {}\n", findings.join("\n  "));
}

// ---------------------------------------------------------------------------------------
// Reading files

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn page(path: String) -> Page {
    let text = read(&path);
    Page { path, text }
}

/// The README and everything under `docs/`.
fn pages() -> Vec<Page> {
    let mut paths = files("docs", ".md");
    paths.push("README.md".to_owned());
    paths.into_iter().map(page).collect()
}

/// Files under `folder` whose name ends so, as paths from the root.
fn files(folder: &str, end: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder));
    let mut found = Vec::new();
    for entry in entries.unwrap_or_else(|error| panic!("{folder}: {error}")) {
        let entry = entry.unwrap_or_else(|error| panic!("{folder}: {error}"));
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        if Path::is_dir(&entry.path()) {
            found.extend(files(&path, end));
        } else if name.ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    found
}

// ---------------------------------------------------------------------------------------
// Tests of the checks: each finds what is planted

fn planted(path: &str, text: &str) -> [Page; 1] {
    [Page {
        path: path.to_owned(),
        text: text.to_owned(),
    }]
}

#[test]
fn a_forgotten_page_is_found() {
    let page = planted("docs/a.md", "");
    let named = "#[doc = include_str!(\"../docs/a.md\")]\nmod a {}";
    assert_eq!(missing(&page, named).len(), 0);
    assert_eq!(missing(&page, "").len(), 1);
    assert_eq!(missing(&planted("a.md", ""), named).len(), 1);
}

#[test]
fn an_excused_block_is_found() {
    let found = |words: &str| excused(&planted("a.md", &format!("```{words}\nx\n```\n"))).len();
    for fine in ["rust", "text", "sh", "json", "toml", "compile_fail,E0502"] {
        assert_eq!(found(fine), 0, "{fine}");
    }
    for bad in ["", "rust,no_run", "ignore", "rust,ignore", "compile_fail"] {
        assert_eq!(found(bad), 1, "{bad}");
    }
}

#[test]
fn wrong_json_is_found() {
    let found = |json: &str| wrong_json(&planted("a.md", &format!("x\n```json\n{json}\n```\n")));
    assert_eq!(found("{ \"nodes\": {} }"), [""; 0]);
    assert_eq!(found("{ \"other\": 1 }"), [""; 0]);
    assert_eq!(found("{ nodes }").len(), 1);
    assert_eq!(found("{ \"nodes\": [] }").len(), 1);
    assert_eq!(
        found("{ \"nodes\": {}, \"edge\": [] }"),
        ["a.md:2: edge: unknown key, which is ignored: did you mean `edges`?"]
    );
    assert_eq!(
        found("{ \"nodes\": { \"a\": { \"type\": \"A\" } } }"),
        ["a.md:2: nodes.a.type: no task of kind `A` is registered"]
    );
}

#[test]
fn a_dead_link_is_found() {
    let exists = |path: &str| path == "docs/b.md";
    let found = |link: &str| {
        let text = format!("see [there]({link}).");
        dead_links(&planted("docs/guide/a.md", &text), &exists).len()
    };
    assert_eq!(found("../b.md"), 0);
    assert_eq!(found("../b.md#part"), 0);
    assert_eq!(found("#part"), 0);
    assert_eq!(found("https://example.org/"), 0);
    assert_eq!(found("b.md"), 1);
}

#[test]
fn an_example_whose_tests_do_not_run_is_found() {
    let example = planted("examples/a.rs", "#[test]\nfn f() {}");
    let found = |manifest: &str| unrun(&example, manifest).len();
    assert_eq!(found("[[example]]\nname = \"a\"\ntest = true\n"), 0);
    assert_eq!(found(""), 1);
    assert_eq!(
        found("[[example]]\nname = \"a\"\n[[test]]\ntest = true\n"),
        1
    );
    assert_eq!(found("[[example]]\nname = \"b\"\ntest = true\n"), 1);
    assert_eq!(
        unrun(&planted("examples/a.rs", "fn main() {}"), "").len(),
        0
    );
}
