//! The common representation of templates of all dialects.

use std::{collections::BTreeMap, fmt, sync::Arc};

use tool_policy::{Layer, MatchMode};

use crate::domain::{
    diagnostic::{Diagnostic, Finding},
    dialect::Dialect,
    digest::Digest,
    effort::Effort,
    finding_kind::FindingKind,
    malformed::{Incomplete, Located, Malformed},
    name::{PersonaName, TemplateName},
};

/// The origin of a template, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// A directory of the project.
    Project,
    /// The user's home, or a site-wide one.
    User,
    /// The binary.
    System,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Project => "project",
            Self::User => "user",
            Self::System => "system",
        })
    }
}

/// The tool lists of a template. Empty lists restrict nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolLists {
    /// The match mode of the patterns, which the dialect determines.
    pub mode: MatchMode,
    /// Patterns that are allowed.
    pub allow: Vec<String>,
    /// Patterns that are denied.
    pub deny: Vec<String>,
}

impl ToolLists {
    /// Returns the policy layer of these lists. `name` is the template's name.
    #[must_use]
    pub fn layer(&self, name: &str) -> Layer {
        Layer {
            origin: format!("role:{name}"),
            mode: self.mode,
            allow: self.allow.clone(),
            deny: self.deny.clone(),
        }
    }
}

/// A variant of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persona {
    /// Its name.
    pub name: PersonaName,
    /// A one-line description of how the persona differs from the role.
    pub description: Option<String>,
    /// Its model, which overrides the role's.
    pub model: Option<String>,
    /// Its effort, which overrides the role's.
    pub effort: Option<Effort>,
    /// Its text, which replaces the default prompt. Never blank.
    pub prompt: String,
}

/// The requirements for listing a template, which the dialect determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A default prompt, and descriptions of the role and of each persona.
    Description,
    /// A default prompt; a description is optional.
    PromptOnly,
}

/// The operations that a node of a graph template may perform on the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeManagement {
    /// Nothing.
    None,
    /// Manage the edges of its own node.
    Own,
    /// Manage every edge and spawn nodes.
    All,
}

/// A valid template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// A one-line description of the role.
    pub description: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// Its effort.
    pub effort: Option<Effort>,
    /// Its model's provider.
    pub provider: Option<String>,
    /// The URL that replaces the provider's base URL. `None` if the template's scope may not set one.
    pub endpoint: Option<String>,
    /// Settings for the provider, as JSON texts.
    pub parameters: BTreeMap<String, String>,
    /// Whether it forces the sandbox read-only.
    pub read_only: bool,
    /// Its tool lists.
    pub tools: ToolLists,
    /// Agent types that its threads may spawn; empty: any.
    pub spawn_list: Vec<String>,
    /// Patterns of the tools that children of its threads may have; empty: the tools of the thread's own policy.
    pub grant_list: Vec<String>,
    /// Words by which routing finds it.
    pub keywords: Vec<String>,
    /// The version that it declares.
    pub version: Option<String>,
    /// The capabilities that it declares.
    pub capabilities: Vec<String>,
    /// The constraints that it declares.
    pub constraints: Vec<String>,
    /// The requirements for listing it.
    pub needs: Needs,
    /// The text that applies if no persona is selected; `None` if blank. Trimmed, but verbatim in a subagent.
    pub default_prompt: Option<String>,
    /// The personas, sorted by name.
    pub personas: Vec<Persona>,
}

impl Template {
    /// Creates a template that declares nothing. `mode` is the dialect's match mode.
    #[must_use]
    pub const fn empty(mode: MatchMode) -> Self {
        Self {
            description: None,
            model: None,
            effort: None,
            provider: None,
            endpoint: None,
            parameters: BTreeMap::new(),
            read_only: false,
            tools: ToolLists {
                mode,
                allow: Vec::new(),
                deny: Vec::new(),
            },
            spawn_list: Vec::new(),
            grant_list: Vec::new(),
            keywords: Vec::new(),
            version: None,
            capabilities: Vec::new(),
            constraints: Vec::new(),
            needs: Needs::Description,
            default_prompt: None,
            personas: Vec::new(),
        }
    }

    /// Checks that the template meets the requirements for listing.
    ///
    /// # Errors
    ///
    /// The first unmet requirement: description, default prompt, then the personas' descriptions in order of name.
    pub fn complete(&self) -> Result<(), Incomplete> {
        if self.description.is_none() && self.needs == Needs::Description {
            return Err(Incomplete::Description);
        }
        if self.default_prompt.is_none() {
            return Err(Incomplete::DefaultPrompt);
        }
        match self.personas.iter().find(|persona| persona.description.is_none()) {
            Some(persona) => Err(Incomplete::PersonaDescription(persona.name.clone())),
            None => Ok(()),
        }
    }

    /// Returns the operations on the graph that the template's capabilities allow.
    #[must_use]
    pub fn edge_management(&self) -> EdgeManagement {
        let declares = |wanted: &[&str]| self.capabilities.iter().any(|name| wanted.contains(&name.as_str()));
        if declares(&["edge_management_all", "spawn_nodes"]) {
            EdgeManagement::All
        } else if declares(&["edge_management_self"]) {
            EdgeManagement::Own
        } else {
            EdgeManagement::None
        }
    }
}

/// Maximum number of findings kept for one file. Without the limit, the findings could be many times larger than the
/// file.
pub const MAX_FINDINGS: usize = 100;

/// The result of parsing a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The template, or the reason why the file is malformed.
    pub template: Result<Arc<Template>, Malformed>,
    /// Findings for the file's author, including the cause of a failure.
    pub findings: Vec<Finding>,
}

impl Parsed {
    /// Returns the result for a file that was not read.
    #[must_use]
    pub fn refused(why: &str) -> Self {
        Self::new(Err(Malformed::Refused(why.to_owned()).into()), Vec::new())
    }

    /// Combines a parser's outcome with the warnings that it collected.
    #[must_use]
    pub fn new(outcome: Result<Template, Located>, mut findings: Vec<Finding>) -> Self {
        if findings.len() > MAX_FINDINGS {
            let more = findings.len() - MAX_FINDINGS;
            findings.truncate(MAX_FINDINGS);
            findings.push(Finding::warning(
                FindingKind::MoreFindings,
                None,
                format!("{more} more findings are not shown"),
            ));
            findings.shrink_to_fit();
        }
        match outcome {
            Ok(template) => {
                if let Err(incomplete) = template.complete() {
                    findings.push(
                        Finding::error(incomplete.kind(), None, incomplete.to_string())
                            .suggest("the template can be spawned, but a strict listing of all agents fails"),
                    );
                }
                Self {
                    template: Ok(Arc::new(template)),
                    findings,
                }
            }
            Err(Located { line, why }) => {
                let finding = Finding::error(why.kind(), line, why.to_string());
                findings.push(Finding {
                    suggestion: why.suggestion(),
                    replacement: why.replacement().map(Box::new),
                    ..finding
                });
                Self {
                    template: Err(why),
                    findings,
                }
            }
        }
    }
}

/// A parsed file that claims the name of a template. A malformed file keeps the name too, because templates of lower
/// precedence may be less restrictive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFile {
    /// The claimed name.
    pub name: TemplateName,
    /// The scope where it was found.
    pub scope: Scope,
    /// The dialect in which it was read.
    pub dialect: Dialect,
    /// Its path.
    pub path: String,
    /// SHA-256 of its bytes; `None` if they were not read.
    pub digest: Option<Digest>,
    /// The parsed content.
    pub parsed: Parsed,
}

impl TemplateFile {
    /// Returns the file's findings as diagnostics.
    pub fn diagnostics(&self) -> impl Iterator<Item = Diagnostic> {
        self.parsed.findings.iter().map(|finding| Diagnostic {
            path: self.path.clone(),
            dialect: Some(self.dialect),
            finding: finding.clone(),
        })
    }
}

/// Returns the trimmed text, or `None` if it is blank.
#[must_use]
pub fn non_blank(text: Option<String>) -> Option<String> {
    let text = text?;
    let trimmed = text.trim();
    (!trimmed.is_empty()).then(|| trimmed.to_owned())
}
