//! The directories that hold templates: their locations, the names of their template files, and their dialects.

use std::borrow::Cow;

use crate::domain::{
    agents::{self, Agent},
    diagnostic::{Diagnostic, Finding},
    dialect::Dialect,
    digest::Digest,
    finding_kind::FindingKind,
    foreign::{self, ForeignFormat},
    frontmatter::Document,
    graph,
    name::{AgentType, GraphName, MAX_BYTES, TemplateName},
    role,
    rules::Rules,
    template::{Parsed, Scope, TemplateFile},
    yaml,
};

/// The stems of documentation files, which are ignored in every directory.
pub const NEVER_TEMPLATES: &[&str] = &["readme", "agents"];

/// The kind of templates in a directory, in order of precedence within one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Roles.
    Roles,
    /// Profiles and subagents, in this order.
    Agents,
    /// Another program's agents.
    Foreign(ForeignFormat),
    /// Graph templates.
    Graph,
}

/// A file of a directory.
#[derive(Clone, Copy, Debug)]
pub struct FileText<'a> {
    /// Its path, for messages.
    pub path: &'a str,
    /// Its name without the template suffix; see [`Family::stem`].
    pub stem: &'a str,
    /// The scope that it belongs to.
    pub scope: Scope,
    /// The text, or the reason why it was not read.
    pub text: Result<&'a str, &'a str>,
}

impl Family {
    /// Returns the directories, relative to a project's directory or a home.
    #[must_use]
    pub const fn directories(self, scope: Scope) -> &'static [&'static str] {
        match (self, scope) {
            (Self::Roles, _) => &[".codex/.agents"],
            (Self::Agents, _) => &[".codex/agents"],
            (Self::Graph, Scope::Project) => &["docs/templates"],
            (Self::Graph, Scope::User | Scope::System) => &[],
            (Self::Foreign(format), scope) => format.directories(scope),
        }
    }

    /// Returns whether templates may lie in subdirectories.
    #[must_use]
    pub const fn has_folders(self) -> bool {
        match self {
            Self::Roles | Self::Agents | Self::Graph => false,
            Self::Foreign(format) => format.has_folders(),
        }
    }

    /// Returns the stem of a file from its path below the directory, or `None` if the file is not a template.
    /// Subdirectories are part of the stem, with `-` in place of `/`, which names cannot contain.
    #[must_use]
    pub fn stem(self, path: &str) -> Option<Cow<'_, str>> {
        match path.rsplit_once('/') {
            None => self.stem_of_name(path).map(Cow::Borrowed),
            Some((folders, file_name)) if self.has_folders() => {
                let stem = self.stem_of_name(file_name)?;
                Some(Cow::Owned(format!("{}-{stem}", folders.replace('/', "-"))))
            }
            Some(_) => None,
        }
    }

    fn stem_of_name(self, file_name: &str) -> Option<&str> {
        let ending = match self {
            Self::Roles | Self::Agents | Self::Graph => ".md",
            Self::Foreign(format) => format.ending(),
        };
        let split = file_name.len().checked_sub(ending.len())?;
        let (stem, found) = (file_name.get(..split)?, file_name.get(split..)?);
        let is_for_people = NEVER_TEMPLATES.iter().any(|never| stem.eq_ignore_ascii_case(never));
        (found.eq_ignore_ascii_case(ending) && !is_for_people).then_some(stem)
    }

    /// Returns the family of the directory in which a path lies, and the path below that directory.
    #[must_use]
    pub fn of_path(path: &str) -> Option<(Self, &str)> {
        let mut families = [Self::Roles, Self::Agents]
            .into_iter()
            .chain(ForeignFormat::ALL.iter().copied().map(Self::Foreign))
            .chain([Self::Graph]);
        families.find_map(|family| {
            let scopes = [Scope::Project, Scope::User];
            let mut directories = scopes.into_iter().flat_map(|scope| family.directories(scope));
            let below = directories.find_map(|directory| Some(family.below(directory, path)?.1))?;
            family.stem(below).is_some().then_some((family, below))
        })
    }

    /// Splits the path of a file in one of the family's directories. Returns the part before the directory (empty, or
    /// with a trailing `/`) and the path below the directory. If the path contains the directory several times, the
    /// last occurrence counts.
    #[must_use]
    pub fn below<'a>(self, directory: &str, path: &'a str) -> Option<(&'a str, &'a str)> {
        let mut splits = path.rmatch_indices('/').map(|(at, _)| (&path[..at], &path[at + 1..]));
        let split = |(parent, below): (&'a str, &'a str)| {
            let base = parent.strip_suffix(directory)?;
            (base.is_empty() || base.ends_with('/')).then_some((base, below))
        };
        if self.has_folders() {
            splits.find_map(split)
        } else {
            splits.next().and_then(split)
        }
    }

    /// Returns the dialect of a file that was not parsed.
    const fn dialect(self) -> Dialect {
        match self {
            Self::Roles => Dialect::Role,
            Self::Agents => Dialect::Profile,
            Self::Foreign(_) => Dialect::Foreign,
            Self::Graph => Dialect::Graph,
        }
    }

    /// Returns an upper bound for the work of [`Self::read`] on a text, in units of about a byte of plain YAML. Bodies
    /// are cheap and do not count.
    #[must_use]
    pub fn work(self, text: &str) -> usize {
        /// The work of any file.
        const FILE: usize = 256;
        let header = match self {
            Self::Graph | Self::Foreign(ForeignFormat::Codex) => text.len(),
            // An additional parse is needed to detect which of the two dialects a file has.
            Self::Agents => 2 * yaml::work(Document::header(text)),
            Self::Roles | Self::Foreign(_) => yaml::work(Document::header(text)),
        };
        FILE + header
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// A diagnostic for the author if the file claims no name.
    pub fn read(self, file: FileText<'_>, rules: &Rules) -> Result<TemplateFile, Diagnostic> {
        let claimed = match self {
            Self::Roles => read_role(file),
            Self::Agents => Ok(read_agent(file)),
            Self::Foreign(format) => read_foreign(format, file),
            Self::Graph => read_graph(file),
        };
        let (name, dialect, mut parsed) = claimed
            .and_then(|claimed| match &claimed.0 {
                TemplateName::AgentType(name) if name.is_default() => Err(no_default()),
                TemplateName::AgentType(_) | TemplateName::RoleTemplate(_) => Ok(claimed),
            })
            .map_err(|finding| Diagnostic {
                path: file.path.to_owned(),
                dialect: Some(self.dialect()),
                finding,
            })?;
        rules.confine(file.scope, &mut parsed);
        Ok(TemplateFile {
            name,
            scope: file.scope,
            dialect,
            path: file.path.to_owned(),
            digest: file.text.ok().map(|text| Digest::of(text.as_bytes())),
            parsed,
        })
    }
}

/// The name, dialect and parsed content of a file.
type Claimed = (TemplateName, Dialect, Parsed);

fn read_role(file: FileText<'_>) -> Result<Claimed, Finding> {
    let name = AgentType::parse(file.stem).map_err(|error| {
        Finding::warning(FindingKind::UnusableName, None, format!("not used: {error}")).suggest(format!(
            "rename the file: at most {MAX_BYTES} letters, digits, - and _, then .md"
        ))
    })?;
    let parsed = file.text.map_or_else(Parsed::refused, |text| role::parse(&name, text));
    Ok((TemplateName::AgentType(name), Dialect::Role, parsed))
}

fn read_agent(file: FileText<'_>) -> Claimed {
    let Agent { name, dialect, parsed } = match file.text {
        Ok(text) => agents::read(file.stem, text),
        // The dialect is unknown. The file is treated as a profile, because profiles take precedence over subagents.
        Err(why) => Agent {
            name: AgentType::salvage(file.stem),
            dialect: Dialect::Profile,
            parsed: Parsed::refused(why),
        },
    };
    (TemplateName::AgentType(name), dialect, parsed)
}

fn read_foreign(format: ForeignFormat, file: FileText<'_>) -> Result<Claimed, Finding> {
    let (name, parsed) = match file.text {
        Ok(text) => foreign::read(format, file.stem, text)?,
        Err(why) => (AgentType::salvage(file.stem), Parsed::refused(why)),
    };
    Ok((TemplateName::AgentType(name), Dialect::Foreign, parsed))
}

fn read_graph(file: FileText<'_>) -> Result<Claimed, Finding> {
    let name = GraphName::parse(file.stem).ok_or_else(|| {
        let why = format!("not used: the name before .md is blank or has over {MAX_BYTES} bytes");
        Finding::warning(FindingKind::UnusableName, None, why)
    })?;
    let parsed = file
        .text
        .map_or_else(Parsed::refused, |text| graph::parse_named(&name, text));
    Ok((TemplateName::RoleTemplate(name), Dialect::Graph, parsed))
}

fn no_default() -> Finding {
    Finding::warning(
        FindingKind::UnusableName,
        None,
        "not used: \"default\" means to spawn without a template",
    )
    .suggest("give the file another name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(family: Family, file_name: &str, text: Result<&str, &str>) -> Result<TemplateFile, Diagnostic> {
        let file = FileText {
            path: file_name,
            stem: &family.stem(file_name).unwrap(),
            scope: Scope::Project,
            text,
        };
        family.read(file, &Rules::default())
    }

    #[test]
    fn file_name_decides_if_file_is_template() {
        let codex = Family::Foreign(ForeignFormat::Codex);
        let copilot = Family::Foreign(ForeignFormat::Copilot);
        let opencode = Family::Foreign(ForeignFormat::OpenCode);
        for (family, file_name, stem) in [
            (Family::Roles, "worker.md", Some("worker")),
            (Family::Roles, "Worker.MD", Some("Worker")),
            (Family::Roles, "a.b.md", Some("a.b")),
            (Family::Roles, "worker.txt", None),
            (Family::Roles, "worker", None),
            (Family::Roles, "md", None),
            (Family::Roles, "é", None),
            (Family::Roles, "README.md", None),
            (Family::Agents, "Agents.md", None),
            (Family::Graph, "readme.MD", None),
            (Family::Agents, "worker.toml", None),
            (codex, "worker.toml", Some("worker")),
            (codex, "worker.md", None),
            (copilot, "my.agent.md", Some("my")),
            (copilot, "my.md", None),
            (copilot, "a/my.agent.md", None),
            (Family::Roles, "a/worker.md", None),
            (opencode, "worker.md", Some("worker")),
            (opencode, "review/deep/security.md", Some("review-deep-security")),
            (opencode, "review/README.md", None),
        ] {
            assert_eq!(family.stem(file_name).as_deref(), stem, "{file_name}");
        }
    }

    #[test]
    fn directory_decides_family() {
        for (path, family) in [
            ("/p/.codex/.agents/a.md", Some(Family::Roles)),
            (".codex/agents/a.md", Some(Family::Agents)),
            ("/p/.codex/agents/a.toml", Some(Family::Foreign(ForeignFormat::Codex))),
            ("/p/docs/templates/a.md", Some(Family::Graph)),
            (
                "/p/.claude/agents/a.md",
                Some(Family::Foreign(ForeignFormat::ClaudeCode)),
            ),
            (
                "/p/.opencode/agents/a.md",
                Some(Family::Foreign(ForeignFormat::OpenCode)),
            ),
            (
                "/p/.opencode/agent/deep/er/a.md",
                Some(Family::Foreign(ForeignFormat::OpenCode)),
            ),
            ("/p/x.opencode/agents/a.md", None),
            ("/p/.claude/agents/deep/a.md", None),
            (
                "/h/.config/opencode/agents/a.md",
                Some(Family::Foreign(ForeignFormat::OpenCode)),
            ),
            (
                "/p/.github/agents/a.agent.md",
                Some(Family::Foreign(ForeignFormat::Copilot)),
            ),
            ("/p/.gemini/agents/a.md", Some(Family::Foreign(ForeignFormat::Gemini))),
            ("/p/agents/a.md", None),
            ("/p/.codex/.agents/README.md", None),
            ("a.md", None),
        ] {
            let found = Family::of_path(path).map(|(family, _)| family);
            assert_eq!(found, family, "{path}");
        }
    }

    #[test]
    fn unreadable_file_keeps_its_name() {
        for (family, file_name) in [
            (Family::Roles, "worker.md"),
            (Family::Agents, "worker.md"),
            (Family::Graph, "worker.md"),
            (Family::Foreign(ForeignFormat::Codex), "worker.toml"),
        ] {
            let file = read(family, file_name, Err("too large")).unwrap();
            assert_eq!(file.name.as_str(), "worker");
            assert_eq!(file.digest, None);
            assert_eq!(file.parsed.template.unwrap_err().to_string(), "too large");
        }
    }

    #[test]
    fn overlong_name_is_reported() {
        let long = "x".repeat(MAX_BYTES + 1);
        let file_name = format!("{long}.md");
        for family in [Family::Roles, Family::Graph] {
            let note = read(family, &file_name, Ok("x")).unwrap_err();
            assert!(note.finding.message.starts_with("not used: "), "{note:?}");
        }
        let text = format!("---\nname: {long}\ndescription: d\n---\nx");
        for family in [Family::Agents, Family::Foreign(ForeignFormat::ClaudeCode)] {
            for (file_name, name) in [("a.md", "a"), (file_name.as_str(), &long[1..])] {
                let file = read(family, file_name, Ok(&text)).unwrap();
                assert_eq!(file.name.as_str(), name);
                assert!(file.parsed.template.is_err());
            }
        }
    }

    #[test]
    fn default_is_not_a_valid_template_name() {
        let text = "---\nname: default\n---\nx";
        for family in [
            Family::Roles,
            Family::Agents,
            Family::Foreign(ForeignFormat::ClaudeCode),
        ] {
            let note = read(family, "default.md", Ok(text)).unwrap_err();
            assert!(note.finding.message.contains("\"default\""), "{note:?}");
        }
        assert!(read(Family::Graph, "default.md", Ok("x")).is_ok());
    }
}
