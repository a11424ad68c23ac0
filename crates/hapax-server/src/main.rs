//! The binary `hapax`.

fn main() {}
