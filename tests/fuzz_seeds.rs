//! Runs every seed of the fuzz targets through what the targets do, so that the code of the
//! targets is compiled and the seeds are what their names say, without a fuzzer.
//!
//! A seed that a fuzzer found belongs here: put it into the folder under a name that begins
//! with how far it comes.

use std::path::Path;

use fuzz::graph_json::{Reached, graph_json, registry};

#[path = "../fuzz/src"]
mod fuzz {
    #[allow(unreachable_pub, reason = "public in the crate of the fuzz targets")]
    pub(crate) mod graph_json;
}

#[test]
fn every_seed_comes_as_far_as_its_name_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/graph_json");
    let registry = registry();
    let (mut counts, mut wrong) = ([0; 3], Vec::new());
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let expected = match name.split('_').next() {
            Some("plan") => Reached::Plan,
            Some("graph") => Reached::Graph,
            Some("nothing") => Reached::Nothing,
            _ => panic!("{name}: begins with none of `plan_`, `graph_`, `nothing_`"),
        };
        // Shown if it panics.
        println!("{name}");
        let found = graph_json(&registry, &std::fs::read(&path).unwrap());
        counts[found as usize] += 1;
        if found != expected {
            wrong.push(format!("{name}: came to {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n  {}\n", wrong.join("\n  "));
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}
