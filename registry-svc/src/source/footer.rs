//! Finds the system footer: nearest project directory first, then the home. The caller falls back to the embedded one.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use svc_kit::stamp::Stamp;

use crate::{
    domain::{
        diagnostic::{Diagnostic, Finding},
        finding_kind::FindingKind,
    },
    source::{
        boundary::{Boundary, HiddenDirectories},
        cache::StampedCache,
        read,
        tracker::Scan,
        walk::Project,
    },
};

/// The directory of footers in a project and in a home.
pub(crate) const DIRECTORY: &str = ".codex/collab";
/// The name of the footer's file.
pub(crate) const FILE: &str = "codex_system_footer.md";

/// Reads and caches footers.
#[derive(Debug, Default)]
pub(crate) struct Footers {
    hidden: HiddenDirectories,
    /// The key includes the boundary, which determines whether a link is followed.
    files: StampedCache<(PathBuf, Boundary), Result<Arc<str>, String>>,
}

impl Footers {
    /// Creates an empty cache. Hidden directories are never read.
    #[must_use]
    pub(crate) fn new(hidden: HiddenDirectories) -> Self {
        Self {
            hidden,
            ..Self::default()
        }
    }

    /// Returns the first readable footer, and findings about the unreadable footers before it. A blank footer is
    /// returned too, and disables the footer.
    #[must_use]
    pub(crate) fn find(
        &self,
        project: Option<&Project>,
        home: Option<&Path>,
        scan: &mut Scan<'_>,
    ) -> (Option<Arc<str>>, Vec<Diagnostic>) {
        let of_project = project.into_iter().flat_map(|project| {
            let directories = project.directories.iter().map(PathBuf::as_path);
            directories.map(move |directory| (directory, project.top.as_path()))
        });
        let mut notes = Vec::new();
        for (base, bounds) in of_project.chain(home.map(|home| (home, home))) {
            let path = base.join(DIRECTORY).join(FILE);
            match self.read(&path, Boundary::around(bounds, &self.hidden), scan) {
                Some(Ok(text)) => return (Some(text), notes),
                Some(Err(why)) => notes.push(note(&path, &why)),
                None => {}
            }
        }
        (None, notes)
    }

    fn read(&self, path: &Path, boundary: Boundary, scan: &mut Scan<'_>) -> Option<Result<Arc<str>, String>> {
        let is_link = fs::symlink_metadata(path).ok()?.is_symlink();
        let metadata = read::metadata(path, is_link, scan).ok()?;
        let key = (path.to_owned(), boundary);
        let footer = self.files.get(key, Stamp::of(&metadata), |(path, boundary)| {
            read::text(path, boundary)
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
        finding: Finding::error(
            FindingKind::Unreadable,
            None,
            format!("this system footer is not used: {why}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{temp_tree::TempTree, tracker::ChangeTracker};

    #[test]
    fn nearest_readable_footer_wins() {
        let tree = TempTree::new(&["root/near", "home"]);
        let (root, near, home) = (tree.at("root"), tree.at("root/near"), tree.at("home"));
        let project = Project {
            directories: vec![near.clone(), root.clone()],
            top: root.clone(),
        };
        let (footers, tracker) = (Footers::default(), ChangeTracker::default());
        let find = || {
            let (text, notes) = footers.find(Some(&project), Some(&home), &mut tracker.scan());
            (text.as_deref().map(str::to_owned), notes.len())
        };
        let write = |base: &str, text: &[u8]| tree.write(&format!("{base}/{DIRECTORY}/{FILE}"), text);
        assert_eq!(find(), (None, 0));
        write("home", b"user");
        assert_eq!(find(), (Some("user".to_owned()), 0));
        write("root", b"root");
        assert_eq!(find(), (Some("root".to_owned()), 0));
        write("root/near", b"\n");
        assert_eq!(find(), (Some("\n".to_owned()), 0));
        write("root/near", b"\xff");
        assert_eq!(find(), (Some("root".to_owned()), 1));
    }
}
