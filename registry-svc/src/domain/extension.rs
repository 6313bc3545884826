//! Troupe's own keys, which every YAML dialect accepts: `spawn_list`, `grant_list`, `keywords`.

use tool_policy::{MatchMode, Policy};

use crate::domain::{
    diagnostic::Finding,
    frontmatter::Document,
    lists::{self, WhenEmpty},
    malformed::{Located, Malformed},
    name::AgentType,
    template::ToolLists,
    yaml::Shape,
};

/// The keys as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw {
    /// `spawn_list`.
    pub spawn_list: Option<Vec<String>>,
    /// `grant_list`.
    pub grant_list: Option<Vec<String>>,
    /// `keywords`.
    pub keywords: Option<Vec<String>>,
}

/// The normalised keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Agent types that may be spawned. Empty: any.
    pub spawn_list: Vec<String>,
    /// Patterns of the tools that children may have. Empty: the tools of the thread's own policy.
    pub grant_list: Vec<String>,
    /// Words by which routing finds the template.
    pub keywords: Vec<String>,
}

/// Normalises the keys.
///
/// # Errors
///
/// If a list has only blank entries, or an entry of `spawn_list` is not an agent type.
pub fn read(raw: Raw, from: (&Document, &Shape), findings: &mut Vec<Finding>) -> Result<Extensions, Located> {
    let mut list = |key, raw, when_empty| lists::clean(key, raw, when_empty, from, findings);
    let spawn_list = list("spawn_list", raw.spawn_list, WhenEmpty::Unrestricted)?;
    let grant_list = list("grant_list", raw.grant_list, WhenEmpty::Unrestricted)?;
    let keywords = list("keywords", raw.keywords, WhenEmpty::Nothing)?;
    Ok(Extensions {
        spawn_list: agent_types(spawn_list).map_err(|why| why.at(from.0.line_of("spawn_list")))?,
        grant_list,
        keywords,
    })
}

/// Compiles the patterns once, so that an invalid pattern is reported to its author and not at the first spawn. `name`
/// is used in messages only.
///
/// # Errors
///
/// [`Malformed::BadPattern`].
pub fn check_patterns(name: &str, tools: &ToolLists, grant_list: &[String]) -> Result<(), Malformed> {
    let mut grant = tools.layer(name);
    // `grant_list` is a Troupe key and names canonical tools in every dialect.
    grant.mode = MatchMode::Glob;
    grant.allow = grant_list.to_vec();
    grant.deny.clear();
    Policy::compile(vec![tools.layer(name), grant])?;
    Ok(())
}

fn agent_types(list: Vec<String>) -> Result<Vec<String>, Malformed> {
    let mut names = Vec::with_capacity(list.len());
    for entry in list {
        match AgentType::parse(&entry) {
            Ok(name) => names.push(name.to_string()),
            Err(_) => return Err(Malformed::BadSpawnEntry(entry)),
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}
