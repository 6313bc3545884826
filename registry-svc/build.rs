//! The templates are embedded by a macro that cargo cannot see through; without this a changed one would not be built.

fn main() {
    println!("cargo::rerun-if-changed=../templates");
}
