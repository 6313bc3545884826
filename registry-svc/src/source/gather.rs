//! Gathers the template files for a working directory as a bundle, for a registry on another machine. The bundle has
//! the files that a registry on this machine would read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    slice,
};

use svc_kit::paths;

use crate::{
    domain::{
        diagnostic::{Diagnostic, Finding},
        digest::Digest,
        error::RegistryError,
        family::Family,
        finding_kind::FindingKind,
        foreign::ForeignFormat,
        template::Scope,
    },
    source::{
        boundary::{Boundary, HiddenDirectories},
        bundle::{self, Upload},
        directory::{self, Location, TemplateDirectory},
        footer, locations, read,
        walk::{self, Project},
    },
};

/// Content that is uploaded in place of an unreadable template. It is not valid text, so the name stays reserved by a
/// template that cannot be spawned, as in a registry that reads the disk. Omitting the file would expose the templates
/// that it shadows.
const UNREADABLE: &[u8] = b"\0";

/// The template files of a project and a user, as PutWorkspace takes them.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// The files, in order of scope and path.
    pub files: Vec<Upload>,
    /// The digest by which a registry of this release identifies the bundle.
    pub digest: Digest,
    /// Files that are not uploaded as they are on disk, with the reasons.
    pub findings: Vec<Diagnostic>,
}

/// Gathers the templates and footers that apply to `cwd`: those of the project between `cwd` and `root`, and those of
/// `home`. The client does not know which other programs' agents the registry imports, so the agents of all supported
/// programs are included. Data directories are excluded. Blocks on the disk.
///
/// # Errors
///
/// If `cwd` is relative, does not exist, or does not lie in `root`, or if there are more files or bytes than a bundle
/// may have.
pub fn gather(cwd: &str, root: &Path, home: Option<&Path>) -> Result<Gathered, RegistryError> {
    let root = fs::canonicalize(root).map_err(|_| RegistryError::CwdNotFound { cwd: cwd.to_owned() })?;
    let project = walk::project(cwd, &[root], None)?;
    let home = home.and_then(|home| fs::canonicalize(home).ok());
    let hidden = HiddenDirectories::new(paths::known_data_dirs());
    let mut builder = BundleBuilder::default();
    // Each format is gathered as if it were the only imported one. A link can make two directories identical, and only
    // the registry knows which of the two formats takes precedence.
    for format in ForeignFormat::ALL {
        for location in locations(Some(&project), home.as_deref(), slice::from_ref(format), &hidden) {
            let base = match location.directory.scope {
                Scope::Project => Some(project.top.as_path()),
                Scope::User | Scope::System => home.as_deref(),
            };
            if let Some(within) = base.and_then(|base| location.at.strip_prefix(base).ok()) {
                builder.add_directory(&location, within);
            }
        }
    }
    builder.add_footers(&project, home.as_deref(), &hidden);
    builder.finish()
}

/// Builds a bundle.
#[derive(Debug, Default)]
struct BundleBuilder {
    seen: BTreeSet<(PathBuf, Family)>,
    files: BTreeMap<(Scope, String), Vec<u8>>,
    findings: Vec<Diagnostic>,
}

impl BundleBuilder {
    /// Adds the templates of a location. `within` is its path in the project or the home.
    fn add_directory(&mut self, location: &Location, within: &Path) {
        let TemplateDirectory { path, boundary, .. } = &location.directory;
        if !path.is_dir() || !self.seen.insert((location.at.clone(), location.family)) {
            return;
        }
        if !boundary.contains(path) {
            return self.note(path, &read::Unreadable::OutsideBoundary.to_string());
        }
        match directory::candidates(location, |folder| Some(Box::new(directory::list(folder)))) {
            Ok(files) => {
                for file in files {
                    if location.family.stem(&file.below.to_string_lossy()).is_some() {
                        self.add_template(location, within, &file.below);
                    }
                }
            }
            Err((path, why)) => self.note(&path, &why),
        }
    }

    fn add_template(&mut self, location: &Location, within: &Path, below: &Path) {
        let TemplateDirectory { path, scope, boundary } = &location.directory;
        let path = path.join(below);
        match fs::metadata(&path) {
            // A directory is never a template.
            Ok(metadata) if metadata.is_dir() => return,
            // The file was removed after the directory was listed.
            Err(_) if fs::symlink_metadata(&path).is_err() => return,
            // Includes dangling links, which fail when they are read.
            Ok(_) | Err(_) => {}
        }
        let content = match read::bytes(&path, boundary) {
            Ok(content) => content,
            Err(refused) => {
                self.note(&path, &format!("uploaded as a template that cannot be used: {refused}"));
                UNREADABLE.to_vec()
            }
        };
        self.files.insert((*scope, bundle_path(&within.join(below))), content);
    }

    /// Adds every readable footer. The nearest one takes precedence, and an unreadable footer does not shadow others.
    fn add_footers(&mut self, project: &Project, home: Option<&Path>, hidden: &HiddenDirectories) {
        let of_project = project
            .directories
            .iter()
            .map(|base| (Scope::Project, base.as_path(), project.top.as_path()));
        for (scope, base, top) in of_project.chain(home.map(|home| (Scope::User, home, home))) {
            let path = base.join(footer::DIRECTORY).join(footer::FILE);
            let Ok(within) = path.strip_prefix(top) else { continue };
            if fs::metadata(&path).is_err() {
                continue;
            }
            match read::bytes(&path, &Boundary::around(top, hidden)) {
                Ok(content) => {
                    self.files.insert((scope, bundle_path(within)), content);
                }
                Err(refused) => self.findings.push(footer::note(&path, &refused.to_string())),
            }
        }
    }

    fn note(&mut self, path: &Path, why: &str) {
        let finding = directory::note(path, None, Finding::error(FindingKind::Unreadable, None, why));
        // Profiles and Codex's own agents share a directory, so the same finding can occur twice.
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    fn finish(self) -> Result<Gathered, RegistryError> {
        let upload = |((scope, path), content): ((Scope, String), Vec<u8>)| Upload {
            scope,
            path,
            content: content.into(),
        };
        let (digest, files) = bundle::identify(self.files.into_iter().map(upload).collect())?;
        Ok(Gathered {
            files,
            digest,
            findings: self.findings,
        })
    }
}

/// Returns the path as used in a bundle. Bytes that are not UTF-8 are replaced, as they are in template names.
fn bundle_path(within: &Path) -> String {
    within.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{
        domain::catalog::Entry,
        source::{
            Sources, TemplateOptions, View,
            bundle::{BundleBounds, Bundles},
            temp_tree::TempTree,
        },
    };

    const ROLE: &str = "---\ndescription: d\n---\nrole";
    const CLAUDE: &str = "---\nname: theirs\ndescription: d\n---\nclaude";

    fn tree() -> TempTree {
        TempTree::new(&["home", "repo/.git", "repo/a", "outside"])
    }

    fn cwd(tree: &TempTree) -> String {
        tree.at("repo/a").display().to_string()
    }

    fn gathered(tree: &TempTree) -> Gathered {
        gather(&cwd(tree), &tree.at("repo"), Some(&tree.at("home"))).unwrap()
    }

    /// Returns the parts of a view that do not depend on the location of its files: the name of each template, and the
    /// footer.
    fn essence(view: &View) -> Vec<String> {
        let of = |entry: &Entry| {
            let file = &entry.file;
            let hidden = entry.shadowed.len();
            format!("{} of {}: {:?}, hides {hidden}", file.name, file.scope, file.digest)
        };
        let all = view.catalog.agent_types().chain(view.catalog.role_templates());
        all.map(of).chain([view.footer.to_string()]).collect()
    }

    #[test]
    fn bundle_and_disk_give_the_same_catalogue() {
        let tree = tree();
        tree.write("repo/.codex/.agents/clerk.md", ROLE);
        tree.write("repo/a/.codex/.agents/clerk.md", "---\ndescription: near\n---\nx");
        tree.write("repo/.codex/agents/helper.md", "---\nname: helper\n---\nx");
        tree.write("repo/docs/templates/Pilot.md", "You steer.");
        tree.write("repo/.claude/agents/t.md", CLAUDE);
        tree.write("repo/.opencode/agent/review/deep.md", "---\ndescription: d\n---\nx");
        tree.write("home/.config/opencode/agents/home.md", "---\ndescription: d\n---\nx");
        tree.write("repo/.codex/collab/codex_system_footer.md", "The project's footer.");
        tree.write("home/.codex/.agents/clerk.md", ROLE);
        tree.write("home/.codex/.agents/mine.md", ROLE);
        // The file is too large and therefore invalid, and it shadows the embedded role.
        tree.write("repo/.codex/.agents/worker.md", "x".repeat(2 * 1024 * 1024));
        tree.link(tree.at("repo/.claude/agents"), "repo/.gemini/agents");
        for import in [None].into_iter().chain(ForeignFormat::ALL.iter().copied().map(Some)) {
            let choice = TemplateOptions {
                import: import.into_iter().collect(),
                ..TemplateOptions::default()
            };
            let sources = Sources::open_with(Some(tree.at("home")), &[tree.at("repo")], choice).unwrap();
            let bundles = Bundles::new(BundleBounds::default());
            let gathered = gathered(&tree);
            let now = Instant::now();
            let digest = bundles.put(gathered.files, None, &sources, now).unwrap();
            assert_eq!(digest, gathered.digest);
            let uploaded = bundles.view(digest.as_str(), now).unwrap();
            let disk = sources.view(Some(&cwd(&tree))).unwrap();
            assert_eq!(essence(&uploaded), essence(&disk));
        }
    }

    #[test]
    fn gathered_files_are_templates_and_footers_only() {
        let tree = tree();
        tree.write(".codex/.agents/above.md", ROLE);
        tree.write("repo/src/main.rs", "fn main() {}");
        tree.write("repo/.codex/.agents/README.md", "for people");
        tree.write("repo/.codex/.agents/run.sh", "rm");
        tree.write("repo/a/docs/templates/not-at-the-root.md", "x");
        tree.write("repo/b/.codex/.agents/beside.md", ROLE);
        tree.write("repo/.codex/.agents/clerk.md", ROLE);
        tree.write("home/.codex/collab/codex_system_footer.md", "x");
        let gathered = gathered(&tree);
        let path = |file: &Upload| format!("{}:{}", file.scope, file.path);
        assert_eq!(
            gathered.files.iter().map(path).collect::<Vec<_>>(),
            [
                "project:.codex/.agents/clerk.md",
                "user:.codex/collab/codex_system_footer.md"
            ]
        );
        assert!(gathered.findings.is_empty());
    }

    #[test]
    fn link_out_of_project_is_not_gathered() {
        let tree = tree();
        let secret = tree.write("outside/secret", "secret");
        tree.write("outside/agents/hidden.md", ROLE);
        tree.link(secret, "repo/.codex/.agents/worker.md");
        tree.link(tree.at("outside/agents"), "repo/.codex/agents");
        let gathered = gathered(&tree);
        assert_eq!(gathered.files.len(), 1);
        assert_eq!(gathered.files[0].path, ".codex/.agents/worker.md");
        assert_eq!(gathered.files[0].content, UNREADABLE);
        let found: Vec<_> = gathered.findings.iter().map(|found| &found.finding.message).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found.iter().all(|message| message.contains("a link leads outside")),
            "{found:?}"
        );
    }

    #[test]
    fn home_is_not_gathered_as_project() {
        let tree = tree();
        tree.write("home/.codex/.agents/mine.md", ROLE);
        fs::create_dir_all(tree.at("home/work")).unwrap();
        let (cwd, home) = (tree.at("home/work"), tree.at("home"));
        let gathered = gather(cwd.to_str().unwrap(), &home, Some(&home)).unwrap();
        assert_eq!(gathered.files.len(), 1);
        assert_eq!(gathered.files[0].scope, Scope::User);
    }

    #[test]
    fn invalid_working_directory_is_rejected() {
        let tree = tree();
        let at = |cwd: &str| gather(cwd, &tree.at("repo"), None).map(|gathered| gathered.digest);
        let missing = tree.at("repo/none").display().to_string();
        assert_eq!(at(&missing), Err(RegistryError::CwdNotFound { cwd: missing.clone() }));
        let relative = "repo".to_owned();
        assert_eq!(at(&relative), Err(RegistryError::CwdRelative { cwd: relative.clone() }));
    }
}
