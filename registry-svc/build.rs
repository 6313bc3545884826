//! Cargo does not track files that a macro embeds. Without this script, a changed template would not cause a rebuild.

fn main() {
    println!("cargo::rerun-if-changed=../templates");
}
