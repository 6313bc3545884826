//! Glob matching of tool names. `*` matches any run of characters, including an empty run and `/`. `?` matches exactly
//! one character. Every other character matches itself. A pattern must match the whole name.
//!
//! Matching uses globset, whose globs are made for paths and have more metacharacters. Patterns are therefore
//! translated. The other metacharacters become character classes with one member. Runs of `*` become one `*`, because
//! `**` matches directories in globset. `.` also becomes a class, because globset otherwise treats `*.x` as a file
//! extension.
//!
//! globset matches bytes, so its `?` would match one byte of a longer character. Therefore every character outside
//! ASCII is preceded by [`MARK`], in globs and in names. The mark lets [`ANY_CHAR`] recognise where a character starts,
//! so `?` never matches a part of a character. Tool names are ASCII in practice and are matched unchanged.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use globset::{Candidate, Glob, GlobSet, GlobSetBuilder};

/// Maximum length of a pattern, in bytes.
pub const MAX_PATTERN_BYTES: usize = 256;

/// Maximum number of characters of a rejected pattern that an error repeats.
const SHOWN_CHARS: usize = 64;

/// Precedes every character that globset must not see directly. No pattern contains the mark, because patterns have no
/// control characters.
const MARK: char = '\u{1}';

/// A globset pattern for one character: an ASCII character other than the mark, or the mark followed by the bytes of
/// the marked character. An alternative may match too few bytes of a longer character. This is harmless: only a `*` can
/// match the remaining bytes, and that `*` can also match nothing.
const ANY_CHAR: &str = concat!(
    "{[\u{0}\u{2}-\u{7f}]",
    ",\u{1}[!\u{0}-\u{7f}][!\u{0}-\u{7f}]",
    ",\u{1}[!\u{0}-\u{7f}][!\u{0}-\u{7f}][!\u{0}-\u{7f}]",
    ",\u{1}[!\u{0}-\u{7f}][!\u{0}-\u{7f}][!\u{0}-\u{7f}][!\u{0}-\u{7f}]}",
);

/// How the patterns of a list are compared with tool names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatchMode {
    /// `*` and `?`, case-sensitive: the role dialect.
    #[default]
    Glob,
    /// `*` and `?`, case-insensitive: the profile dialect.
    GlobIgnoreCase,
    /// Equality of names after aliases are replaced: the subagent dialect.
    Literal,
}

/// The reason why a text is not a valid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is empty.
    #[error("a tool pattern is empty (\"\"); remove it or name a tool")]
    Empty,
    /// The text is longer than [`MAX_PATTERN_BYTES`].
    #[error("the tool pattern {start:?}... has {bytes} bytes; at most {max} are allowed", max = MAX_PATTERN_BYTES)]
    TooLong {
        /// The beginning of the text.
        start: String,
        /// The length of the text.
        bytes: usize,
    },
    /// The text contains a control character.
    #[error("the tool pattern {pattern:?} contains a control character; remove it")]
    ControlCharacter {
        /// The text.
        pattern: String,
    },
    /// The matcher rejected the list because it would become too large.
    #[error("the list of tool patterns that starts with {pattern:?} is too complex ({reason}); use fewer wildcards")]
    TooComplex {
        /// The first pattern of the list.
        pattern: String,
        /// The matcher's message.
        reason: String,
    },
}

/// One compiled pattern. A [`crate::Policy`] matches all patterns of a list together.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    set: PatternSet,
}

impl Pattern {
    /// Checks and compiles a pattern.
    ///
    /// # Errors
    ///
    /// If the text is empty, too long, or contains a control character.
    pub fn new(text: impl Into<String>, mode: MatchMode) -> Result<Self, PatternError> {
        let text = text.into();
        let set = PatternSet::compile(mode, std::slice::from_ref(&text))?;
        Ok(Self { text, set })
    }

    /// Returns the pattern as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the match mode.
    #[must_use]
    pub fn mode(&self) -> MatchMode {
        self.set.mode
    }

    /// Returns whether the pattern matches the whole name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.set.is_match(name)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.mode() == other.mode()
    }
}

impl Eq for Pattern {}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The patterns of one list, matched together.
#[derive(Clone, Debug)]
pub(crate) struct PatternSet {
    mode: MatchMode,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    /// The globs, in the order of the list.
    Globs(GlobSet),
    /// Names without aliases, with their first position in the list.
    Names(HashMap<String, usize>),
}

impl PatternSet {
    pub(crate) fn compile(mode: MatchMode, patterns: &[String]) -> Result<Self, PatternError> {
        for pattern in patterns {
            check(pattern)?;
        }
        let matcher = match mode {
            MatchMode::Literal => {
                let mut names = HashMap::with_capacity(patterns.len());
                for (position, pattern) in patterns.iter().enumerate() {
                    names.entry(without_alias(pattern).to_owned()).or_insert(position);
                }
                Matcher::Names(names)
            }
            MatchMode::Glob | MatchMode::GlobIgnoreCase => {
                Matcher::Globs(compile_globs(mode, patterns).map_err(|error| PatternError::TooComplex {
                    pattern: patterns.first().cloned().unwrap_or_default(),
                    reason: error.kind().to_string(),
                })?)
            }
        };
        Ok(Self { mode, matcher })
    }

    /// Returns whether any pattern matches the name.
    pub(crate) fn is_match(&self, name: &str) -> bool {
        match &self.matcher {
            Matcher::Names(names) => names.contains_key(without_alias(name)),
            Matcher::Globs(set) => {
                let name = encoded_name(self.mode, name);
                set.is_match_candidate(&Candidate::from_bytes(&*name))
            }
        }
    }

    /// Returns the position in the list of the first pattern that matches the name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        match &self.matcher {
            Matcher::Names(names) => names.get(without_alias(name)).copied(),
            Matcher::Globs(set) => {
                let name = encoded_name(self.mode, name);
                let positions = set.matches_candidate(&Candidate::from_bytes(&*name));
                positions.first().copied()
            }
        }
    }
}

fn check(pattern: &str) -> Result<(), PatternError> {
    if pattern.is_empty() {
        return Err(PatternError::Empty);
    }
    if pattern.len() > MAX_PATTERN_BYTES {
        let start = pattern.chars().take(SHOWN_CHARS).collect();
        return Err(PatternError::TooLong {
            start,
            bytes: pattern.len(),
        });
    }
    if pattern.chars().any(char::is_control) {
        return Err(PatternError::ControlCharacter {
            pattern: pattern.to_owned(),
        });
    }
    Ok(())
}

fn compile_globs(mode: MatchMode, patterns: &[String]) -> Result<GlobSet, globset::Error> {
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns {
        builder.add(Glob::new(&encoded_pattern(mode, pattern))?);
    }
    builder.build()
}

/// Returns the pattern in globset's syntax.
fn encoded_pattern(mode: MatchMode, pattern: &str) -> String {
    let mut glob = String::with_capacity(pattern.len() + 8);
    let mut after_star = false;
    for c in pattern.chars() {
        match c {
            '*' if after_star => {}
            '*' => glob.push('*'),
            '?' => glob.push_str(ANY_CHAR),
            '.' | '[' | '{' | '}' => {
                glob.push('[');
                glob.push(c);
                glob.push(']');
            }
            _ => push_encoded(&mut glob, folded(mode, c)),
        }
        after_star = c == '*';
    }
    glob
}

/// Returns the name in the encoding that globs match, usually the name itself.
fn encoded_name(mode: MatchMode, name: &str) -> Cow<'_, str> {
    let keeps_case = mode != MatchMode::GlobIgnoreCase;
    if name
        .chars()
        .all(|c| is_plain(c) && (keeps_case || !c.is_ascii_uppercase()))
    {
        return Cow::Borrowed(name);
    }
    let mut encoded = String::with_capacity(name.len() * 2);
    for c in name.chars() {
        push_encoded(&mut encoded, folded(mode, c));
    }
    Cow::Owned(encoded)
}

/// Returns whether globset may see the character directly. A backslash is encoded, because it is a separator on some
/// systems.
fn is_plain(c: char) -> bool {
    c.is_ascii() && c != MARK && c != '\\'
}

fn push_encoded(text: &mut String, c: char) {
    if is_plain(c) {
        text.push(c);
        return;
    }
    text.push(MARK);
    // Substitutes must not be ASCII. They are control characters, which no pattern contains, so they are unambiguous.
    text.push(match c {
        MARK => '\u{80}',
        '\\' => '\u{81}',
        other => other,
    });
}

/// Returns the character in lower case if the mode ignores case. The result is always one character, so that `?` still
/// matches it.
fn folded(mode: MatchMode, c: char) -> char {
    if mode != MatchMode::GlobIgnoreCase {
        return c;
    }
    let mut lower = c.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(only), None) => only,
        _ => c,
    }
}

/// Returns the tool that an alias of the subagent dialect stands for, and any other name unchanged.
fn without_alias(name: &str) -> &str {
    match name {
        "plan" => "update_plan",
        "local_shell" | "exec" => "exec_command",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn matches(mode: MatchMode, pattern: &str, name: &str) -> bool {
        let matched = Pattern::new(pattern, mode).unwrap().matches(name);
        let set = PatternSet::compile(mode, &["zzz".to_owned(), pattern.to_owned()]).unwrap();
        assert_eq!(
            set.is_match(name),
            matched,
            "{pattern:?} alone and in a list, on {name:?}"
        );
        assert_eq!(
            set.position(name),
            matched.then_some(1),
            "{pattern:?} by position, on {name:?}"
        );
        matched
    }

    fn check(mode: MatchMode, cases: &[(&str, &str, bool)]) {
        for (pattern, name, expected) in cases {
            assert_eq!(matches(mode, pattern, name), *expected, "{pattern:?} on {name:?}");
        }
    }

    #[test]
    fn globs_match_whole_name() {
        let cases = [
            ("wait", "wait", true),
            ("wait", "wait_for", false),
            ("wait", "await", false),
            ("mcp*", "mcp__server__tool", true),
            ("mcp*", "mcp", true),
            ("mcp*", "xmcp", false),
            ("*_agent", "spawn_agent", true),
            ("*_agent", "spawn_agents", false),
            ("*", "anything at all", true),
            ("*", "", true),
            ("a*c", "ac", true),
            ("a*c", "a/b/c", true),
            ("a*c", "acb", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", true),
            ("a?c", "a.c", true),
            ("a?c", "ac", false),
            ("a?c", "abbc", false),
            ("?", "", false),
            ("?*", "", false),
            ("?*", "a", true),
            ("*?*", "ab", true),
            ("Wait", "wait", false),
            ("a*", "a\nb", true),
        ];
        check(MatchMode::Glob, &cases);
    }

    #[test]
    fn consecutive_stars_equal_one_star() {
        let cases = [
            ("**", "a/b", true),
            ("**", "", true),
            ("a**b", "ab", true),
            ("a**b", "a/x/b", true),
            ("**/b", "b", false),
            ("**/b", "/b", true),
            ("**/b", "a/b", true),
            ("a/**", "a", false),
            ("a/**", "a/", true),
            ("a/**/b", "a/b", false),
            ("a/**/b", "a//b", true),
        ];
        check(MatchMode::Glob, &cases);
    }

    #[test]
    fn all_other_characters_are_ordinary() {
        for ordinary in [
            "[ab]", "[!a]", "{a,b}", "{a", "a}", "a]", "[", "\\", "\\a", "a\\", "!a", ".a", "a.", "^", "a-b", ",",
        ] {
            assert!(
                matches(MatchMode::Glob, ordinary, ordinary),
                "{ordinary:?} matches itself"
            );
            assert!(
                !matches(MatchMode::Glob, ordinary, "x"),
                "{ordinary:?} matches nothing else"
            );
        }
        assert!(!matches(MatchMode::Glob, "[ab]", "a"));
        assert!(!matches(MatchMode::Glob, "{a,b}", "a"));
        assert!(!matches(MatchMode::Glob, "\\a", "a"));
        assert!(!matches(MatchMode::Glob, "\\*", "*"));
        assert!(matches(MatchMode::Glob, "\\*", "\\x"));
        assert!(!matches(MatchMode::Glob, "a/b", "a\\b"));
        assert!(!matches(MatchMode::Glob, "a\\b", "a/b"));
    }

    #[test]
    fn dots_are_ordinary() {
        let cases = [
            ("*.x", "a.x", true),
            ("*.x", ".x", true),
            ("*.x", "a/.x", true),
            ("*.x", "ax", false),
            ("*.", "..", true),
            ("*.", "a.", true),
            ("a*.b", "a.c.b", true),
            ("*", ".hidden", true),
            ("?x", ".x", true),
            ("a.b", "axb", false),
        ];
        check(MatchMode::Glob, &cases);
    }

    #[test]
    fn question_mark_matches_one_character() {
        let cases = [
            ("?", "é", true),
            ("??", "é", false),
            ("?", "€", true),
            ("??", "€", false),
            ("???", "€", false),
            ("?", "😀", true),
            ("????", "😀", false),
            ("a?b", "aéb", true),
            ("a??b", "aéb", false),
            ("*?*", "é", true),
            ("?*?", "é", false),
            ("?*?", "éé", true),
            ("?*?", "😀", false),
            ("??", "éé", true),
            ("é*", "éa", true),
            ("*é", "aé", true),
            ("é", "è", false),
            ("?", "\u{1}", true),
            ("??", "\u{1}", false),
            ("?", "\\", true),
            ("??", "\\", false),
        ];
        check(MatchMode::Glob, &cases);
    }

    #[test]
    fn case_is_ignored_on_both_sides() {
        let cases = [
            ("Apply_*", "apply_patch", true),
            ("apply_*", "APPLY_PATCH", true),
            ("B?SH", "bash", true),
            ("É", "é", true),
            ("?", "É", true),
            ("İ", "İ", true),
            ("?", "İ", true),
            ("apply", "apply_patch", false),
        ];
        check(MatchMode::GlobIgnoreCase, &cases);
    }

    #[test]
    fn literals_match_aliases_without_wildcards() {
        let cases = [
            ("plan", "update_plan", true),
            ("update_plan", "plan", true),
            ("plan", "plan", true),
            ("exec", "local_shell", true),
            ("local_shell", "exec_command", true),
            ("exec_command", "exec", true),
            ("exec", "exec_", false),
            ("*", "wait", false),
            ("*", "*", true),
            ("wai?", "wait", false),
            ("Wait", "wait", false),
        ];
        check(MatchMode::Literal, &cases);
        assert!(
            !matches(MatchMode::Glob, "exec", "exec_command"),
            "only literals have aliases"
        );
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for mode in [MatchMode::Glob, MatchMode::GlobIgnoreCase, MatchMode::Literal] {
            assert_eq!(Pattern::new("", mode), Err(PatternError::Empty));
            assert!(Pattern::new("x".repeat(256), mode).is_ok());
            assert!(Pattern::new("?".repeat(256), mode).is_ok());
            let error = Pattern::new("x".repeat(257), mode).unwrap_err();
            assert_eq!(
                error,
                PatternError::TooLong {
                    start: "x".repeat(64),
                    bytes: 257
                }
            );
            for text in ["a\nb", "\u{1}", "a\u{7f}", "\u{85}"] {
                let error = Pattern::new(text, mode).unwrap_err();
                assert_eq!(
                    error,
                    PatternError::ControlCharacter {
                        pattern: text.to_owned()
                    }
                );
            }
        }
        let error = Pattern::new("a\tb", MatchMode::Glob).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"the tool pattern "a\tb" contains a control character; remove it"#
        );
    }

    #[test]
    fn position_is_first_matching_pattern() {
        let list: Vec<String> = ["b", "a*", "ab", "a?"].map(str::to_owned).to_vec();
        let set = PatternSet::compile(MatchMode::Glob, &list).unwrap();
        assert_eq!(set.position("ab"), Some(1));
        assert_eq!(set.position("b"), Some(0));
        assert_eq!(set.position("c"), None);
    }

    #[test]
    fn plain_name_is_borrowed() {
        assert!(matches!(encoded_name(MatchMode::Glob, "Spawn_agent"), Cow::Borrowed(_)));
        assert!(matches!(
            encoded_name(MatchMode::GlobIgnoreCase, "spawn_agent"),
            Cow::Borrowed(_)
        ));
    }
}
