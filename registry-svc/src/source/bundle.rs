//! Workspaces uploaded by clients, for a registry that does not share the clients' disk.
//!
//! A bundle is identified by its content. Its digest is a SHA-256 that starts with the text `workspace` = `1`, followed
//! by the files in order of scope (project, then user) and path. Each file contributes the named texts `scope`
//! (`project` or `user`), `path`, and `content`, which is the SHA-256 of the file's bytes in hexadecimal digits. Every
//! name and text is preceded by its length as eight big-endian bytes ([`DigestBuilder`]).
//!
//! The registry keeps the catalogue that the files define and, so that clients can read the bundle back, the files
//! themselves. The total size limit counts the uploaded bytes. Above the limit, the least recently used bundles are
//! removed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use prost::bytes::Bytes;

use crate::{
    domain::{
        catalog::{Catalog, Level},
        diagnostic::Diagnostic,
        digest::{Digest, DigestBuilder},
        encoding,
        error::RegistryError,
        family::Family,
        foreign::ForeignFormat,
        rules::ProjectTemplates,
        template::Scope,
    },
    source::{
        Sources, View,
        boundary::Boundary,
        budget::{MAX_BYTES, WorkBudget},
        directory::{Location, TemplateDirectory},
        families, footer, read,
    },
};

/// Documentation files that a bundle may contain in addition to templates.
const FOR_PEOPLE: &[&str] = &["readme.md", "agents.md"];
/// Maximum number of files in a bundle.
pub(super) const MAX_FILES: usize = 2_000;
/// Maximum length of a file's path, in bytes.
pub(super) const MAX_PATH_BYTES: usize = 4_096;
/// Bookkeeping cost of a file, in bytes, in addition to its content.
const FILE_COST: usize = 512;
/// Maximum number of remembered request ids.
const MAX_CALLS: usize = 1_024;

/// Limits of the cache of uploaded bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleBounds {
    /// Maximum total size of all bundles, in bytes. A single larger bundle is cached alone.
    pub bytes: usize,
    /// Maximum number of bundles.
    pub count: usize,
    /// Time after which an unused bundle is removed.
    pub idle: Duration,
}

impl Default for BundleBounds {
    fn default() -> Self {
        Self {
            bytes: 256 * 1024 * 1024,
            count: 256,
            idle: Duration::from_secs(60 * 60),
        }
    }
}

/// The source that a call reads templates from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Workspace {
    /// The registry's own disk, with the working directory of the call, if it has one.
    Disk(Option<String>),
    /// An uploaded bundle, identified by the digest from the request.
    Bundle(String),
}

/// A file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Project or user.
    pub scope: Scope,
    /// Its path, relative to the project's root or to the home.
    pub path: String,
    /// The content. Responses that return the bundle share these bytes.
    pub content: Bytes,
}

/// The cached bundles.
#[derive(Debug)]
pub(crate) struct Bundles {
    bounds: BundleBounds,
    table: Mutex<BundleTable>,
}

#[derive(Debug, Default)]
struct BundleTable {
    bundles: HashMap<Digest, CachedBundle>,
    bytes: usize,
    /// Counter of uses. It orders uses within one tick of the clock.
    uses: u64,
    /// The completed calls, oldest first: the caller with its request id, and the digest of the upload.
    calls: VecDeque<(String, Digest)>,
}

#[derive(Debug)]
struct CachedBundle {
    files: Arc<[Upload]>,
    view: View,
    bytes: usize,
    used: Instant,
    order: u64,
}

impl Bundles {
    /// Creates an empty cache.
    #[must_use]
    pub(crate) fn new(bounds: BundleBounds) -> Self {
        Self {
            bounds,
            table: Mutex::default(),
        }
    }

    /// Stores a bundle. `call` identifies the caller and its request id, if the request has one.
    ///
    /// # Errors
    ///
    /// If a limit is exceeded, a path is not the path of a template or a footer, or the request id was used for another
    /// call.
    pub(crate) fn put(
        &self,
        files: Vec<Upload>,
        call: Option<(String, &str)>,
        sources: &Sources,
        now: Instant,
    ) -> Result<Digest, RegistryError> {
        let bundle = Bundle::check(files)?;
        let digest = bundle.digest();
        {
            let mut table = self.lock();
            table.expire(now, self.bounds.idle);
            if let Some((caller, id)) = &call {
                table.check_request_id(&key(caller, id), &digest, id)?;
            }
            if table.touch(&digest, now).is_some() {
                table.record_call(call, &digest);
                return Ok(digest);
            }
        }
        // Computed without the lock, because parsing is slow. Parsing the same bundle twice gives the same result.
        let bytes = bundle.cost();
        let view = bundle.view(sources);
        let mut table = self.lock();
        table.evict_for(bytes, self.bounds);
        table.insert(digest.clone(), bundle.files.into(), view, bytes, now);
        table.record_call(call, &digest);
        Ok(digest)
    }

    /// Returns the templates and the footer of a bundle.
    ///
    /// # Errors
    ///
    /// [`RegistryError::WorkspaceUnknown`] if the bundle was never uploaded or has been removed.
    pub(crate) fn view(&self, digest: &str, now: Instant) -> Result<View, RegistryError> {
        self.use_bundle(digest, now, |cached| cached.view.clone())
    }

    /// Returns the files of a bundle, in order of scope and path. Counts as a use.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::view`].
    pub(crate) fn files(&self, digest: &str, now: Instant) -> Result<Arc<[Upload]>, RegistryError> {
        self.use_bundle(digest, now, |cached| Arc::clone(&cached.files))
    }

    fn use_bundle<T>(
        &self,
        digest: &str,
        now: Instant,
        read: impl FnOnce(&CachedBundle) -> T,
    ) -> Result<T, RegistryError> {
        let known = Digest::parse(digest).and_then(|digest| {
            let mut table = self.lock();
            table.expire(now, self.bounds.idle);
            table.touch(&digest, now).map(read)
        });
        known.ok_or_else(|| RegistryError::WorkspaceUnknown {
            digest: digest.to_owned(),
        })
    }

    /// Locks the table. Code under the lock does not panic.
    fn lock(&self) -> MutexGuard<'_, BundleTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(caller: &str, id: &str) -> String {
    format!("{caller}|{id}")
}

impl BundleTable {
    fn expire(&mut self, now: Instant, idle: Duration) {
        let stale = |cached: &CachedBundle| now.saturating_duration_since(cached.used) >= idle;
        let gone: Vec<Digest> = self
            .bundles
            .iter()
            .filter(|(_, cached)| stale(cached))
            .map(|(digest, _)| digest.clone())
            .collect();
        for digest in gone {
            self.forget(&digest);
        }
    }

    fn evict_for(&mut self, bytes: usize, bounds: BundleBounds) {
        while self.bundles.len() >= bounds.count.max(1) || self.bytes.saturating_add(bytes) > bounds.bytes {
            let oldest = self.bundles.iter().min_by_key(|(_, cached)| cached.order);
            let Some(oldest) = oldest.map(|(digest, _)| digest.clone()) else {
                return;
            };
            self.forget(&oldest);
        }
    }

    fn insert(&mut self, digest: Digest, files: Arc<[Upload]>, view: View, bytes: usize, now: Instant) {
        self.uses += 1;
        let cached = CachedBundle {
            files,
            view,
            bytes,
            used: now,
            order: self.uses,
        };
        self.bytes += bytes;
        if let Some(twin) = self.bundles.insert(digest, cached) {
            self.bytes -= twin.bytes;
        }
    }

    fn forget(&mut self, digest: &Digest) {
        if let Some(cached) = self.bundles.remove(digest) {
            self.bytes -= cached.bytes;
        }
    }

    fn touch(&mut self, digest: &Digest, now: Instant) -> Option<&CachedBundle> {
        let cached = self.bundles.get_mut(digest)?;
        self.uses += 1;
        cached.order = self.uses;
        cached.used = now;
        Some(cached)
    }

    fn check_request_id(&self, key: &str, digest: &Digest, id: &str) -> Result<(), RegistryError> {
        match self.calls.iter().find(|(known, _)| known == key) {
            Some((_, answered)) if answered != digest => Err(RegistryError::RequestIdReused {
                request_id: id.to_owned(),
            }),
            Some(_) | None => Ok(()),
        }
    }

    fn record_call(&mut self, call: Option<(String, &str)>, digest: &Digest) {
        let Some((caller, id)) = call else { return };
        let key = key(&caller, id);
        if self.calls.iter().any(|(known, _)| *known == key) {
            return;
        }
        if self.calls.len() >= MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back((key, digest.clone()));
    }
}

/// Returns the digest of a bundle of these files, and the files in the bundle's order.
///
/// # Errors
///
/// Returns the errors of [`Bundles::put`].
pub(super) fn identify(files: Vec<Upload>) -> Result<(Digest, Vec<Upload>), RegistryError> {
    let bundle = Bundle::check(files)?;
    Ok((bundle.digest(), bundle.files))
}

/// A bundle with validated files, in order of scope and path.
#[derive(Debug)]
struct Bundle {
    files: Vec<Upload>,
}

/// The location of a file in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BundlePath<'a> {
    /// The directory of the project, or the home: empty, or a path that ends with `/`.
    base: &'a str,
    /// The directory of templates or footers below `base`.
    location: &'static str,
    /// The file's path below that directory.
    below: &'a str,
}

impl Bundle {
    fn check(mut files: Vec<Upload>) -> Result<Self, RegistryError> {
        if files.len() > MAX_FILES {
            return refuse(format!(
                "the bundle has {} files; at most {MAX_FILES} are allowed",
                files.len()
            ));
        }
        let bytes: usize = files.iter().map(|file| file.content.len()).sum();
        if bytes > MAX_BYTES {
            return refuse(format!(
                "the files of the bundle have {bytes} bytes; at most {MAX_BYTES} are allowed"
            ));
        }
        for file in &files {
            check_file(file)?;
        }
        files.sort_by(|one, other| (one.scope, &one.path).cmp(&(other.scope, &other.path)));
        for pair in files.windows(2) {
            if let [one, other] = pair
                && (one.scope, &one.path) == (other.scope, &other.path)
            {
                return refuse(format!("the bundle has {:?} twice", one.path));
            }
        }
        let bundle = Self { files };
        bundle.check_walk()?;
        Ok(bundle)
    }

    /// Checks that the project's directories lie on one path from a working directory to the root. Sibling directories
    /// have no defined precedence.
    fn check_walk(&self) -> Result<(), RegistryError> {
        let bases = self.bases();
        let mut outer = "";
        for base in bases.into_iter().rev() {
            if !base.starts_with(outer) {
                return refuse(format!(
                    "the project's directories {outer:?} and {base:?} are not nested; upload the files of one working \
                     directory and its parents"
                ));
            }
            outer = base;
        }
        Ok(())
    }

    /// Returns the directories of the project that have files, nearest (deepest) first.
    fn bases(&self) -> Vec<&str> {
        let of_project = self.files_of(Scope::Project).map(|(path, _)| path.base);
        let mut bases: Vec<&str> = of_project.collect::<BTreeSet<_>>().into_iter().collect();
        bases.sort_by_key(|base| std::cmp::Reverse(base.matches('/').count()));
        bases
    }

    fn files_of(&self, scope: Scope) -> impl Iterator<Item = (BundlePath<'_>, &Upload)> {
        let files = self.files.iter().filter(move |file| file.scope == scope);
        files.filter_map(|file| Some((locate(file.scope, &file.path)?, file)))
    }

    fn digest(&self) -> Digest {
        let mut digest = DigestBuilder::new();
        digest.text("workspace", "1");
        for file in &self.files {
            digest
                .text("scope", &file.scope.to_string())
                .text("path", &file.path)
                .text("content", Digest::of(&file.content).as_str());
        }
        digest.finish()
    }

    fn cost(&self) -> usize {
        let of_file = |file: &Upload| file.content.len() + file.path.len() + FILE_COST;
        self.files.iter().map(of_file).sum()
    }

    /// Returns the catalogue and the footer that the files define, with the embedded templates below them.
    fn view(&self, sources: &Sources) -> View {
        let mut budget = WorkBudget::default();
        let mut levels = Vec::new();
        let mut footer = None;
        let mut notes = Vec::new();
        let of_project = match sources.project_templates {
            ProjectTemplates::Trusted => self.bases(),
            ProjectTemplates::Off => Vec::new(),
        };
        let of_project = of_project.into_iter().map(|base| (Scope::Project, base));
        for (scope, base) in of_project.chain([(Scope::User, "")]) {
            let mut locations: BTreeMap<&str, Vec<(&str, &[u8])>> = BTreeMap::new();
            for (path, file) in self.files_of(scope).filter(|(path, _)| path.base == base) {
                let files = locations.entry(path.location).or_default();
                files.push((path.below, &file.content[..]));
            }
            for family in families(&sources.import).into_iter().chain([Family::Graph]) {
                for location in family.directories(scope) {
                    if let Some(files) = locations.get(location) {
                        let location = location_of(scope, base, location, family);
                        levels.push(
                            sources
                                .directories
                                .uploaded(&location, files.iter().copied(), &mut budget),
                        );
                    }
                }
            }
            for (name, content) in locations.remove(footer::DIRECTORY).unwrap_or_default() {
                let path = path_of(scope, base, footer::DIRECTORY).join(name);
                take_footer(&path, content, &mut footer, &mut notes);
            }
        }
        levels.extend(sources.embedded.iter().cloned());
        levels.push(Level {
            files: Vec::new(),
            notes,
        });
        View {
            catalog: Arc::new(Catalog::build(&levels)),
            footer: footer.unwrap_or_else(|| Arc::clone(&sources.footer)),
        }
    }
}

/// Uses the first readable footer, even if it is blank.
fn take_footer(path: &Path, content: &[u8], footer: &mut Option<Arc<str>>, notes: &mut Vec<Diagnostic>) {
    if footer.is_some() {
        return;
    }
    match encoding::decode(content) {
        Ok(text) => *footer = Some(footer::clean(text)),
        Err(refused) => notes.push(footer::note(path, &refused.to_string())),
    }
}

fn location_of(scope: Scope, base: &str, location: &str, family: Family) -> Location {
    let at = path_of(scope, base, location);
    let directory = TemplateDirectory {
        path: at.clone(),
        scope,
        // A bundle has no links.
        boundary: Boundary::default(),
    };
    Location { at, directory, family }
}

/// Returns the path as shown in findings and responses: `project:a/.codex/.agents`.
fn path_of(scope: Scope, base: &str, location: &str) -> PathBuf {
    PathBuf::from(format!("{scope}:{base}{location}"))
}

fn check_file(file: &Upload) -> Result<(), RegistryError> {
    let path = &file.path;
    if path.len() > MAX_PATH_BYTES {
        return refuse(format!(
            "a path of the bundle has {} bytes; at most {MAX_PATH_BYTES} are allowed",
            path.len()
        ));
    }
    let legal = |part: &str| !matches!(part, "" | "." | "..") && !part.chars().any(char::is_control);
    if !path.split('/').all(legal) {
        return refuse(format!(
            "path {path:?} is not relative to the project or the home, or has empty parts, \".\", \"..\" or control \
             characters"
        ));
    }
    if locate(file.scope, path).is_none() {
        return refuse(format!(
            "path {path:?} is not the path of a template or a footer in scope {}; leave the file out",
            file.scope
        ));
    }
    if file.content.len() as u64 > read::MAX_FILE_BYTES {
        return refuse(format!(
            "{path:?} has {} bytes; at most {} are allowed",
            file.content.len(),
            read::MAX_FILE_BYTES
        ));
    }
    Ok(())
}

/// Returns the location of a file, or `None` if its path is not in a directory of templates or footers. The agents of
/// all other programs are accepted, because a client need not know which programs' agents the registry imports.
fn locate(scope: Scope, path: &str) -> Option<BundlePath<'_>> {
    let (directory, name) = path.rsplit_once('/')?;
    let is_valid_base = |location: &'static str, base: &str| {
        // Only a project has several directories, and its graph templates lie at its root.
        match scope {
            Scope::Project if Family::Graph.directories(scope).contains(&location) => base.is_empty(),
            Scope::Project => base.is_empty() || base.ends_with('/'),
            Scope::User => base.is_empty(),
            Scope::System => false,
        }
    };
    if name == footer::FILE
        && let Some(base) = directory.strip_suffix(footer::DIRECTORY)
        && is_valid_base(footer::DIRECTORY, base)
    {
        return Some(BundlePath {
            base,
            location: footer::DIRECTORY,
            below: name,
        });
    }
    let is_for_people = FOR_PEOPLE.iter().any(|known| name.eq_ignore_ascii_case(known));
    let mut families = families(ForeignFormat::ALL).into_iter().chain([Family::Graph]);
    families.find_map(|family| {
        let mut locations = family.directories(scope).iter().copied();
        locations.find_map(|location| {
            let (base, below) = family.below(location, path)?;
            let fits = is_for_people || family.stem(below).is_some();
            (fits && is_valid_base(location, base)).then_some(BundlePath { base, location, below })
        })
    })
}

fn refuse<T>(message: String) -> Result<T, RegistryError> {
    Err(RegistryError::Argument {
        field: "files",
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::TemplateOptions;

    fn upload(scope: Scope, path: &str, text: &str) -> Upload {
        Upload {
            scope,
            path: path.to_owned(),
            content: Bytes::copy_from_slice(text.as_bytes()),
        }
    }

    fn role(name: &str, text: &str) -> Upload {
        upload(Scope::Project, &format!(".codex/.agents/{name}.md"), text)
    }

    fn sources() -> Sources {
        Sources::open(None, &[]).unwrap()
    }

    #[test]
    fn bundle_files_must_be_templates_or_footers() {
        for (scope, path, base) in [
            (Scope::Project, ".codex/.agents/worker.md", Some("")),
            (Scope::Project, "a/b/.codex/.agents/worker.md", Some("a/b/")),
            (Scope::Project, "a/.codex/collab/codex_system_footer.md", Some("a/")),
            (Scope::Project, "docs/templates/planner.md", Some("")),
            (Scope::Project, ".codex/.agents/README.md", Some("")),
            (Scope::Project, "a/.codex/agents/worker.md", Some("a/")),
            (Scope::Project, ".codex/agents/worker.toml", Some("")),
            (Scope::Project, ".codex/.agents/worker.toml", None),
            (Scope::Project, "a/.github/agents/x.agent.md", Some("a/")),
            (Scope::User, ".config/opencode/agents/x.md", Some("")),
            (Scope::Project, ".config/opencode/agents/x.md", None),
            (Scope::Project, "a/.opencode/agent/deep/er/x.md", Some("a/")),
            (Scope::Project, ".claude/agents/deep/x.md", None),
            (Scope::User, ".codex/.agents/worker.md", Some("")),
            (Scope::User, "a/.codex/.agents/worker.md", None),
            (Scope::User, "docs/templates/planner.md", None),
            (Scope::System, ".codex/.agents/worker.md", None),
            (Scope::Project, "a/docs/templates/planner.md", None),
            (Scope::Project, "x.codex/.agents/worker.md", None),
            (Scope::Project, ".codex/.agents/deep/worker.md", None),
            (Scope::Project, ".codex/.agents/worker.sh", None),
            (Scope::Project, ".codex/collab/other.md", None),
            (Scope::Project, "worker.md", None),
        ] {
            assert_eq!(locate(scope, path).map(|path| path.base), base, "{scope} {path}");
        }
    }

    #[test]
    fn invalid_bundles_are_rejected() {
        let long = format!("{}/.codex/.agents/a.md", "x".repeat(MAX_PATH_BYTES));
        let large = "x".repeat(usize::try_from(read::MAX_FILE_BYTES).unwrap() + 1);
        let path = |path: &str| vec![upload(Scope::Project, path, "x")];
        for (files, text) in [
            (path("/.codex/.agents/a.md"), "path \"/.codex"),
            (
                path("../.codex/.agents/a.md"),
                "path \"../.codex/.agents/a.md\" is not relative",
            ),
            (path("a/../.codex/.agents/a.md"), "path \"a/.."),
            (path("./.codex/.agents/a.md"), "path \"./"),
            (path("a//.codex/.agents/a.md"), "path \"a//"),
            (path("a\n/.codex/.agents/a.md"), "path \"a\\n"),
            (
                path("src/main.rs"),
                "path \"src/main.rs\" is not the path of a template",
            ),
            (path(&long), "a path of the bundle has 4"),
            (vec![role("a", &large)], "\".codex/.agents/a.md\" has 1048577 bytes"),
            (
                vec![role("a", "x"), role("a", "y")],
                "the bundle has \".codex/.agents/a.md\" twice",
            ),
            (
                vec![
                    upload(Scope::Project, "a/.codex/.agents/x.md", ""),
                    upload(Scope::Project, "b/.codex/.agents/x.md", ""),
                ],
                "the project's directories ",
            ),
            (vec![role("a", "x"); MAX_FILES + 1], "the bundle has 2001 files"),
        ] {
            let error = Bundle::check(files).unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn digest_does_not_depend_on_file_order() {
        let digest = |files| Bundle::check(files).unwrap().digest();
        let one = digest(vec![role("a", "x"), role("b", "y")]);
        assert_eq!(one, digest(vec![role("b", "y"), role("a", "x")]));
        assert_ne!(one, digest(vec![role("a", "x"), role("b", "z")]));
        assert_ne!(one, digest(vec![role("a", "x")]));
        let user = upload(Scope::User, ".codex/.agents/a.md", "x");
        assert_ne!(digest(vec![role("a", "x")]), digest(vec![user]));
    }

    #[test]
    fn deepest_directory_wins_over_parents_and_home() {
        let files = vec![
            upload(Scope::User, ".codex/.agents/worker.md", "user"),
            upload(Scope::User, ".codex/collab/codex_system_footer.md", "user\r\n"),
            role("worker", "root"),
            upload(Scope::Project, "a/b/.codex/.agents/worker.md", "near"),
            upload(Scope::Project, "a/.codex/collab/codex_system_footer.md", "\u{feff}"),
        ];
        let view = Bundle::check(files).unwrap().view(&sources());
        let worker = view
            .catalog
            .agent_types()
            .find(|entry| entry.file.name.as_str() == "worker")
            .unwrap();
        assert_eq!(worker.file.path, "project:a/b/.codex/.agents/worker.md");
        assert_eq!(
            worker.shadowed,
            [
                "project:.codex/.agents/worker.md",
                "user:.codex/.agents/worker.md",
                "embedded:agents/worker.md"
            ]
        );
        assert_eq!(&*view.footer, "");
    }

    #[test]
    fn foreign_agents_are_read_only_if_imported() {
        let files = vec![
            upload(Scope::Project, ".codex/agents/a.md", "---\nname: subagent\n---\nx"),
            upload(
                Scope::User,
                ".claude/agents/b.md",
                "---\nname: foreigner\ndescription: d\n---\nx",
            ),
            upload(Scope::Project, "docs/templates/Pilot.md", "You steer."),
        ];
        let names = |choice| {
            let sources = Sources::open_with(None, &[], choice).unwrap();
            let catalog = Bundle::check(files.clone()).unwrap().view(&sources).catalog;
            let of_project = |entry: &&crate::domain::catalog::Entry| entry.file.scope != Scope::System;
            let all = catalog.agent_types().chain(catalog.role_templates());
            all.filter(of_project)
                .map(|entry| entry.file.name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(TemplateOptions::default()), ["subagent", "Pilot"]);
        let import = TemplateOptions {
            import: vec![ForeignFormat::ClaudeCode],
            ..TemplateOptions::default()
        };
        assert_eq!(names(import), ["foreigner", "subagent", "Pilot"]);
        let off = TemplateOptions {
            project_templates: ProjectTemplates::Off,
            ..TemplateOptions::default()
        };
        assert_eq!(names(off), [""; 0]);
    }

    #[test]
    fn least_recently_used_bundle_is_removed_first() {
        let bundles = Bundles::new(BundleBounds {
            count: 2,
            ..BundleBounds::default()
        });
        let sources = sources();
        let start = Instant::now();
        let put = |name: &str| bundles.put(vec![role(name, "x")], None, &sources, start).unwrap();
        let is_cached = |digest: &Digest| bundles.view(digest.as_str(), start).is_ok();
        let (one, two) = (put("one"), put("two"));
        assert!(is_cached(&one));
        let three = put("three");
        assert!(is_cached(&one) && is_cached(&three) && !is_cached(&two));
    }

    #[test]
    fn bundle_over_byte_limit_is_cached_alone() {
        let bundles = Bundles::new(BundleBounds {
            bytes: 1,
            ..BundleBounds::default()
        });
        let sources = sources();
        let start = Instant::now();
        let put = |name: &str| bundles.put(vec![role(name, "x")], None, &sources, start).unwrap();
        let one = put("one");
        assert!(bundles.view(one.as_str(), start).is_ok());
        let two = put("two");
        assert!(bundles.view(one.as_str(), start).is_err());
        assert!(bundles.view(two.as_str(), start).is_ok());
        assert_eq!(bundles.lock().bundles.len(), 1);
    }

    #[test]
    fn unused_bundle_expires() {
        let bundles = Bundles::new(BundleBounds::default());
        let idle = BundleBounds::default().idle;
        let start = Instant::now();
        let digest = bundles.put(vec![role("a", "x")], None, &sources(), start).unwrap();
        let at = |time| bundles.view(digest.as_str(), start + time).is_ok();
        let almost = idle - Duration::from_secs(1);
        assert!(at(almost) && at(almost * 2));
        assert!(!at(almost * 2 + idle));
        assert_eq!(bundles.lock().bytes, 0);
    }

    #[test]
    fn reading_files_in_order_counts_as_use() {
        let bundles = Bundles::new(BundleBounds::default());
        let idle = BundleBounds::default().idle;
        let start = Instant::now();
        let files = vec![
            role("b", "y"),
            upload(Scope::User, ".codex/.agents/a.md", "z"),
            role("a", "x"),
        ];
        let digest = bundles.put(files.clone(), None, &sources(), start).unwrap();
        let read = |time| bundles.files(digest.as_str(), start + time);
        let almost = idle - Duration::from_secs(1);
        let found = read(almost).unwrap();
        assert_eq!(found.to_vec(), [&files[2], &files[0], &files[1]].map(Clone::clone));
        assert_eq!(Bundle::check(found.to_vec()).unwrap().digest(), digest);
        assert!(read(almost * 2).is_ok());
        assert!(read(almost * 2 + idle).is_err());
    }

    #[test]
    fn repeated_call_succeeds_and_reused_id_is_rejected() {
        let bundles = Bundles::new(BundleBounds::default());
        let sources = sources();
        let put = |caller: &str, text: &str| {
            let call = Some((caller.to_owned(), "id"));
            bundles.put(vec![role("a", text)], call, &sources, Instant::now())
        };
        let first = put("me", "x").unwrap();
        assert_eq!(put("me", "x").unwrap(), first);
        assert_eq!(
            put("me", "y").unwrap_err(),
            RegistryError::RequestIdReused {
                request_id: "id".to_owned()
            }
        );
        assert!(put("you", "y").is_ok());
    }
}
