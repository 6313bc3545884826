//! What a turn changed: what was in the files that it was allowed to write, before each of them was, against what is in
//! them when it is over. What commands change is not known, nor what lies outside of the workspace.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use similar::TextDiff;

use super::{
    Workspace, blocking, files,
    place::{Ending, Place},
};

/// How many files of one turn are looked at.
const MAX_FILES: usize = 256;
/// How much of them is kept until its end, in bytes.
const MAX_KEPT_BYTES: usize = 16 * 1024 * 1024;
/// How long the smallest difference between two texts is searched for; then a larger one will do.
const PATIENCE: Duration = Duration::from_millis(200);

/// A file as it was at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    place: Place,
    /// `None`: there was none.
    text: Option<String>,
}

/// The files of one turn, as they were before it.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    before: BTreeMap<String, Sight>,
    bytes: usize,
}

impl Workspace {
    /// The files as they are now, those that are texts of this workspace and not too long.
    pub(crate) async fn look_at(self: &Arc<Self>, paths: Vec<String>) -> Vec<Sight> {
        if paths.is_empty() {
            return Vec::new();
        }
        let workspace = Arc::clone(self);
        let seen = blocking(move || {
            let places = paths.iter().take(MAX_FILES);
            let places = places.filter_map(|path| Place::find(&workspace.root, path, Ending::Followed).ok());
            Ok(places.filter_map(look).collect())
        });
        seen.await.unwrap_or_default()
    }
}

impl Changes {
    /// Remembers what is about to be written; what was remembered earlier counts.
    pub(crate) fn remember(&mut self, sights: Vec<Sight>) {
        for sight in sights {
            let bytes = sight.text.as_ref().map_or(0, String::len);
            if self.before.len() < MAX_FILES && self.bytes + bytes <= MAX_KEPT_BYTES {
                self.before.entry(sight.place.inside()).or_insert_with(|| {
                    self.bytes += bytes;
                    sight
                });
            }
        }
    }

    /// One diff of all of them, by name; empty: nothing is different.
    pub(crate) async fn diff(self) -> String {
        if self.before.is_empty() {
            return String::new();
        }
        let diffs = blocking(move || {
            let differences = self.before.iter().filter_map(|(name, before)| {
                let now = look(before.place.clone())?;
                difference(name, before.text.as_deref(), now.text.as_deref())
            });
            Ok(differences.collect())
        });
        diffs.await.unwrap_or_default()
    }
}

/// `None`: it is no text, or too long to be kept.
fn look(place: Place) -> Option<Sight> {
    let text = match files::bytes(&place) {
        Ok(bytes) => Some(String::from_utf8(bytes).ok()?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(_) => return None,
    };
    Some(Sight { place, text })
}

fn difference(name: &str, before: Option<&str>, now: Option<&str>) -> Option<String> {
    if before == now {
        return None;
    }
    let header =
        |side: char, text: Option<&str>| text.map_or_else(|| "/dev/null".to_owned(), |_| format!("{side}/{name}"));
    let diff = TextDiff::configure()
        .timeout(PATIENCE)
        .diff_lines(before.unwrap_or_default(), now.unwrap_or_default());
    let shown = diff
        .unified_diff()
        .header(&header('a', before), &header('b', now))
        .to_string();
    Some(format!("diff --git a/{name} b/{name}\n{shown}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use troupe_proto::common::v1::Sandbox;

    use super::{super::tests::workspace, *};

    #[tokio::test]
    async fn what_was_there_before_the_first_write_counts() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = workspace(&directory, Sandbox::WorkspaceWrite);
        let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
        fs::write(path("changed"), "one\ntwo\n").unwrap();
        fs::write(path("deleted"), "gone\n").unwrap();
        fs::write(path("same"), "same\n").unwrap();
        fs::write(path("binary"), [0xff, 0xfe]).unwrap();
        let all = ["changed", "deleted", "new", "same", "binary"].map(path);

        let mut changes = Changes::default();
        changes.remember(workspace.look_at(all.to_vec()).await);
        fs::write(path("changed"), "one\nhalf way\n").unwrap();
        changes.remember(workspace.look_at(vec![path("changed")]).await);
        fs::write(path("changed"), "one\nthree\n").unwrap();
        fs::remove_file(path("deleted")).unwrap();
        fs::write(path("new"), "here\n").unwrap();
        fs::write(path("binary"), [0xff]).unwrap();
        let expected = "\
diff --git a/changed b/changed
--- a/changed
+++ b/changed
@@ -1,2 +1,2 @@
 one
-two
+three
diff --git a/deleted b/deleted
--- a/deleted
+++ /dev/null
@@ -1 +0,0 @@
-gone
diff --git a/new b/new
--- /dev/null
+++ b/new
@@ -0,0 +1 @@
+here
";
        assert_eq!(changes.diff().await, expected);
    }

    #[tokio::test]
    async fn nothing_outside_is_looked_at() {
        let outer = tempfile::tempdir().unwrap();
        let directory = tempfile::tempdir_in(outer.path()).unwrap();
        let secret = outer.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        std::os::unix::fs::symlink(&secret, directory.path().join("link")).unwrap();
        let workspace = workspace(&directory, Sandbox::WorkspaceWrite);
        let paths = ["link", "../secret", secret.to_str().unwrap(), "."].map(str::to_owned);
        assert_eq!(workspace.look_at(paths.to_vec()).await, []);

        // A link that comes later leads nowhere either.
        let mut changes = Changes::default();
        changes.remember(workspace.look_at(vec!["later".to_owned()]).await);
        std::os::unix::fs::symlink(&secret, directory.path().join("later")).unwrap();
        assert_eq!(changes.diff().await, "");
    }

    #[tokio::test]
    async fn so_many_files_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = workspace(&directory, Sandbox::WorkspaceWrite);
        let mut changes = Changes::default();
        for number in 0..=MAX_FILES {
            changes.remember(workspace.look_at(vec![format!("f{number}")]).await);
        }
        assert_eq!(changes.before.len(), MAX_FILES);
    }
}
