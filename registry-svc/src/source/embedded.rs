//! The templates in the binary.

use std::sync::Arc;

use include_dir::{Dir, include_dir};

use crate::{
    domain::{
        catalog::Level,
        dialect::Dialect,
        digest::Digest,
        name::{AgentType, GraphName, TemplateName},
        prompt::SharedTexts,
        template::{Scope, TemplateFile},
    },
    source::{directory, footer, seed::SeedFile},
};

static TEMPLATES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../templates");

/// Returns the roles.
#[must_use]
pub(crate) fn roles() -> Level {
    level("agents", Dialect::Role, |stem| {
        AgentType::parse(stem).ok().map(TemplateName::AgentType)
    })
}

/// Returns the graph templates.
#[must_use]
pub(crate) fn graphs() -> Level {
    level("graph", Dialect::Graph, |stem| {
        GraphName::parse(stem).map(TemplateName::RoleTemplate)
    })
}

/// Returns the texts that every prompt shares.
#[must_use]
pub(crate) fn texts() -> SharedTexts {
    SharedTexts {
        system: text("system/system.md").into(),
        planning: text("modes/planning.md").into(),
        implementation: text("modes/implementation.md").into(),
    }
}

/// Returns the footer.
#[must_use]
pub(crate) fn footer() -> Arc<str> {
    text("collab/codex_system_footer.md").into()
}

/// Returns the files of the roles for seeding.
#[must_use]
pub(crate) fn role_files() -> Vec<SeedFile> {
    files("agents").map(|(name, text)| SeedFile { name, text }).collect()
}

/// Returns the file of the footer for seeding.
#[must_use]
pub(crate) fn footer_files() -> Vec<SeedFile> {
    vec![SeedFile {
        name: footer::FILE,
        text: text("collab/codex_system_footer.md"),
    }]
}

fn level(folder: &str, dialect: Dialect, name: impl Fn(&str) -> Option<TemplateName>) -> Level {
    let files = files(folder)
        .filter_map(|(file_name, text)| {
            let name = name(file_name.strip_suffix(".md")?)?;
            Some(Arc::new(TemplateFile {
                parsed: directory::parse(&name, text),
                name,
                scope: Scope::System,
                dialect,
                path: format!("embedded:{folder}/{file_name}"),
                digest: Some(Digest::of(text.as_bytes())),
            }))
        })
        .collect();
    Level {
        files,
        notes: Vec::new(),
    }
}

/// Returns the Markdown files of a folder with their names.
fn files(folder: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let folder = TEMPLATES.get_dir(folder);
    folder.into_iter().flat_map(|folder| folder.files()).filter_map(|file| {
        let name = file.path().file_name()?.to_str()?;
        Some((name, file.contents_utf8()?)).filter(|_| name.ends_with(".md"))
    })
}

/// Returns the text of an embedded file. A test checks that every requested path exists.
fn text(path: &str) -> &'static str {
    TEMPLATES
        .get_file(path)
        .and_then(|file| file.contents_utf8())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        catalog::Catalog,
        list::{self, Selection, Violations},
    };

    #[test]
    fn embedded_templates_have_no_findings() {
        let catalog = Catalog::build(&[roles(), graphs()]);
        assert_eq!(catalog.diagnostics(), []);
        let names = |selection| -> Vec<String> {
            let listed = list::list(&catalog, &selection, Violations::Refuse).unwrap();
            listed.iter().map(|item| item.entry.file.name.to_string()).collect()
        };
        assert_eq!(
            names(Selection::AgentTypes),
            [
                "architect",
                "bug-hunter",
                "explorer",
                "orchestrator",
                "reviewer",
                "worker"
            ]
        );
        assert_eq!(
            names(Selection::RoleTemplates),
            ["implementer", "investigator", "orchestrator", "planner", "reviewer"]
        );
        assert_eq!(role_files().len(), 6);
    }
}
