//! The contents of a ListAgents response.

use std::sync::Arc;

use crate::domain::{
    catalog::{Catalog, Entry},
    diagnostic::Diagnostic,
    dialect::Dialect,
    error::RegistryError,
    name::{AgentType, GraphName},
    template::Template,
};

/// The templates to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every agent type.
    AgentTypes,
    /// One agent type.
    AgentType(AgentType),
    /// Every graph template.
    RoleTemplates,
    /// One graph template.
    RoleTemplate(GraphName),
}

/// The handling of templates that do not meet the requirements for listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violations {
    /// Fail with the first one.
    Refuse,
    /// Omit them.
    LeaveOut,
}

/// A template that meets the requirements for listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'catalog> {
    /// Its entry.
    pub entry: &'catalog Entry,
    /// The parsed template.
    pub template: &'catalog Arc<Template>,
}

/// Lists templates, in order of name.
///
/// # Errors
///
/// If a selected name does not exist. With [`Violations::Refuse`], also if a selected template does not meet the
/// requirements for listing; the first in order of name is reported. A foreign agent fails only a listing of itself,
/// because its author wrote it for another program.
pub fn list<'catalog>(
    catalog: &'catalog Catalog,
    selection: &Selection,
    violations: Violations,
) -> Result<Vec<Listed<'catalog>>, RegistryError> {
    let mut listed = Vec::new();
    for entry in selected(catalog, selection)? {
        match (listable_template(entry), violations) {
            (Ok(template), _) => listed.push(Listed { entry, template }),
            (Err(_), Violations::Refuse) if is_all(selection) && entry.file.dialect == Dialect::Foreign => {}
            (Err(error), Violations::Refuse) => return Err(error),
            (Err(_), Violations::LeaveOut) => {}
        }
    }
    Ok(listed)
}

/// Returns the diagnostics of a selection: all diagnostics, or those of the selected template's file.
///
/// # Errors
///
/// If a selected name does not exist.
pub fn diagnostics(catalog: &Catalog, selection: &Selection) -> Result<Vec<Diagnostic>, RegistryError> {
    match selection {
        Selection::AgentTypes | Selection::RoleTemplates => Ok(catalog.diagnostics().to_vec()),
        Selection::AgentType(_) | Selection::RoleTemplate(_) => {
            let entries = selected(catalog, selection)?;
            Ok(entries.iter().flat_map(|entry| entry.file.diagnostics()).collect())
        }
    }
}

const fn is_all(selection: &Selection) -> bool {
    match selection {
        Selection::AgentTypes | Selection::RoleTemplates => true,
        Selection::AgentType(_) | Selection::RoleTemplate(_) => false,
    }
}

fn selected<'catalog>(
    catalog: &'catalog Catalog,
    selection: &Selection,
) -> Result<Vec<&'catalog Entry>, RegistryError> {
    Ok(match selection {
        Selection::AgentTypes => catalog.agent_types().collect(),
        Selection::RoleTemplates => catalog.role_templates().collect(),
        Selection::AgentType(name) => vec![catalog.agent_type(name)?],
        Selection::RoleTemplate(name) => vec![catalog.role_template(name)?],
    })
}

fn listable_template(entry: &Entry) -> Result<&Arc<Template>, RegistryError> {
    let template = entry.template()?;
    match template.complete() {
        Ok(()) => Ok(template),
        Err(incomplete) => Err(RegistryError::TemplateInvalid {
            name: entry.file.name.clone(),
            defect: incomplete.into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::catalog::tests::{agent_files, catalog};

    const GOOD: &str = "---\ndescription: d\n---\nprompt";

    fn names(roles: &[(&str, &str)], filter: Option<&str>, violations: Violations) -> Result<Vec<String>, String> {
        let catalog = catalog(roles);
        let selection = match filter {
            Some(name) => Selection::AgentType(AgentType::parse(name).unwrap()),
            None => Selection::AgentTypes,
        };
        let listed = list(&catalog, &selection, violations).map_err(|error| error.to_string())?;
        Ok(listed.iter().map(|item| item.entry.file.name.to_string()).collect())
    }

    #[test]
    fn listing_is_sorted_by_name() {
        let listed = names(&[("b", GOOD), ("a", GOOD), ("a-c", GOOD)], None, Violations::Refuse);
        assert_eq!(listed.unwrap(), ["a", "a-c", "b"]);
    }

    #[test]
    fn violation_error_has_exact_text() {
        for (text, defect) in [
            ("prompt", "missing required frontmatter description"),
            ("---\ndescription: d\n---\n", "missing required default prompt block"),
            (
                "---\ndescription: d\n---\nx\n<!-- agent_name: n -->\ny",
                "found agent_name blocks but frontmatter agent_names is missing",
            ),
            (
                "---\ndescription: d\nagent_names: [{name: n}]\n---\nx\n<!-- agent_name: n -->\ny",
                "missing description for agent_name \"n\"",
            ),
        ] {
            let roles = [("good", GOOD), ("bad", text)];
            let error = format!("invalid agent template \"bad\": {defect}");
            assert_eq!(names(&roles, None, Violations::Refuse), Err(error.clone()));
            assert_eq!(names(&roles, Some("bad"), Violations::Refuse), Err(error));
            assert_eq!(
                names(&roles, Some("good"), Violations::Refuse),
                Ok(vec!["good".to_owned()])
            );
            assert_eq!(names(&roles, None, Violations::LeaveOut), Ok(vec!["good".to_owned()]));
        }
    }

    #[test]
    fn foreign_agent_fails_only_its_own_listing() {
        let catalog = agent_files(&[
            ("/p/.claude/agents/broken.md", "no frontmatter"),
            ("/p/.claude/agents/good.md", "---\nname: good\ndescription: d\n---\nx"),
        ]);
        let run = |selection| list(&catalog, &selection, Violations::Refuse).map(|listed| listed.len());
        assert_eq!(run(Selection::AgentTypes), Ok(1));
        let broken = AgentType::parse("broken").unwrap();
        assert!(matches!(
            run(Selection::AgentType(broken)),
            Err(RegistryError::TemplateInvalid { .. })
        ));
        assert_eq!(catalog.diagnostics().len(), 1);
    }

    #[test]
    fn first_violation_by_name_is_returned() {
        let roles = [("b", "x"), ("a", "---\nread_only:\n---\nx")];
        let error = names(&roles, None, Violations::Refuse).unwrap_err();
        assert!(
            error.starts_with("invalid agent template \"a\": invalid YAML: "),
            "{error}"
        );
    }
}
