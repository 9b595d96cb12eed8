//! The text of plans, compared with files.
//!
//! The files are written anew with `HOLOFLOW_BLESS=1`.

use std::path::PathBuf;

use super::kit::{device_sync, graph, registry};
use crate::compiler::Compiler;

/// Compares the plan of `text` with the file `name`.
#[track_caller]
fn compare(name: &str, text: &str) {
    let mut registry = registry();
    registry.register_sync("Copy", device_sync()).unwrap();
    let plan = Compiler::new(&registry)
        .plan(&graph(text))
        .unwrap_or_else(|errors| panic!("{errors}"))
        .to_string();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("src/compiler/tests/plans")
        .join(format!("{name}.txt"));
    if std::env::var_os("HOLOFLOW_BLESS").is_some() {
        std::fs::write(&path, &plan).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        plan, expected,
        "{name} has changed; if that is meant, write it with HOLOFLOW_BLESS=1"
    );
}

#[test]
fn an_empty_graph() {
    compare("empty", "");
}

#[test]
fn a_camera_a_queue_and_a_display() {
    compare(
        "linear",
        "camera = S[out=U8:480,640]
         queue = Q camera
         display = S[out=0] queue",
    );
}

#[test]
fn in_place_nodes_share_a_storage() {
    compare(
        "in_place",
        "< frame F32:4,4
         load = S[out=F32:4,4] <frame
         row = S[view=0:0 out=F32:4+16] load
         peak = S[out=F32:1] row
         scale = S[over=0:0] load
         > image scale
         > peak peak",
    );
}

#[test]
fn copies_and_why() {
    compare(
        "copies",
        "camera = A[own_out=0 out=U8:480,640]
         record = Q[out=U8:480,640] camera
         file = S[out=0] record
         flip = S[over=0:0] camera
         mix = S[ins=2] camera flip
         > live mix
         > raw camera",
    );
}

#[test]
fn a_device_between_two_queues() {
    compare(
        "device",
        "camera = S[out=U16:1024]
         upload = DA[in=U16:1024 out=F32:1024@Device own_in=0] camera
         fft = DS[out=CF32:513@Device] upload
         power = DS[out=F32:513@Device] fft
         smooth = DS[over=0:0] power
         download = DA[out=F32:513@HostPinned own_out=0] smooth
         plot = S[out=0] download",
    );
}

#[test]
fn a_diamond_with_a_relay() {
    compare(
        "diamond",
        "source = S
         fast = Q[flow=1/0/8] source
         slow = A[flow=1/3/4] source
         later = Q[flow=1/0/4] slow
         x = S[skip] fast
         y = S later
         add = S[ins=1] x
         other = S[ins=1 out=2] y",
    );
}
