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
        family::{Family, FileText},
        graph,
        name::TemplateName,
        role,
        rules::Rules,
        template::{Dialect, Parsed, Scope, TemplateFile},
    },
    source::{
        cache::StampedCache,
        read::{self, Refused},
        stamp::Stamp,
    },
};

/// How many entries a directory may have. One that has more is not read at all, rather than a part of it that nobody
/// chose.
const MAX_ENTRIES: usize = 2_000;

/// A directory that may hold templates.
#[derive(Clone, Debug)]
pub(crate) struct TemplateDirectory {
    /// Where it is. Canonical.
    pub(crate) path: PathBuf,
    /// The scope that it belongs to.
    pub(crate) scope: Scope,
    /// What neither it nor a file in it may leave by a link. Canonical.
    pub(crate) wall: PathBuf,
}

/// A directory, and what it is read as. One directory may be several places: Codex keeps its own roles beside profiles.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The directory as it was looked for, before links are followed.
    pub(crate) at: PathBuf,
    /// The directory.
    pub(crate) directory: TemplateDirectory,
    /// What it holds.
    pub(crate) family: Family,
}

/// What a file claims: the name of a template, or none, with a word for its author.
type Claim = Result<Arc<TemplateFile>, Diagnostic>;

/// Reads directories, and remembers.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    rules: Rules,
    listings: StampedCache<Result<Vec<OsString>, String>>,
    files: StampedCache<Claim>,
}

impl Directories {
    /// Directories none of which was read, whose templates are held to these rules.
    #[must_use]
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// What a directory contributes now; `None` if it is not there.
    #[must_use]
    pub(crate) fn level(&self, place: &Place) -> Option<Level> {
        let directory = &place.directory;
        let metadata = fs::metadata(&directory.path).ok().filter(fs::Metadata::is_dir)?;
        let mut level = Level::default();
        if !directory.path.starts_with(&directory.wall) {
            level.notes.push(note(
                &directory.path,
                None,
                Finding::error(None, Refused::OutsideWall.to_string()),
            ));
            return Some(level);
        }
        let listing = self
            .listings
            .get(&directory.path, Stamp::of(&metadata), || list(&directory.path));
        match &*listing {
            Ok(names) => {
                for name in names {
                    self.add(place, name, &mut level);
                }
                in_order(&mut level);
            }
            Err(why) => level.notes.push(note(&directory.path, None, Finding::error(None, why))),
        }
        Some(level)
    }

    /// What a directory contributes whose files were uploaded: their names and bytes, in order of name. Nothing of the
    /// disk is read, and nothing is remembered.
    #[must_use]
    pub(crate) fn uploaded<'a>(&self, place: &Place, files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Level {
        let mut level = Level::default();
        for (file_name, bytes) in files {
            let Some(stem) = place.family.stem(file_name) else {
                continue;
            };
            let path = place.directory.path.join(file_name);
            let text = read::decode(bytes.to_vec());
            let claim = load(place.family, &place.directory, stem, &path, text, &self.rules);
            take(&claim, &mut level);
        }
        in_order(&mut level);
        level
    }

    fn add(&self, place: &Place, file_name: &OsStr, level: &mut Level) {
        let Some(stem) = stem(place.family, file_name) else {
            return;
        };
        let path = place.directory.path.join(file_name);
        let load = || {
            let text = read::text(&path, &place.directory.wall);
            load(place.family, &place.directory, &stem, &path, text, &self.rules)
        };
        match fs::metadata(&path) {
            // Never meant as a template.
            Ok(metadata) if metadata.is_dir() => {}
            Ok(metadata) => take(&self.files.get(&path, Stamp::of(&metadata), load), level),
            // Gone since the directory was read.
            Err(_) if fs::symlink_metadata(&path).is_err() => {}
            // A link to nothing, or to where we may not look.
            Err(_) => take(&load(), level),
        }
    }
}

/// Adds what was made of a file.
fn take(claim: &Claim, level: &mut Level) {
    match claim {
        Ok(file) => level.files.push(Arc::clone(file)),
        Err(note) => level.notes.push(note.clone()),
    }
}

/// Profiles before subagents; otherwise by path, as they are.
fn in_order(level: &mut Level) {
    level.files.sort_by_key(|file| file.dialect);
}

/// The stem of a file's name; `None` if such a file is no template.
pub(super) fn stem(family: Family, file_name: &OsStr) -> Option<String> {
    family.stem(&file_name.to_string_lossy()).map(str::to_owned)
}

/// The names of the files that may be templates, sorted.
///
/// # Errors
///
/// Why none of them is used, in words for their owner.
pub(super) fn list(directory: &Path) -> Result<Vec<OsString>, String> {
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

/// Whether a name is worth keeping in a listing: it ends as that of some family's templates.
fn is_candidate(name: &Path) -> bool {
    let endings = ["md", "toml"];
    name.extension()
        .is_some_and(|extension| endings.iter().any(|ending| extension.eq_ignore_ascii_case(ending)))
}

/// Reads a file with its text, or with why there is none.
fn load(
    family: Family,
    directory: &TemplateDirectory,
    stem: &str,
    path: &Path,
    text: Result<String, Refused>,
    rules: &Rules,
) -> Claim {
    let path = path.display().to_string();
    let text = text.map_err(|refused| refused.to_string());
    let file = FileText {
        path: &path,
        stem,
        scope: directory.scope,
        text: text.as_deref().map_err(String::as_str),
    };
    family.read(file, rules).map(Arc::new)
}

/// Parses the text of an embedded file: a role or a graph template.
pub(crate) fn parse(name: &TemplateName, text: &str) -> Parsed {
    match name {
        TemplateName::AgentType(name) => role::parse(name, text),
        TemplateName::RoleTemplate(name) => graph::parse_named(name, text),
    }
}

/// A finding about a file or a directory.
pub(super) fn note(path: &Path, dialect: Option<Dialect>, finding: Finding) -> Diagnostic {
    Diagnostic {
        path: path.display().to_string(),
        dialect,
        finding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::foreign::ForeignFormat;

    const PROFILE: &str = "---\nagent_type: both\ndescription: d\nmodel: m\ncolor: red\n---\nx";

    fn level(base: &Path, family: Family) -> Level {
        let directory = TemplateDirectory {
            path: base.to_owned(),
            scope: Scope::Project,
            wall: base.to_owned(),
        };
        let at = base.to_owned();
        Directories::default().level(&Place { at, directory, family }).unwrap()
    }

    #[test]
    fn profiles_come_before_subagents_whatever_their_files_are_called() {
        let guard = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(guard.path()).unwrap();
        fs::write(base.join("a.md"), "---\nname: both\n---\nx").unwrap();
        fs::write(base.join("b.md"), PROFILE).unwrap();
        fs::write(base.join("c.toml"), "description = 'd'\ndeveloper_instructions = 'x'").unwrap();
        fs::write(base.join("README.md"), "for people").unwrap();
        fs::write(base.join("default.md"), "---\nname: default\n---\nx").unwrap();
        let agents = level(&base, Family::Agents);
        let dialects: Vec<_> = agents
            .files
            .iter()
            .map(|file| (file.name.as_str(), file.dialect))
            .collect();
        assert_eq!(dialects, [("both", Dialect::Profile), ("both", Dialect::Subagent)]);
        assert_eq!(agents.notes.len(), 1);
        let codex = level(&base, Family::Foreign(ForeignFormat::Codex));
        assert_eq!(codex.files.len(), 1);
        assert_eq!(codex.files[0].name.as_str(), "c");
    }

    #[test]
    fn what_did_not_change_stays_the_same_value() {
        let guard = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(guard.path()).unwrap();
        fs::write(base.join("a.md"), PROFILE).unwrap();
        let place = Place {
            at: base.clone(),
            directory: TemplateDirectory {
                path: base.clone(),
                scope: Scope::Project,
                wall: base,
            },
            family: Family::Agents,
        };
        let directories = Directories::default();
        let read = || directories.level(&place).unwrap().files.remove(0);
        assert!(Arc::ptr_eq(&read(), &read()));
    }
}
