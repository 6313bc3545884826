//! Reads the template files of one directory.

use std::{
    ffi::OsString,
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
        pledged::PledgedCache,
        read::{self, Refused},
        stamp::Stamp,
        witness::Look,
    },
};

/// How many entries a directory may have. One that has more is not read at all, rather than a part of it that nobody
/// chose.
pub(super) const MAX_ENTRIES: usize = 2_000;

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
    levels: PledgedCache<(PathBuf, Family), Level>,
    listings: StampedCache<Result<Vec<Listed>, String>>,
    files: StampedCache<Claim>,
}

/// A file in a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listed {
    pub(super) name: OsString,
    is_link: bool,
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

    /// What a directory contributes now; `None` if it is not there. Where nothing changed nothing is looked at.
    #[must_use]
    pub(crate) fn level(&self, place: &Place, look: &mut Look<'_>) -> Option<Level> {
        let key = (place.directory.path.clone(), place.family);
        if let Some(kept) = self.levels.get(&key)
            && look.relies_on(&kept.pledge)
        {
            return Some(kept.value.clone());
        }
        let mut part = look.part();
        let level = self.read(place, &mut part)?;
        match part.done() {
            Some(pledge) => {
                look.include(&pledge);
                self.levels.keep(key, level.clone(), pledge);
            }
            None => look.doubt(),
        }
        Some(level)
    }

    fn read(&self, place: &Place, look: &mut Look<'_>) -> Option<Level> {
        let directory = &place.directory;
        look.directory(&directory.path);
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
            Ok(files) => {
                for file in files {
                    self.add(place, file, look, &mut level);
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

    fn add(&self, place: &Place, file: &Listed, look: &mut Look<'_>, level: &mut Level) {
        let Some(stem) = stem(place.family, file) else {
            return;
        };
        let path = place.directory.path.join(&file.name);
        let load = || {
            let text = read::text(&path, &place.directory.wall);
            load(place.family, &place.directory, &stem, &path, text, &self.rules)
        };
        match read::metadata(&path, file.is_link, look) {
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
pub(super) fn stem(family: Family, file: &Listed) -> Option<String> {
    family.stem(&file.name.to_string_lossy()).map(str::to_owned)
}

/// The files that may be templates, sorted by name.
///
/// # Errors
///
/// Why none of them is used, in words for their owner.
pub(super) fn list(directory: &Path) -> Result<Vec<Listed>, String> {
    let unreadable = |error: io::Error| format!("the directory cannot be read: {error}");
    let mut files = Vec::new();
    for (count, entry) in fs::read_dir(directory).map_err(unreadable)?.enumerate() {
        if count >= MAX_ENTRIES {
            return Err(format!(
                "the directory has over {MAX_ENTRIES} entries; none of its templates is used"
            ));
        }
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        if is_candidate(Path::new(&name)) {
            // One that is gone again is found to be so later.
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            files.push(Listed { name, is_link });
        }
    }
    files.sort();
    Ok(files)
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
    use crate::{domain::foreign::ForeignFormat, source::witness::Witness};

    const PROFILE: &str = "---\nagent_type: both\ndescription: d\nmodel: m\ncolor: red\n---\nx";

    fn level(base: &Path, family: Family) -> Level {
        let directory = TemplateDirectory {
            path: base.to_owned(),
            scope: Scope::Project,
            wall: base.to_owned(),
        };
        let witness = Witness::default();
        let at = base.to_owned();
        let place = Place { at, directory, family };
        Directories::default().level(&place, &mut witness.look()).unwrap()
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
        let (directories, witness) = (Directories::default(), Witness::default());
        let read = || {
            let level = directories.level(&place, &mut witness.look());
            level.unwrap().files.remove(0)
        };
        let before = read();
        assert!(Arc::ptr_eq(&before, &read()));
        fs::write(place.directory.path.join("b.md"), "---\nname: c\n---\nx").unwrap();
        assert!(
            Arc::ptr_eq(&before, &read()),
            "the same also where the directory is looked at again"
        );
    }
}
