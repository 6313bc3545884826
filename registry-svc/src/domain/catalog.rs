//! The mapping from names to files. A catalogue is immutable: a change on disk creates a new one.

use std::{collections::BTreeMap, sync::Arc};

use crate::domain::{
    diagnostic::{Diagnostic, Finding},
    digest::{Digest, DigestBuilder},
    error::RegistryError,
    finding_kind::FindingKind,
    malformed::Malformed,
    name::{AgentType, GraphName, TemplateName},
    template::{Template, TemplateFile},
};

/// The templates of one directory, or of the binary.
#[derive(Clone, Debug, Default)]
pub struct Level {
    /// The files, sorted by path.
    pub files: Vec<Arc<TemplateFile>>,
    /// Findings about the directory and about files that claim no name.
    pub notes: Vec<Diagnostic>,
}

/// The file that holds a name, and the files that it shadows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file.
    pub file: Arc<TemplateFile>,
    /// The paths of files of the same name, in order of precedence.
    pub shadowed: Vec<String>,
}

impl Entry {
    /// Returns the template.
    ///
    /// # Errors
    ///
    /// [`RegistryError::TemplateInvalid`] if the file is malformed. Shadowed files are not used as a fallback, because
    /// they may be less restrictive.
    pub fn template(&self) -> Result<&Arc<Template>, RegistryError> {
        self.file
            .parsed
            .template
            .as_ref()
            .map_err(|malformed| self.invalid(malformed))
    }

    fn invalid(&self, malformed: &Malformed) -> RegistryError {
        RegistryError::TemplateInvalid {
            name: self.file.name.clone(),
            defect: malformed.clone().into(),
        }
    }
}

/// All templates that apply to one working directory.
#[derive(Clone, Debug)]
pub struct Catalog {
    agent_types: BTreeMap<AgentType, Entry>,
    role_templates: BTreeMap<GraphName, Entry>,
    diagnostics: Vec<Diagnostic>,
    revision: Digest,
}

impl Catalog {
    /// Builds the catalogue of these levels. If several levels have a file of the same name, the first of these files
    /// is used as a whole. Files are never merged.
    #[must_use]
    pub fn build(levels: &[Level]) -> Self {
        let mut agent_types = BTreeMap::new();
        let mut role_templates = BTreeMap::new();
        let mut diagnostics = Vec::new();
        for level in levels {
            diagnostics.extend(level.notes.iter().cloned());
            let mut taken: BTreeMap<&TemplateName, &str> = BTreeMap::new();
            for file in &level.files {
                diagnostics.extend(file.diagnostics());
                if let Some(first) = taken.get(&file.name) {
                    diagnostics.push(same_name(file, first));
                } else {
                    taken.insert(&file.name, &file.path);
                }
                match &file.name {
                    TemplateName::AgentType(name) => add(&mut agent_types, name, file),
                    TemplateName::RoleTemplate(name) => add(&mut role_templates, name, file),
                }
            }
        }
        diagnostics.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
        let revision = revision(agent_types.values().chain(role_templates.values()));
        Self {
            agent_types,
            role_templates,
            diagnostics,
            revision,
        }
    }

    /// Returns the agent types, in order of name.
    pub fn agent_types(&self) -> impl Iterator<Item = &Entry> {
        self.agent_types.values()
    }

    /// Returns the graph templates, in order of name.
    pub fn role_templates(&self) -> impl Iterator<Item = &Entry> {
        self.role_templates.values()
    }

    /// Returns the number of agent types and graph templates together.
    #[must_use]
    pub fn count(&self) -> usize {
        self.agent_types.len() + self.role_templates.len()
    }

    /// Returns the findings of all files that apply, including shadowed files, sorted by path.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Returns the revision, which identifies the content: catalogues with equal content have equal revisions.
    #[must_use]
    pub const fn revision(&self) -> &Digest {
        &self.revision
    }

    /// Finds an agent type. An exact match takes precedence; otherwise kebab-case and snake_case spellings are
    /// equivalent.
    ///
    /// # Errors
    ///
    /// [`RegistryError::TemplateNotFound`], [`RegistryError::AmbiguousAgentType`].
    pub fn agent_type(&self, name: &AgentType) -> Result<&Entry, RegistryError> {
        if let Some(entry) = self.agent_types.get(name) {
            return Ok(entry);
        }
        let aliases: Vec<_> = self
            .agent_types
            .iter()
            .filter(|(candidate, _)| candidate.is_alias_of(name))
            .collect();
        match aliases.as_slice() {
            [] => Err(RegistryError::TemplateNotFound {
                name: TemplateName::AgentType(name.clone()),
            }),
            [(_, entry)] => Ok(*entry),
            several => Err(RegistryError::AmbiguousAgentType {
                given: name.to_string(),
                candidates: several.iter().map(|(candidate, _)| candidate.to_string()).collect(),
            }),
        }
    }

    /// Finds a graph template by its exact name.
    ///
    /// # Errors
    ///
    /// [`RegistryError::TemplateNotFound`].
    pub fn role_template(&self, name: &GraphName) -> Result<&Entry, RegistryError> {
        self.role_templates
            .get(name)
            .ok_or_else(|| RegistryError::TemplateNotFound {
                name: TemplateName::RoleTemplate(name.clone()),
            })
    }
}

fn add<N: Ord + Clone>(entries: &mut BTreeMap<N, Entry>, name: &N, file: &Arc<TemplateFile>) {
    match entries.get_mut(name) {
        Some(entry) => entry.shadowed.push(file.path.clone()),
        None => {
            let entry = Entry {
                file: Arc::clone(file),
                shadowed: Vec::new(),
            };
            entries.insert(name.clone(), entry);
        }
    }
}

/// Returns the finding about a file whose name is already taken in its directory. Shadowing a file of another level is
/// intended and causes no finding.
fn same_name(file: &TemplateFile, first: &str) -> Diagnostic {
    let finding = Finding::warning(
        FindingKind::DuplicateName,
        None,
        format!("not used: {first} has the same name \"{}\"", file.name),
    );
    Diagnostic {
        path: file.path.clone(),
        dialect: Some(file.dialect),
        finding: finding.suggest("rename one of the two files"),
    }
}

fn revision<'a>(entries: impl Iterator<Item = &'a Entry>) -> Digest {
    let mut digest = DigestBuilder::new();
    for entry in entries {
        let file = &entry.file;
        digest
            .text("name", file.name.as_str())
            .text("path", &file.path)
            .list("shadowed", entry.shadowed.iter().map(String::as_str));
        match (&file.digest, &file.parsed.template) {
            (Some(content), _) => digest.text("content", content.as_str()),
            (None, Err(refused)) => digest.text("refused", &refused.to_string()),
            (None, Ok(_)) => digest.text("content", ""),
        };
    }
    digest.finish()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::domain::{
        dialect::Dialect,
        family::{Family, FileText},
        role,
        rules::Rules,
        template::Scope,
    };

    /// Returns a catalogue of a project's files, one level for each file. The directory determines the dialect.
    pub(crate) fn agent_files(files: &[(&str, &str)]) -> Catalog {
        agent_files_under(&Rules::default(), files)
    }

    /// Returns the same as [`agent_files`], with these rules for templates of projects.
    pub(crate) fn agent_files_under(rules: &Rules, files: &[(&str, &str)]) -> Catalog {
        let level = |&(path, text): &(&str, &str)| {
            let (family, below) = Family::of_path(path).unwrap();
            let file = FileText {
                path,
                stem: &family.stem(below).unwrap(),
                scope: Scope::Project,
                text: Ok(text),
            };
            Level {
                files: vec![Arc::new(family.read(file, rules).unwrap())],
                notes: vec![],
            }
        };
        Catalog::build(&files.iter().map(level).collect::<Vec<_>>())
    }

    /// Returns a role's file as a source would provide it.
    pub(crate) fn role_file(scope: Scope, directory: &str, name: &str, text: &str) -> Arc<TemplateFile> {
        let name = AgentType::parse(name).unwrap();
        Arc::new(TemplateFile {
            path: format!("{directory}/{name}.md"),
            parsed: role::parse(&name, text),
            name: TemplateName::AgentType(name),
            scope,
            dialect: Dialect::Role,
            digest: Some(Digest::of(text.as_bytes())),
        })
    }

    /// Returns a catalogue of one project directory with these roles.
    pub(crate) fn catalog(roles: &[(&str, &str)]) -> Catalog {
        let files = roles
            .iter()
            .map(|(name, text)| role_file(Scope::Project, "/p/.codex/.agents", name, text))
            .collect();
        Catalog::build(&[Level { files, notes: vec![] }])
    }

    fn find<'a>(catalog: &'a Catalog, name: &str) -> &'a str {
        let name = AgentType::parse(name).unwrap();
        &catalog.agent_type(&name).unwrap().file.path
    }

    #[test]
    fn spellings_are_aliases_across_dialects() {
        let catalog = agent_files(&[
            ("/p/.codex/agents/a.md", "---\nname: bug_hunter\n---\nx"),
            ("/p/.codex/.agents/worker.md", "x"),
            (
                "/p/.codex/agents/b.md",
                "---\nagent_type: my-worker\ndescription: d\nmodel: m\ncolor: red\n---\nx",
            ),
        ]);
        assert_eq!(find(&catalog, "bug-hunter"), "/p/.codex/agents/a.md");
        assert_eq!(find(&catalog, "My_Worker"), "/p/.codex/agents/b.md");
    }

    #[test]
    fn exact_name_wins_over_aliases() {
        let both = catalog(&[("bug-hunter", "x"), ("bug_hunter", "x")]);
        assert_eq!(find(&both, "Bug_Hunter"), "/p/.codex/.agents/bug_hunter.md");
        let one = catalog(&[("bug-hunter", "x")]);
        assert_eq!(find(&one, "bug_hunter"), "/p/.codex/.agents/bug-hunter.md");
    }

    #[test]
    fn revision_depends_on_content() {
        let one = catalog(&[("a", "x")]);
        assert_eq!(one.revision(), catalog(&[("a", "x")]).revision());
        assert_ne!(one.revision(), catalog(&[("a", "y")]).revision());
        assert_ne!(one.revision(), catalog(&[("b", "x")]).revision());
    }

    #[test]
    fn duplicate_name_in_directory_is_reported() {
        let first = role_file(Scope::User, "/u", "worker", "---\ndescription: d\n---\nx");
        let second = Arc::new(TemplateFile {
            path: "/u/worker2.md".to_owned(),
            ..TemplateFile::clone(&first)
        });
        let catalog = Catalog::build(&[Level {
            files: vec![first, second],
            notes: vec![],
        }]);
        assert_eq!(
            catalog.diagnostics()[0].finding.message,
            "not used: /u/worker.md has the same name \"worker\""
        );
    }
}
