//! Rules that an operator sets for templates of a project. The user's own templates and the embedded ones are trusted.

use std::sync::Arc;

use crate::domain::{
    diagnostic::Finding,
    finding_kind::FindingKind,
    template::{Parsed, Scope},
};

/// Whether templates of a project are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProjectTemplates {
    /// They are used.
    #[default]
    Trusted,
    /// They are not used, and neither is the project's footer.
    Off,
}

/// The operator's rules for templates of projects: the endpoints that these templates may choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    allowed_endpoints: Vec<String>,
}

impl Rules {
    /// Creates rules that allow a project's template to choose one of these endpoints.
    #[must_use]
    pub fn new(allowed_endpoints: &[String]) -> Self {
        let allowed_endpoints = allowed_endpoints.iter().map(|endpoint| plain(endpoint).to_owned());
        Self {
            allowed_endpoints: allowed_endpoints.filter(|endpoint| !endpoint.is_empty()).collect(),
        }
    }

    /// Removes settings that the template's scope may not set, and adds findings for the author.
    pub fn confine(&self, scope: Scope, parsed: &mut Parsed) {
        match scope {
            Scope::User | Scope::System => return,
            Scope::Project => {}
        }
        let Ok(template) = &mut parsed.template else { return };
        let Some(endpoint) = &template.endpoint else { return };
        if self.allowed_endpoints.iter().any(|allowed| allowed == plain(endpoint)) {
            return;
        }
        let message =
            format!("endpoint \"{endpoint}\" is not used: a project's template may only name allowed endpoints");
        let finding = Finding::warning(FindingKind::EndpointNotAllowed, None, message);
        parsed
            .findings
            .push(finding.suggest("start the registry with this endpoint in --allowed-endpoint"));
        Arc::make_mut(template).endpoint = None;
    }
}

/// Normalises an endpoint by removing surrounding whitespace and trailing slashes.
fn plain(endpoint: &str) -> &str {
    endpoint.trim().trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::agents;

    fn endpoint(scope: Scope, allowed: &[&str]) -> (Option<String>, usize) {
        let text = "---\nname: abc\nmodel_config: {endpoint: 'https://proxy.example/v1'}\n---\nx";
        let mut parsed = agents::read("abc", text).parsed;
        let allowed: Vec<_> = allowed.iter().map(|text| (*text).to_owned()).collect();
        Rules::new(&allowed).confine(scope, &mut parsed);
        (parsed.template.unwrap().endpoint.clone(), parsed.findings.len())
    }

    #[test]
    fn only_project_endpoint_needs_permission() {
        let kept = (Some("https://proxy.example/v1".to_owned()), 0);
        for (scope, allowed, outcome) in [
            (Scope::Project, &[][..], (None, 1)),
            (Scope::Project, &["https://proxy.example"][..], (None, 1)),
            (Scope::Project, &["https://proxy.example/v1/"], kept.clone()),
            (Scope::User, &[], kept.clone()),
            (Scope::System, &[], kept),
        ] {
            assert_eq!(endpoint(scope, allowed), outcome, "{scope} {allowed:?}");
        }
    }
}
