//! Embeds the files of the web console from `console/dist`, if they are built. Building Troupe does not need Node.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    env,
    error::Error,
    fmt::Write as _,
    fs,
    hash::Hasher as _,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn Error>> {
    let console = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../console");
    let dist = console.join("dist");
    // Cargo runs this script on every build if the observed path does not exist. Without `dist`, the script observes
    // the parent directory, which changes when `dist` is built.
    let observed = [&dist, &console].into_iter().find(|path| path.is_dir());
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(observed) = observed {
        println!("cargo::rerun-if-changed={}", observed.display());
    }

    let mut files = BTreeMap::new();
    if dist.is_dir() {
        collect(&dist, "", &mut files)?;
    }
    // The compiler reads copies, so that another build of the page cannot change the files while they are compiled.
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut code = String::from("pub(super) static ASSETS: &[Asset] = &[\n");
    for (number, (url, content)) in files.iter().enumerate() {
        let mut hasher = DefaultHasher::new();
        hasher.write(content);
        let etag = format!("\"{:016x}\"", hasher.finish());
        let copy = out.join(format!("console_asset_{number}"));
        fs::write(&copy, content)?;
        writeln!(
            code,
            "    Asset {{ path: {url:?}, etag: {etag:?}, bytes: include_bytes!({copy:?}) }},"
        )?;
    }
    code.push_str("];\n");
    fs::write(out.join("console_assets.rs"), code)?;
    Ok(())
}

/// Reads the files of a directory, by their URL paths. Source maps are left out: they are larger than the page.
fn collect(directory: &Path, url: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or("a file name is not UTF-8")?;
        let url = format!("{url}/{name}");
        if path.is_dir() {
            collect(&path, &url, files)?;
        } else if !name.starts_with('.') && !name.ends_with(".map") {
            files.insert(url, fs::read(&path)?);
        }
    }
    Ok(())
}
