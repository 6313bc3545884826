//! Determines the changes that tools made to files in a turn: compares the content of each file before its first write
//! with its content at the end of the turn. Snapshots cover changes by commands. Files outside of the workspace are not
//! tracked.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use similar::TextDiff;

use super::{
    Workspace, blocking, files,
    place::{FinalLink, Place},
};

/// Maximum number of tracked files per turn.
const MAX_FILES: usize = 256;
/// Maximum total size of the stored content of these files, in bytes.
const MAX_STORED_BYTES: usize = 16 * 1024 * 1024;
/// Maximum size of a diff, in bytes: the limit of a thread's artifact.
pub(crate) const MAX_DIFF_BYTES: usize = 15 * 1024 * 1024;
/// Time limit for finding minimal differences in all texts of a turn. After that, larger differences are accepted.
const DIFF_TIMEOUT: Duration = Duration::from_secs(5);

/// The content of a file at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileContent {
    place: Place,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// The file does not exist.
    Nothing,
    Text(String),
    /// The file is not text, too long, or unreadable. Such a file is not in the diff.
    Unknown,
}

/// The original content of the files that were changed in one turn.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    before: BTreeMap<String, FileContent>,
    bytes: usize,
}

impl Workspace {
    /// Returns the current content of these files.
    pub(crate) async fn read_files(self: &Arc<Self>, paths: Vec<String>) -> Vec<FileContent> {
        if paths.is_empty() {
            return Vec::new();
        }
        let workspace = Arc::clone(self);
        let seen = blocking(move || {
            let places = paths.iter().take(MAX_FILES);
            let places = places.filter_map(|path| Place::find(&workspace.root, path, FinalLink::Followed).ok());
            Ok(places.map(content_of).collect())
        });
        seen.await.unwrap_or_default()
    }
}

impl Changes {
    /// Stores the content of files before a write. Does not replace content that was stored earlier.
    pub(crate) fn remember(&mut self, files: Vec<FileContent>) {
        for mut file in files {
            let name = file.place.inside();
            if self.before.len() >= MAX_FILES || self.before.contains_key(&name) {
                continue;
            }
            let bytes = match &file.content {
                Content::Text(text) => text.len(),
                Content::Nothing | Content::Unknown => 0,
            };
            // The file is recorded without its content, so that content after the write is not mistaken for the
            // original content.
            if self.bytes + bytes > MAX_STORED_BYTES {
                file.content = Content::Unknown;
            } else {
                self.bytes += bytes;
            }
            self.before.insert(name, file);
        }
    }

    /// Returns one diff of all files except `names`, within the limits of time and size. Empty if nothing differs.
    pub(crate) async fn diff_without(mut self, names: &BTreeSet<String>) -> String {
        self.before.retain(|name, _| !names.contains(name));
        if self.before.is_empty() {
            return String::new();
        }
        let diffs = blocking(move || Ok(self.diff_now()));
        diffs.await.unwrap_or_default()
    }

    fn diff_now(&self) -> String {
        let deadline = Instant::now() + DIFF_TIMEOUT;
        let (mut whole, mut left_out) = (String::new(), 0_u32);
        for (name, before) in &self.before {
            let now = content_of(before.place.clone());
            if before.content == now.content {
                continue;
            }
            let shown = difference(name, &before.content, &now.content, deadline);
            match shown.filter(|shown| whole.len() + shown.len() <= MAX_DIFF_BYTES) {
                Some(shown) => whole.push_str(&shown),
                None => left_out += 1,
            }
        }
        if left_out > 0 {
            // This line is not part of the diff format, so tools that apply the diff skip it.
            whole.push_str(&format!("[{left_out} more files changed that are not shown]\n"));
        }
        whole
    }
}

fn content_of(place: Place) -> FileContent {
    let content = match files::bytes(&place) {
        Ok(bytes) => String::from_utf8(bytes).map_or(Content::Unknown, Content::Text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Content::Nothing,
        Err(_) => Content::Unknown,
    };
    FileContent { place, content }
}

/// Returns a file's diff. `None`: one of the contents is unknown, or the deadline has passed.
fn difference(name: &str, before: &Content, now: &Content, deadline: Instant) -> Option<String> {
    let side = |letter: char, content: &Content| match content {
        Content::Nothing => Some((String::new(), "/dev/null".to_owned())),
        Content::Text(text) => Some((text.clone(), format!("{letter}/{name}"))),
        Content::Unknown => None,
    };
    let ((old, old_name), (new, new_name)) = (side('a', before)?, side('b', now)?);
    if deadline <= Instant::now() {
        return None;
    }
    let diff = TextDiff::configure().deadline(deadline).diff_lines(&old, &new);
    let shown = diff.unified_diff().header(&old_name, &new_name).to_string();
    Some(format!("diff --git a/{name} b/{name}\n{shown}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use troupe_proto::common::v1::Sandbox;

    use super::{super::tests::workspace, *};

    #[tokio::test]
    async fn diff_starts_at_content_before_first_write() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = workspace(&directory, Sandbox::WorkspaceWrite);
        let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
        fs::write(path("changed"), "one\ntwo\n").unwrap();
        fs::write(path("deleted"), "gone\n").unwrap();
        fs::write(path("same"), "same\n").unwrap();
        fs::write(path("binary"), [0xff, 0xfe]).unwrap();
        let all = ["changed", "deleted", "new", "same", "binary"].map(path);

        let mut changes = Changes::default();
        changes.remember(workspace.read_files(all.to_vec()).await);
        fs::write(path("changed"), "one\nhalf way\n").unwrap();
        changes.remember(workspace.read_files(vec![path("changed")]).await);
        fs::write(path("changed"), "one\nthree\n").unwrap();
        fs::remove_file(path("deleted")).unwrap();
        fs::write(path("new"), "here\n").unwrap();
        // A file that was not text before the turn is omitted, even if it is text at the end.
        fs::write(path("binary"), "text").unwrap();
        changes.remember(workspace.read_files(vec![path("binary")]).await);
        fs::write(path("binary"), "other text").unwrap();
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
[1 more files changed that are not shown]
";
        assert_eq!(changes.diff_without(&BTreeSet::new()).await, expected);
    }

    #[tokio::test]
    async fn file_outside_workspace_is_not_read() {
        let outer = tempfile::tempdir().unwrap();
        let directory = tempfile::tempdir_in(outer.path()).unwrap();
        let secret = outer.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        std::os::unix::fs::symlink(&secret, directory.path().join("link")).unwrap();
        let workspace = workspace(&directory, Sandbox::WorkspaceWrite);
        let paths = ["link", "../secret", secret.to_str().unwrap(), "."].map(str::to_owned);
        let seen = workspace.read_files(paths.to_vec()).await;
        assert!(seen.iter().all(|file| file.content == Content::Unknown), "{seen:?}");

        // A link that is created later is not followed either.
        let mut changes = Changes::default();
        changes.remember(workspace.read_files(vec!["later".to_owned()]).await);
        std::os::unix::fs::symlink(&secret, directory.path().join("later")).unwrap();
        assert!(!changes.diff_without(&BTreeSet::new()).await.contains("secret"));
    }

    #[tokio::test]
    async fn number_of_stored_files_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = workspace(&directory, Sandbox::WorkspaceWrite);
        let mut changes = Changes::default();
        for number in 0..=MAX_FILES {
            changes.remember(workspace.read_files(vec![format!("f{number}")]).await);
        }
        assert_eq!(changes.before.len(), MAX_FILES);
    }
}
