//! Reads the template files of one directory.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    domain::{
        catalog::Level,
        diagnostic::{Diagnostic, Finding},
        digest::Digest,
        graph,
        malformed::Malformed,
        name::{AgentType, GraphName, TemplateName},
        role,
        template::{Dialect, Parsed, Scope, TemplateFile},
    },
    source::{cache::StampedCache, read, stamp::Stamp},
};

/// How many entries a directory may have. One that has more is not read at all, rather than a part of it that nobody
/// chose.
const MAX_ENTRIES: usize = 2_000;
/// Files for people, whatever directory they lie in.
const NEVER_TEMPLATES: &[&str] = &["readme", "agents"];

/// A directory that may hold templates.
#[derive(Clone, Debug)]
pub(crate) struct TemplateDirectory {
    /// Where it is. Canonical.
    pub(crate) path: PathBuf,
    /// The scope that it belongs to.
    pub(crate) scope: Scope,
    /// How its files are written.
    pub(crate) dialect: Dialect,
    /// What neither it nor a file in it may leave by a link. Canonical.
    pub(crate) wall: PathBuf,
}

/// Reads directories, and remembers.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    listings: StampedCache<Result<Vec<OsString>, String>>,
    files: StampedCache<TemplateFile>,
}

impl Directories {
    /// What a directory contributes now; `None` if it is not there.
    #[must_use]
    pub(crate) fn level(&self, directory: &TemplateDirectory) -> Option<Level> {
        let metadata = fs::metadata(&directory.path).ok().filter(fs::Metadata::is_dir)?;
        let mut level = Level::default();
        if !directory.path.starts_with(&directory.wall) {
            let refused = read::Refused::OutsideWall(directory.wall.display().to_string());
            level
                .notes
                .push(note(&directory.path, None, Finding::error(None, refused.to_string())));
            return Some(level);
        }
        let listing = self
            .listings
            .get(&directory.path, Stamp::of(&metadata), || list(&directory.path));
        match &*listing {
            Ok(names) => {
                for name in names {
                    self.add(directory, name, &mut level);
                }
            }
            Err(why) => level.notes.push(note(&directory.path, None, Finding::error(None, why))),
        }
        Some(level)
    }

    fn add(&self, directory: &TemplateDirectory, file_name: &OsStr, level: &mut Level) {
        let path = directory.path.join(file_name);
        let name = match claim(file_name, directory.dialect) {
            Ok(name) => name,
            Err(finding) => {
                level.notes.push(note(&path, Some(directory.dialect), finding));
                return;
            }
        };
        match fs::metadata(&path) {
            // Never meant as a template.
            Ok(metadata) if metadata.is_dir() => {}
            Ok(metadata) => {
                let load = || load(directory, name, &path);
                level.files.push(self.files.get(&path, Stamp::of(&metadata), load));
            }
            // Gone since the directory was read.
            Err(_) if fs::symlink_metadata(&path).is_err() => {}
            // A link to nothing, or to where we may not look.
            Err(_) => level.files.push(Arc::new(load(directory, name, &path))),
        }
    }
}

/// The names of the files that may be templates, sorted.
fn list(directory: &Path) -> Result<Vec<OsString>, String> {
    let unreadable = |error: io::Error| format!("the directory cannot be read: {error}");
    let mut names = Vec::new();
    for (count, entry) in fs::read_dir(directory).map_err(unreadable)?.enumerate() {
        if count >= MAX_ENTRIES {
            return Err(format!(
                "the directory has over {MAX_ENTRIES} entries; none of its templates is used"
            ));
        }
        let name = entry.map_err(unreadable)?.file_name();
        if is_candidate(Path::new(&name)) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn is_candidate(name: &Path) -> bool {
    let is = |part: Option<&OsStr>, text: &str| part.is_some_and(|part| part.eq_ignore_ascii_case(text));
    is(name.extension(), "md") && !NEVER_TEMPLATES.iter().any(|never| is(name.file_stem(), never))
}

/// The name that a file claims by its own.
fn claim(file_name: &OsStr, dialect: Dialect) -> Result<TemplateName, Finding> {
    let stem = Path::new(file_name).file_stem().unwrap_or(file_name).to_string_lossy();
    match dialect {
        Dialect::Role | Dialect::Profile | Dialect::Subagent | Dialect::Foreign => match AgentType::parse(&stem) {
            Ok(name) if name.is_default() => Err(Finding::warning(
                None,
                "not used: \"default\" means to spawn without a template",
            )
            .suggest("give the file another name")),
            Ok(name) => Ok(TemplateName::AgentType(name)),
            Err(error) => Err(Finding::warning(None, format!("not used: {error}"))
                .suggest("rename the file: letters, digits, - and _, then .md")),
        },
        Dialect::Graph => match GraphName::parse(&stem) {
            Some(name) => Ok(TemplateName::RoleTemplate(name)),
            None => Err(Finding::warning(None, "not used: the file has no name before .md")),
        },
    }
}

fn load(directory: &TemplateDirectory, name: TemplateName, path: &Path) -> TemplateFile {
    let (digest, parsed) = match read::text(path, &directory.wall) {
        Ok(text) => (Some(Digest::of(text.as_bytes())), parse(&name, &text)),
        Err(refused) => {
            let malformed = Malformed::Refused(refused.to_string());
            (None, Parsed::new(Err(malformed.into()), Vec::new()))
        }
    };
    TemplateFile {
        name,
        scope: directory.scope,
        dialect: directory.dialect,
        path: path.display().to_string(),
        digest,
        parsed,
    }
}

/// Parses a file's text. So far each name space has one dialect.
pub(crate) fn parse(name: &TemplateName, text: &str) -> Parsed {
    match name {
        TemplateName::AgentType(name) => role::parse(name, text),
        TemplateName::RoleTemplate(_) => graph::parse(text),
    }
}

fn note(path: &Path, dialect: Option<Dialect>, finding: Finding) -> Diagnostic {
    Diagnostic {
        path: path.display().to_string(),
        dialect,
        finding,
    }
}
