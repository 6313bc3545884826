//! Handling of unknown keys: they are ignored with a warning, unless they appear to be misspelt restrictions.

use crate::domain::{
    diagnostic::Finding,
    finding_kind::FindingKind,
    frontmatter::Document,
    malformed::{Located, Malformed},
    yaml::Shape,
};

/// Maximum number of unknown keys that are reported for one file. Without the limit, the report could be many times
/// larger than the file.
pub const MAX_UNKNOWN: usize = 50;

/// The keys of one mapping of a dialect.
#[derive(Clone, Copy, Debug)]
pub struct KeySet {
    /// Every key that the dialect reads there.
    pub known: &'static [&'static str],
    /// The mapping's name in messages: `frontmatter`, `an entry of agent_names`.
    pub place: &'static str,
    /// The keys of this dialect that restrict an agent.
    pub restrictions: Restrictions,
}

/// The keys of a dialect that restrict an agent. A field is `None` if the dialect has no such key.
#[derive(Clone, Copy, Debug)]
pub struct Restrictions {
    /// The key that forces a read-only sandbox.
    pub read_only: Option<&'static str>,
    /// The key of the tool allow list.
    pub allow: Option<&'static str>,
    /// The key of the tool deny list.
    pub deny: Option<&'static str>,
    /// Whether the dialect has `spawn_list` and `grant_list`. These keys have the same names in every dialect that has
    /// them.
    pub lists: bool,
}

/// The subject of a restriction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restricts {
    ReadOnly,
    Allow,
    Deny,
    Spawn,
    Grant,
}

impl Restrictions {
    /// Returns this dialect's key for a restriction.
    const fn key(&self, restricts: Restricts) -> Option<&'static str> {
        match restricts {
            Restricts::ReadOnly => self.read_only,
            Restricts::Allow => self.allow,
            Restricts::Deny => self.deny,
            Restricts::Spawn if self.lists => Some("spawn_list"),
            Restricts::Grant if self.lists => Some("grant_list"),
            Restricts::Spawn | Restricts::Grant => None,
        }
    }
}

/// Keys that restrict an agent, in the supported dialects or in other formats that authors may have in mind.
const RESTRICTING: &[(&str, Restricts)] = &[
    ("read_only", Restricts::ReadOnly),
    ("allow_list", Restricts::Allow),
    ("deny_list", Restricts::Deny),
    ("spawn_list", Restricts::Spawn),
    ("grant_list", Restricts::Grant),
    ("tools", Restricts::Allow),
    ("tool_denylist", Restricts::Deny),
    ("allowed_tools", Restricts::Allow),
    ("disallowed_tools", Restricts::Deny),
    ("permission", Restricts::Deny),
    ("permissions", Restricts::Deny),
    ("permission_mode", Restricts::ReadOnly),
    ("sandbox_mode", Restricts::ReadOnly),
];

/// Adds a warning for each ignored key. `findings` may contain only the findings that this function added for other
/// mappings of the same file.
///
/// # Errors
///
/// If a key restricts agents in another dialect, or resembles a key that restricts agents. A typo must not make a
/// template less restricted.
pub fn check(shape: &Shape, keys: KeySet, document: &Document, findings: &mut Vec<Finding>) -> Result<(), Located> {
    let all = shape.entries().iter().map(|(key, _)| key.as_str());
    for key in all.filter(|key| !keys.known.contains(key)) {
        if let Some(why) = restriction(key, keys.restrictions) {
            return Err(why.at(document.line_of(key)));
        }
        warn(key, keys, || document.line_of(key), findings);
    }
    Ok(())
}

/// Adds a warning that a key is ignored. At the limit, adds a single warning that this key and all later unknown keys
/// are ignored. `line` finds the key's line and is costly because it scans the file.
pub fn warn(key: &str, keys: KeySet, line: impl FnOnce() -> Option<usize>, findings: &mut Vec<Finding>) {
    match findings.len() {
        ..MAX_UNKNOWN => {
            let finding = Finding::warning(
                FindingKind::UnknownKey,
                line(),
                format!("unknown key \"{key}\" in {} is ignored", keys.place),
            );
            findings.push(match nearest(key, keys.known) {
                Some(meant) => finding.suggest(format!("did you mean {meant}?")).replace(key, meant),
                None => finding,
            });
        }
        MAX_UNKNOWN => {
            let text = format!(
                "unknown key \"{key}\" in {} and all later unknown keys are ignored",
                keys.place
            );
            findings.push(Finding::warning(FindingKind::UnknownKey, line(), text));
        }
        _ => {}
    }
}

/// Returns the restriction that the author of an unknown key may have intended.
#[must_use]
pub fn restriction(key: &str, restrictions: Restrictions) -> Option<Malformed> {
    let squashed = squash(key);
    let exact = RESTRICTING.iter().find(|(name, _)| squash(name) == squashed);
    if let Some((name, restricts)) = exact
        && *name == key
    {
        return Some(match restrictions.key(*restricts) {
            Some(meant) => Malformed::MisplacedRestriction {
                key: key.to_owned(),
                meant: meant.to_owned(),
            },
            None => Malformed::UselessRestriction { key: key.to_owned() },
        });
    }
    let is_near = |name: &str| {
        let typed = strsim::osa_distance(name, key);
        typed.min(strsim::osa_distance(&squash(name), &squashed)) <= max_typo_distance(name, &squashed)
    };
    let near = exact.or_else(|| RESTRICTING.iter().find(|(name, _)| is_near(name)));
    near.map(|(_, restricts)| match restrictions.key(*restricts) {
        Some(meant) => Malformed::MisspeltRestriction {
            key: key.to_owned(),
            meant: meant.to_owned(),
        },
        None => Malformed::UselessRestriction { key: key.to_owned() },
    })
}

/// Returns the maximum edit distance at which a key counts as a typo of a name. A transposition is one edit. For names
/// as short as `tools`, distance 2 would match unrelated words such as `goals`, so it is allowed only for a key with
/// the same first letter.
fn max_typo_distance(name: &str, squashed: &str) -> usize {
    let begins_alike = name.chars().next().is_some_and(|first| squashed.starts_with(first));
    if name.len() < 8 && !begins_alike { 1 } else { 2 }
}

/// Normalises a key: `readOnly`, `read-only` and `READ_ONLY` are the same key to an author.
fn squash(key: &str) -> String {
    key.chars()
        .filter(|letter| !matches!(letter, '_' | '-' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Returns the known key that an unknown key may be a typo of.
#[must_use]
fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let candidates = known.iter().map(|name| (strsim::osa_distance(name, key), *name));
    candidates
        .filter(|(distance, _)| *distance <= 2)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: KeySet = KeySet {
        known: &[
            "description",
            "model",
            "allow_list",
            "deny_list",
            "read_only",
            "keywords",
        ],
        place: "frontmatter",
        restrictions: Restrictions {
            read_only: Some("read_only"),
            allow: Some("allow_list"),
            deny: Some("deny_list"),
            lists: true,
        },
    };

    fn run(key: &str) -> Result<Vec<Finding>, Located> {
        let document = Document::split(&format!("---\ndescription: x\n{key}: x\n---\n")).unwrap();
        let shape = Shape::Map(vec![
            ("description".to_owned(), Shape::Scalar),
            (key.to_owned(), Shape::Scalar),
        ]);
        let mut findings = Vec::new();
        check(&shape, KEYS, &document, &mut findings).map(|()| findings)
    }

    #[test]
    fn reported_unknown_keys_are_bounded() {
        let named = |earlier: usize, count: usize| {
            let keys: Vec<String> = (0..count).map(|number| format!("word{number}")).collect();
            let document = Document::split(&format!("---\n{}: x\n---\n", keys.join(": x\n"))).unwrap();
            let shape = Shape::Map(keys.into_iter().map(|key| (key, Shape::Scalar)).collect());
            let mut findings = vec![Finding::warning(FindingKind::UnknownKey, None, "of another mapping"); earlier];
            check(&shape, KEYS, &document, &mut findings).map(|()| findings.len())
        };
        assert_eq!(named(0, MAX_UNKNOWN), Ok(MAX_UNKNOWN));
        for (earlier, count) in [(0, MAX_UNKNOWN + 1), (MAX_UNKNOWN, 1), (0, 10_000)] {
            assert_eq!(
                named(earlier, count),
                Ok(MAX_UNKNOWN + 1),
                "the last one says that there are more"
            );
        }
    }

    #[test]
    fn known_keys_cause_no_finding() {
        assert_eq!(run("model"), Ok(vec![]));
    }

    #[test]
    fn harmless_unknown_keys_cause_warnings() {
        for (key, suggestion) in [
            ("color", None),
            ("name", None),
            ("goals", None),
            ("title", None),
            ("notes", None),
            ("modle", Some("did you mean model?")),
            ("keyword", Some("did you mean keywords?")),
        ] {
            let findings = run(key).unwrap();
            assert_eq!(findings.len(), 1, "{key}");
            assert_eq!(findings[0].line, Some(3), "{key}");
            assert_eq!(
                findings[0].message,
                format!("unknown key \"{key}\" in frontmatter is ignored")
            );
            assert_eq!(findings[0].suggestion.as_deref(), suggestion, "{key}");
        }
    }

    #[test]
    fn restricting_key_of_another_dialect_is_an_error() {
        for key in [
            "tools",
            "tool_denylist",
            "disallowed_tools",
            "permissions",
            "spawn_list",
        ] {
            let error = run(key).unwrap_err();
            assert_eq!(error.line, Some(3));
            assert!(matches!(error.why, Malformed::MisplacedRestriction { .. }), "{key}");
        }
    }

    #[test]
    fn misspelled_restricting_key_is_an_error() {
        for (key, meant) in [
            ("read-only", "read_only"),
            ("readOnly", "read_only"),
            ("readonly", "read_only"),
            ("reed_only", "read_only"),
            ("allow_lst", "allow_list"),
            ("allowlist", "allow_list"),
            ("alow_lst", "allow_list"),
            ("deny_lists", "deny_list"),
            ("Deny_List", "deny_list"),
            ("disallowedTools", "deny_list"),
            ("tool", "allow_list"),
            ("toosl", "allow_list"),
            ("otols", "allow_list"),
            ("tol", "allow_list"),
            ("raed_olny", "read_only"),
            ("permissionMode", "read_only"),
        ] {
            let error = run(key).unwrap_err();
            let expected = Malformed::MisspeltRestriction {
                key: key.to_owned(),
                meant: meant.to_owned(),
            };
            assert_eq!(error.why, expected, "{key}");
        }
    }
}
