//! Checks of a single text with the registry's rules, without a registry.

mod recovery;
mod references;

use std::{borrow::Cow, path::Path, sync::Arc};

pub use crate::domain::encoding::MAX_BYTES;
use crate::domain::{
    diagnostic::{Diagnostic, Finding, Replacement},
    dialect::Dialect,
    encoding,
    family::{Family, FileText},
    finding_kind::FindingKind,
    foreign::ForeignFormat,
    name::{AgentType, TemplateName},
    rules::Rules,
    template::{Scope, Template, TemplateFile},
};

/// Maximum number of errors that are searched for in one text.
const MAX_ERRORS: usize = 20;

/// The kind of template to read a text as. For an agent of another program, the path determines the program. If the
/// path names no program, the text is read as an agent of Claude Code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LintKind {
    /// `.codex/.agents/*.md`
    Role,
    /// `.codex/agents/*.md`: profiles and subagents, distinguished by their keys
    CodexAgent,
    /// `docs/templates/*.md`
    Graph,
    /// Agent files of other programs
    Foreign,
}

impl LintKind {
    /// Returns the kind of a file from its directory. `None` if the directory does not hold templates.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        Family::of_path(path).map(|(family, _)| match family {
            Family::Roles => Self::Role,
            Family::Agents => Self::CodexAgent,
            Family::Graph => Self::Graph,
            Family::Foreign(_) => Self::Foreign,
        })
    }

    fn family(self, path: &str) -> Family {
        match self {
            Self::Role => Family::Roles,
            Self::CodexAgent => Family::Agents,
            Self::Graph => Family::Graph,
            Self::Foreign => match Family::of_path(path) {
                Some((family @ Family::Foreign(_), _)) => family,
                Some((Family::Roles | Family::Agents | Family::Graph, _)) | None => {
                    Family::Foreign(ForeignFormat::by_ending(path))
                }
            },
        }
    }
}

/// Names that lint cannot determine from the text alone.
#[derive(Clone, Debug, Default)]
pub struct KnownNames {
    /// The roles that `spawn_list` may name. `None`: the roles are not checked.
    pub roles: Option<Vec<AgentType>>,
    /// Tools of the user's own programs.
    pub tools: Vec<String>,
}

/// The result of checking a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LintedText {
    /// The name that the file claims. `None` if it claims none.
    pub name: Option<TemplateName>,
    /// The findings, in order of line.
    pub diagnostics: Vec<Diagnostic>,
}

/// Checks a text with the registry's rules, as the file with this path. The path identifies the file in the diagnostics
/// and, in dialects where the stem is the name, names the template. No file is read. The rules of an operator
/// (`allowed_endpoints`) are not applied.
///
/// The registry needs only the first error of a file. This function continues after an error in YAML frontmatter or in
/// a persona's block.
#[must_use]
pub fn lint_text(path: &str, kind: LintKind, text: &[u8], known: &KnownNames) -> LintedText {
    let family = kind.family(path);
    let file_name = || Path::new(path).file_name()?.to_str();
    let below = match Family::of_path(path) {
        Some((found, below)) if found == family => below,
        Some(_) | None => file_name().unwrap_or(path),
    };
    // A file outside the known directories may have any name.
    let stem = family
        .stem(below)
        .or_else(|| Some(Cow::Borrowed(Path::new(below).file_stem()?.to_str()?)))
        .unwrap_or(Cow::Borrowed(below));
    let read = |text: Result<&str, &str>| {
        let file = FileText {
            path,
            stem: &stem,
            // The user scope, whose templates may set every key.
            scope: Scope::User,
            text,
        };
        family.read(file, &Rules::default())
    };
    let text = match encoding::decode(text) {
        Ok(text) => text,
        Err(why) => {
            let diagnostics = match read(Err(&why.to_string())) {
                Ok(file) => file.diagnostics().collect(),
                Err(note) => vec![note],
            };
            return LintedText {
                diagnostics,
                name: None,
            };
        }
    };
    let (mut linted, file) = find_all_errors(text, |text| read(Ok(text)));
    if let Some((template, dialect)) = file {
        let mut findings = references::roles(&template, text, known.roles.as_deref());
        if has_tool_lists(family) {
            findings.extend(references::tools(&template, text, &known.tools));
        }
        linted
            .diagnostics
            .extend(findings.into_iter().map(|finding| Diagnostic {
                path: path.to_owned(),
                dialect: Some(dialect),
                finding,
            }));
    }
    locate_findings(text, &mut linted.diagnostics);
    linted
        .diagnostics
        .sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
    linted
}

/// Applies the mechanical fixes of this text's diagnostics. Returns `None` if nothing changes.
#[must_use]
pub fn fixed(text: &str, diagnostics: &[Diagnostic]) -> Option<String> {
    let mut edits: Vec<(usize, usize, &Replacement)> = diagnostics
        .iter()
        .filter_map(|Diagnostic { finding, .. }| {
            let column = usize::try_from(finding.column?).ok()?;
            Some((finding.line?, column, finding.replacement.as_deref()?))
        })
        .collect();
    // Edits are applied from right to left, so that columns stay valid.
    edits.sort_by_key(|(line, column, _)| (*line, usize::MAX - column));
    edits.dedup_by_key(|(line, column, _)| (*line, *column));
    let mut fixed = String::with_capacity(text.len());
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let mut line = line.to_owned();
        for (_, column, replacement) in edits.iter().filter(|(number, ..)| *number == index + 1) {
            let start = line.char_indices().nth(column - 1).map(|(start, _)| start);
            if let Some(start) = start.filter(|start| line[*start..].starts_with(&replacement.from)) {
                line.replace_range(start..start + replacement.from.len(), &replacement.to);
            }
        }
        fixed.push_str(&line);
    }
    (fixed != text).then_some(fixed)
}

/// Returns whether the tool lists of a family name canonical tools. Foreign agents name the tools of their own program,
/// and graph templates have no lists.
const fn has_tool_lists(family: Family) -> bool {
    match family {
        Family::Roles | Family::Agents => true,
        Family::Foreign(_) | Family::Graph => false,
    }
}

/// Parses a text repeatedly, each time without the errors that were found so far. Returns the template without the
/// parts that have errors, if the last attempt succeeds.
fn find_all_errors(
    text: &str,
    read: impl Fn(&str) -> Result<TemplateFile, Diagnostic>,
) -> (LintedText, Option<(Arc<Template>, Dialect)>) {
    let mut linted = LintedText::default();
    let mut dialect = None;
    let mut copy = Cow::Borrowed(text);
    let mut inserted = 0;
    for _ in 0..MAX_ERRORS {
        let file = match read(&copy) {
            Ok(file) => file,
            Err(note) => {
                linted.diagnostics.push(note);
                break;
            }
        };
        // Removing a key may change the detected dialect. The errors of another dialect do not apply.
        if *dialect.get_or_insert(file.dialect) != file.dialect {
            break;
        }
        let error_line = file.diagnostics().last().and_then(|diagnostic| diagnostic.finding.line);
        for mut diagnostic in file.diagnostics() {
            diagnostic.finding.line = match diagnostic.finding.line {
                // The inserted lines follow the first line. A finding about them is not about the text.
                Some(line) if line > 1 && line <= 1 + inserted => continue,
                Some(line) if line > 1 => Some(line - inserted),
                other => other,
            };
            if !linted.diagnostics.contains(&diagnostic) {
                linted.diagnostics.push(diagnostic);
            }
        }
        linted.name.get_or_insert(file.name);
        let why = match file.parsed.template {
            Ok(template) => return (linted, Some((template, file.dialect))),
            Err(why) => why,
        };
        let Some(recovered) = recovery::without(&copy, &why, error_line) else {
            break;
        };
        inserted += usize::from(recovered.inserted);
        copy = Cow::Owned(recovered.text);
    }
    (linted, None)
}

/// Determines the columns, and removes fixes that would damage the text.
fn locate_findings(text: &str, diagnostics: &mut [Diagnostic]) {
    let lines: Vec<&str> = text.lines().collect();
    for Diagnostic { finding, .. } in diagnostics {
        let line = finding.line.and_then(|line| lines.get(line.checked_sub(1)?).copied());
        if let (FindingKind::InvalidYaml, Some(line)) = (finding.kind, line)
            && finding.message.contains("unknown anchor")
        {
            finding.replacement = unquoted_wildcard(line).map(Box::new);
        }
        let place = |word: &str| references::word_in(line?, word);
        let replaced = finding
            .replacement
            .as_ref()
            .and_then(|replacement| place(&replacement.from));
        if replaced.is_none() || !is_safe(finding, line.unwrap_or_default(), &lines) {
            finding.replacement = None;
        }
        let quoted = finding.message.split(['"', '`']).skip(1).step_by(2);
        let start = replaced
            .or_else(|| quoted.filter(|word| !word.is_empty()).find_map(place))
            .or_else(|| line?.find(|letter: char| !letter.is_whitespace()));
        let before = start.and_then(|start| line?.get(..start));
        finding.column = before.and_then(|before| u32::try_from(1 + before.chars().count()).ok());
    }
}

/// Returns the fix of an entry such as `*_file`, which without quotes is a YAML alias.
fn unquoted_wildcard(line: &str) -> Option<Replacement> {
    let mut words = line.split([' ', ',', '[', ']']);
    let word = words.find(|word| word.len() > 1 && word.starts_with('*'))?;
    Some(Replacement {
        from: word.to_owned(),
        to: format!("\"{word}\""),
    })
}

/// Returns whether a fix keeps the meaning of the other lines. A key must not be renamed to an existing key, and a key
/// that belongs to the top level must not be renamed below it.
fn is_safe(finding: &Finding, line: &str, lines: &[&str]) -> bool {
    let Some(replacement) = &finding.replacement else {
        return false;
    };
    let is_key = matches!(
        finding.kind,
        FindingKind::UnknownKey | FindingKind::MisplacedRestriction | FindingKind::MisspeltRestriction
    );
    if !is_key {
        return true;
    }
    let is_top_level = |line: &str| !line.starts_with([' ', '\t', '-']);
    if !is_top_level(line) {
        return finding.kind != FindingKind::MisplacedRestriction;
    }
    // Entries of a list may have the same keys, so only the keys of the top level are compared.
    let has_key = |line: &&str| {
        let rest = line.strip_prefix(replacement.to.as_str());
        rest.is_some_and(|rest| rest.trim_start().starts_with([':', '=']))
    };
    !lines.iter().any(has_key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::diagnostic::Severity;

    fn run(path: &str, kind: LintKind, text: &str) -> Vec<(Option<usize>, String)> {
        lint_text(path, kind, text.as_bytes(), &KnownNames::default())
            .diagnostics
            .into_iter()
            .map(|diagnostic| {
                assert_eq!(diagnostic.path, path);
                (diagnostic.finding.line, diagnostic.finding.message)
            })
            .collect()
    }

    #[test]
    fn valid_files_have_no_findings() {
        for (path, kind, text) in [
            ("/a/worker.md", LintKind::Role, "---\ndescription: d\n---\nx"),
            ("worker.md", LintKind::CodexAgent, "---\nname: abc\n---\nx"),
            (
                "worker.md",
                LintKind::CodexAgent,
                "---\nagent_type: abc\ndescription: d\nmodel: m\ncolor: red\n---\nx",
            ),
            ("Planner.md", LintKind::Graph, "[template]\nname = \"Planner\"\n\nPlan."),
            ("a.md", LintKind::Foreign, "---\nname: abc\ndescription: d\n---\nx"),
            (
                "a.toml",
                LintKind::Foreign,
                "name = 'abc'\ndescription = 'd'\ndeveloper_instructions = 'x'\n",
            ),
            (
                "p/.gemini/agents/a.md",
                LintKind::Foreign,
                "---\nname: abc\ndescription: d\ntools: [read_file]\n---\nx",
            ),
        ] {
            assert_eq!(run(path, kind, text), [], "{path}");
        }
    }

    #[test]
    fn findings_have_line_and_suggestion() {
        let found = lint_text(
            "worker.md",
            LintKind::Role,
            b"---\ndescription: d\nallow_lst: [wait]\n---\nx",
            &KnownNames::default(),
        )
        .diagnostics;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].dialect, Some(Dialect::Role));
        assert_eq!(found[0].finding.line, Some(3));
        assert_eq!(found[0].finding.severity, Severity::Error);
        assert_eq!(found[0].finding.suggestion.as_deref(), Some("did you mean allow_list?"));
        // Requirements for listing are checked too.
        assert_eq!(
            run("worker.md", LintKind::Role, "x")[0].1,
            "missing required frontmatter description"
        );
    }

    #[test]
    fn bytes_that_are_not_text_are_reported() {
        let report = lint_text("a.md", LintKind::Role, b"ab\xff", &KnownNames::default());
        assert_eq!(report.diagnostics[0].finding.message, "not valid UTF-8 (byte 2)");
    }

    #[test]
    fn file_outside_template_directories_has_any_name() {
        assert_eq!(run("-", LintKind::Role, "---\ndescription: d\n---\nx"), [], "a stream");
        assert!(run("no name.md", LintKind::Role, "x")[0].1.starts_with("not used: "));
    }

    #[test]
    fn all_errors_of_file_are_found() {
        type Found<'a> = (Option<usize>, &'a str);
        let rows: &[(LintKind, &str, &[Found])] = &[
            (
                LintKind::Role,
                "---\ndescription: [d]\ntools: [wait]\nreasoning_effort: extreme\ndeny_list: ['']\nagent_names:\n  - \
                 name: a\n---\nx\n<!-- agent_name: b -->\ny\n<!-- agent_name: c -->\n",
                &[
                    (None, "missing-description"),
                    (Some(2), "invalid-yaml"),
                    (Some(3), "misplaced-restriction"),
                    (Some(4), "invalid-yaml"),
                    (Some(5), "blank-entry"),
                    (Some(7), "missing-persona-block"),
                    (Some(10), "undeclared-persona"),
                    (Some(12), "undeclared-persona"),
                ],
            ),
            (
                LintKind::CodexAgent,
                "---\nagent_type: A\ncolor: purple\nspawn_list: ['a b']\n---\n",
                &[
                    (None, "missing-field"),
                    (None, "missing-field"),
                    (Some(2), "invalid-value"),
                    (Some(3), "invalid-value"),
                    (Some(4), "invalid-value"),
                    (Some(6), "invalid-value"),
                ],
            ),
            // Three keys are inserted; the other findings keep their lines.
            (
                LintKind::CodexAgent,
                "---\nagent_names:\n  - name: abc\n    description: d\n---\nx",
                &[
                    (None, "missing-field"),
                    (None, "missing-field"),
                    (None, "missing-field"),
                    (None, "missing-field"),
                    (Some(3), "invalid-value"),
                ],
            ),
            (
                LintKind::CodexAgent,
                "---\nname: X\ntools: [wait, wait]\nkeywords: ['']\n---\nx",
                &[
                    (Some(2), "invalid-value"),
                    (Some(3), "duplicate-entry"),
                    (Some(4), "blank-entry"),
                ],
            ),
        ];
        for (kind, text, expected) in rows {
            let found = lint_text("a.md", *kind, text.as_bytes(), &KnownNames::default()).diagnostics;
            let mut found: Vec<_> = found
                .iter()
                .map(|diagnostic| (diagnostic.finding.line, diagnostic.finding.kind.id()))
                .collect();
            found.sort();
            assert_eq!(found, *expected, "{text}");
        }
    }

    #[test]
    fn unknown_tools_and_roles_are_reported() {
        let text = "---\ndescription: d\nallow_list: [wait, exec_comand, mcp__x__y, 'read_*', deploy]\ndeny_list:\n  - 'zz_*'\n\
                    spawn_list: [worker, reviewr, nobody]\n---\nx";
        let roles = ["worker", "reviewer"].map(|name| AgentType::parse(name).unwrap());
        let known = KnownNames {
            roles: Some(roles.to_vec()),
            tools: vec!["deploy".to_owned()],
        };
        let linted = lint_text("a.md", LintKind::Role, text.as_bytes(), &known);
        let found: Vec<_> = linted
            .diagnostics
            .iter()
            .map(|Diagnostic { finding, .. }| {
                let fix = finding.replacement.as_ref().map(|replacement| replacement.to.as_str());
                (finding.line, finding.column, finding.kind.id(), fix)
            })
            .collect();
        assert_eq!(
            found,
            [
                (Some(3), Some(20), "unknown-tool", Some("exec_command")),
                (Some(5), Some(6), "unknown-tool", None),
                (Some(6), Some(31), "unknown-role", None),
                (Some(6), Some(22), "unknown-role", Some("reviewer")),
            ]
        );
    }

    #[test]
    fn fix_changes_only_its_target() {
        for (kind, text, expected) in [
            (
                LintKind::Role,
                "---\r\ndescription: d\r\nallow_lst: [exec_comand, wait]\r\n---\r\nallow_lst\r\n",
                Some("---\r\ndescription: d\r\nallow_list: [exec_command, wait]\r\n---\r\nallow_lst\r\n"),
            ),
            (
                LintKind::Role,
                "---\ndescription: d\ndeny_list: [*_file, wait]\n---\nx",
                Some("---\ndescription: d\ndeny_list: [\"*_file\", wait]\n---\nx"),
            ),
            // The key exists already.
            (
                LintKind::Role,
                "---\ndescription: d\nallow_list: [wait]\ntools: [wait]\n---\nx",
                None,
            ),
            // The key restricts only at the top level.
            (
                LintKind::Role,
                "---\ndescription: d\nagent_names:\n  - name: a\n    description: d\n    tools: [wait]\n---\nx\n<!-- \
                 agent_name: a -->\ny",
                None,
            ),
            (
                LintKind::Graph,
                "[template]\nname = \"Planer\"\n\nPlan.",
                Some("[template]\nname = \"a\"\n\nPlan."),
            ),
            (LintKind::Role, "---\ndescription: d\ncolor: red\n---\nx", None),
        ] {
            let fix = |text: &str| {
                fixed(
                    text,
                    &lint_text("a.md", kind, text.as_bytes(), &KnownNames::default()).diagnostics,
                )
            };
            let mut result = None;
            // A second fix may be visible only after the first one.
            while let Some(next) = fix(result.as_deref().unwrap_or(text)) {
                result = Some(next);
            }
            assert_eq!(result.as_deref(), expected, "{text}");
        }
    }
}
