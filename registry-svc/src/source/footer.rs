//! Finds the system footer: project, nearest first, then user; the embedded one is the caller's last resort.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use svc_kit::stamp::Stamp;

use crate::{
    domain::diagnostic::{Diagnostic, Finding},
    source::{
        cache::StampedCache,
        read,
        walk::Project,
        wall::{Hidden, Wall},
        witness::Look,
    },
};

/// Where footers lie in a project and in a home.
pub(crate) const DIRECTORY: &str = ".codex/collab";
/// The footer's file.
pub(crate) const FILE: &str = "codex_system_footer.md";

/// Reads and caches footers.
#[derive(Debug, Default)]
pub(crate) struct Footers {
    hidden: Hidden,
    /// The key includes the wall, which determines whether a link is followed.
    files: StampedCache<(PathBuf, Wall), Result<Arc<str>, String>>,
}

impl Footers {
    /// Footers none of which was read, from nothing that is hidden.
    #[must_use]
    pub(crate) fn new(hidden: Hidden) -> Self {
        Self {
            hidden,
            ..Self::default()
        }
    }

    /// Returns the first readable footer, and findings about unreadable ones before it. A blank footer counts and
    /// disables the footer.
    #[must_use]
    pub(crate) fn find(
        &self,
        project: Option<&Project>,
        home: Option<&Path>,
        look: &mut Look<'_>,
    ) -> (Option<Arc<str>>, Vec<Diagnostic>) {
        let of_project = project.into_iter().flat_map(|project| {
            let directories = project.directories.iter().map(PathBuf::as_path);
            directories.map(move |directory| (directory, project.top.as_path()))
        });
        let mut notes = Vec::new();
        for (base, bounds) in of_project.chain(home.map(|home| (home, home))) {
            let path = base.join(DIRECTORY).join(FILE);
            match self.read(&path, Wall::around(bounds, &self.hidden), look) {
                Some(Ok(text)) => return (Some(text), notes),
                Some(Err(why)) => notes.push(note(&path, &why)),
                None => {}
            }
        }
        (None, notes)
    }

    fn read(&self, path: &Path, wall: Wall, look: &mut Look<'_>) -> Option<Result<Arc<str>, String>> {
        let is_link = fs::symlink_metadata(path).ok()?.is_symlink();
        let metadata = read::metadata(path, is_link, look).ok()?;
        let key = (path.to_owned(), wall);
        let footer = self.files.get(key, Stamp::of(&metadata), |(path, wall)| {
            read::text(path, wall)
                .map(|text| clean(&text))
                .map_err(|refused| refused.to_string())
        });
        Some(Result::clone(&footer))
    }
}

/// Normalises a footer's text, independent of the editor that wrote it.
pub(crate) fn clean(text: &str) -> Arc<str> {
    text.strip_prefix('\u{feff}')
        .unwrap_or(text)
        .replace("\r\n", "\n")
        .into()
}

/// Returns a finding about a footer that is not used.
pub(crate) fn note(path: &Path, why: &str) -> Diagnostic {
    Diagnostic {
        path: path.display().to_string(),
        dialect: None,
        finding: Finding::error(None, format!("this system footer is not used: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::witness::Witness;

    fn write(base: &Path, text: &[u8]) {
        fs::create_dir_all(base.join(DIRECTORY)).unwrap();
        fs::write(base.join(DIRECTORY).join(FILE), text).unwrap();
    }

    #[test]
    fn the_nearest_readable_footer_wins_and_a_blank_one_counts() {
        let guard = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(guard.path()).unwrap();
        let (root, near, home) = (base.join("root"), base.join("root/near"), base.join("home"));
        for directory in [&near, &home] {
            fs::create_dir_all(directory).unwrap();
        }
        let project = Project {
            directories: vec![near.clone(), root.clone()],
            top: root.clone(),
        };
        let (footers, witness) = (Footers::default(), Witness::default());
        let find = || {
            let (text, notes) = footers.find(Some(&project), Some(&home), &mut witness.look());
            (text.as_deref().map(str::to_owned), notes.len())
        };
        assert_eq!(find(), (None, 0));
        write(&home, b"user");
        assert_eq!(find(), (Some("user".to_owned()), 0));
        write(&root, b"root");
        assert_eq!(find(), (Some("root".to_owned()), 0));
        write(&near, b"\n");
        assert_eq!(find(), (Some("\n".to_owned()), 0));
        write(&near, b"\xff");
        assert_eq!(find(), (Some("root".to_owned()), 1));
    }
}
