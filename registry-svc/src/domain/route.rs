//! Routing of a text to an agent type by names and keywords. A tie is not broken and yields no route, because a wrong
//! agent costs more than a question.
//!
//! An explicit choice (an argument, or a text that starts with `/use NAME`) applies even if automatic routing is off.
//! `/use` must be a separate word: `/useful` does not match.

use std::{cmp::Reverse, collections::BTreeSet};

/// Maximum number of keywords of a template that are considered. Further keywords are ignored.
const MAX_KEYWORDS: usize = 100;
/// Maximum number of characters of the routed text that a reason repeats.
const MAX_SHOWN: usize = 128;
/// Maximum length of a reason, in characters.
const MAX_REASON: usize = 1_000;
/// Points for a name whose words are all in the text.
const NAME_WORDS: u32 = 3;
/// Points for a name that is a substring of the text.
const NAME_SUBSTRING: u32 = 2;
/// Points for a keyword.
const KEYWORD: u32 = 1;

/// An agent type that a text may be routed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its name.
    pub name: &'a str,
    /// The keywords for routing.
    pub keywords: &'a [String],
}

/// A routing request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// The text.
    pub text: &'a str,
    /// The agent requested explicitly, outside the text.
    pub explicit: Option<&'a str>,
    /// Whether a text that names no agent may be routed.
    pub auto_route: bool,
}

/// The result of routing a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The agent type; `None` if the text is not routed.
    pub agent_type: Option<String>,
    /// The reason, for display.
    pub reason: String,
    /// The candidates with points, best first, then by name. Empty if the candidates were not scored.
    pub scores: Vec<Score>,
}

/// The score of one agent type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Score {
    /// The agent type.
    pub agent_type: String,
    /// Its points, at least 1.
    pub points: u32,
    /// Whether the name contributed points.
    pub by_name: bool,
    /// The matching keywords, as spelt in the template.
    pub keywords: Vec<String>,
}

/// Routes a text to one of the candidates, which must be in order of name.
#[must_use]
pub fn route(candidates: &[Candidate<'_>], question: Question<'_>) -> Route {
    if candidates.is_empty() {
        return no_route("No registered subagents.");
    }
    if let Some(wanted) = question.explicit.map(str::trim).filter(|wanted| !wanted.is_empty()) {
        let reason = format!("selected explicitly ('{}')", cut(wanted, MAX_SHOWN));
        return explicit(candidates, wanted, &reason);
    }
    match use_argument(question.text) {
        Some("") => return no_route("Provide an agent name after `/use`."),
        Some(wanted) => {
            let reason = format!("requested via `/use {}`", cut(wanted, MAX_SHOWN));
            return explicit(candidates, wanted, &reason);
        }
        None => {}
    }
    if !question.auto_route {
        return no_route("Auto-routing disabled.");
    }
    by_score(candidates, question.text)
}

fn no_route(reason: &str) -> Route {
    Route {
        agent_type: None,
        reason: reason.to_owned(),
        scores: Vec::new(),
    }
}

/// Returns the argument of `/use`: the text between double quotes, or else one word. The argument may be empty. Returns
/// `None` if the text does not start with `/use`.
fn use_argument(text: &str) -> Option<&str> {
    let rest = text.trim_start().strip_prefix("/use")?;
    if !(rest.is_empty() || rest.starts_with(|c: char| c.is_whitespace() || c == '"')) {
        return None;
    }
    let rest = rest.trim_start();
    let name = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split_whitespace().next(),
    };
    Some(name.unwrap_or_default().trim())
}

/// Routes to the agent with that name or, if no name matches, with that keyword. Punctuation and case are ignored.
fn explicit(candidates: &[Candidate<'_>], wanted: &str, reason: &str) -> Route {
    let exact = candidates.iter().find(|candidate| candidate.name == wanted);
    if let Some(candidate) = exact {
        return route_to(candidate.name, reason);
    }
    let slug = slug(wanted);
    if slug.is_empty() {
        return no_route(&unknown(wanted));
    }
    let named = |candidate: &&Candidate<'_>| self::slug(candidate.name) == slug;
    let knows = |candidate: &&Candidate<'_>| considered_keywords(candidate).any(|keyword| self::slug(keyword) == slug);
    let mut found: Vec<_> = candidates.iter().filter(named).collect();
    if found.is_empty() {
        found = candidates.iter().filter(knows).collect();
    }
    match found.as_slice() {
        [] => no_route(&unknown(wanted)),
        [one] => route_to(one.name, reason),
        several => no_route(&tie(several.iter().map(|candidate| candidate.name))),
    }
}

fn route_to(name: &str, reason: &str) -> Route {
    Route {
        agent_type: Some(name.to_owned()),
        reason: reason.to_owned(),
        scores: Vec::new(),
    }
}

fn unknown(wanted: &str) -> String {
    format!("Unknown subagent '{}'.", cut(wanted, MAX_SHOWN))
}

fn tie<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names = names.collect::<Vec<_>>().join(", ");
    format!("Multiple agents matched: {}", cut(&names, MAX_REASON))
}

fn cut(text: &str, characters: usize) -> &str {
    text.char_indices()
        .nth(characters)
        .map_or(text, |(end, _)| &text[..end])
}

fn by_score(candidates: &[Candidate<'_>], text: &str) -> Route {
    let words = tokens(text);
    let text = text.to_lowercase();
    let mut scores: Vec<Score> = candidates
        .iter()
        .map(|candidate| score(candidate, &text, &words))
        .filter(|score| score.points > 0)
        .collect();
    // The sort is stable, so candidates with equal points stay in order of name.
    scores.sort_by_key(|score| Reverse(score.points));
    let best = scores.first().map_or(0, |score| score.points);
    let leaders: Vec<&Score> = scores.iter().take_while(|score| score.points == best).collect();
    let (agent_type, reason) = match leaders.as_slice() {
        [] => (None, "No confident keyword match.".to_owned()),
        [one] => (Some(one.agent_type.clone()), matched(one)),
        several => (None, tie(several.iter().map(|score| score.agent_type.as_str()))),
    };
    Route {
        agent_type,
        reason,
        scores,
    }
}

fn score(candidate: &Candidate<'_>, text: &str, words: &BTreeSet<String>) -> Score {
    let all_words = |phrase: &str| {
        let tokens = tokens(phrase);
        !tokens.is_empty() && tokens.is_subset(words)
    };
    let within = |phrase: &str| !phrase.is_empty() && text.contains(&phrase.to_lowercase());
    let by_name = if all_words(candidate.name) {
        NAME_WORDS
    } else if within(candidate.name) {
        NAME_SUBSTRING
    } else {
        0
    };
    let mut seen = BTreeSet::new();
    let keywords: Vec<String> = considered_keywords(candidate)
        .filter(|keyword| seen.insert(keyword.to_lowercase()))
        .filter(|keyword| all_words(keyword) || within(keyword))
        .map(str::to_owned)
        .collect();
    let matched = u32::try_from(keywords.len()).unwrap_or(u32::MAX);
    Score {
        agent_type: candidate.name.to_owned(),
        points: by_name.saturating_add(matched.saturating_mul(KEYWORD)),
        by_name: by_name > 0,
        keywords,
    }
}

fn matched(score: &Score) -> String {
    let name = score.by_name.then(|| format!("agent name '{}'", score.agent_type));
    let keywords = score.keywords.iter().map(|keyword| format!("keyword '{keyword}'"));
    let parts: Vec<String> = name.into_iter().chain(keywords).collect();
    format!("matched {}", cut(&parts.join(", "), MAX_REASON))
}

/// Returns the keywords that are considered, trimmed.
fn considered_keywords<'a>(candidate: &Candidate<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    let keywords = candidate.keywords.iter().take(MAX_KEYWORDS);
    keywords
        .map(|keyword| keyword.trim())
        .filter(|keyword| !keyword.is_empty())
}

/// Splits a text into words: runs of ASCII letters and digits, in lower case.
fn tokens(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect()
}

fn slug(text: &str) -> String {
    text.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names with their keywords, comma-separated.
    type Cast<'a> = &'a [(&'a str, &'a str)];

    const CAST: Cast<'static> = &[
        ("bug-hunter", "leak,race condition"),
        ("reviewer", "review,lint,QA,qa"),
        ("writer", "docs,review"),
    ];

    fn ask(cast: Cast<'_>, text: &str, explicit: Option<&str>, auto_route: bool) -> Route {
        let keywords: Vec<Vec<String>> = cast
            .iter()
            .map(|(_, keywords)| keywords.split(',').map(str::to_owned).collect())
            .collect();
        let candidates: Vec<_> = cast
            .iter()
            .zip(&keywords)
            .map(|((name, _), keywords)| Candidate { name, keywords })
            .collect();
        let question = Question {
            text,
            explicit,
            auto_route,
        };
        route(&candidates, question)
    }

    fn outcome(route: &Route) -> (&str, &str) {
        (route.agent_type.as_deref().unwrap_or_default(), &route.reason)
    }

    #[test]
    fn explicit_choice_applies_without_routing() {
        for (text, explicit, expected) in [
            ("x", Some("reviewer"), ("reviewer", "selected explicitly ('reviewer')")),
            (
                "x",
                Some(" Bug Hunter "),
                ("bug-hunter", "selected explicitly ('Bug Hunter')"),
            ),
            ("x", Some("LINT"), ("reviewer", "selected explicitly ('LINT')")),
            (
                "/use writer",
                Some("lint"),
                ("reviewer", "selected explicitly ('lint')"),
            ),
            ("/use writer the docs", None, ("writer", "requested via `/use writer`")),
            ("  /use\twriter", None, ("writer", "requested via `/use writer`")),
            (
                "/use \"bug hunter\" now",
                None,
                ("bug-hunter", "requested via `/use bug hunter`"),
            ),
            ("/use\"writer\"", None, ("writer", "requested via `/use writer`")),
            ("/use \"writer", None, ("writer", "requested via `/use writer`")),
            ("/use", None, ("", "Provide an agent name after `/use`.")),
            ("/use \"\" writer", None, ("", "Provide an agent name after `/use`.")),
            ("/use ghost", None, ("", "Unknown subagent 'ghost'.")),
            ("/use --", None, ("", "Unknown subagent '--'.")),
            ("x", Some("review"), ("", "Multiple agents matched: reviewer, writer")),
            ("/useful writer", None, ("", "Auto-routing disabled.")),
            ("review the docs", None, ("", "Auto-routing disabled.")),
            ("review the docs", Some("  "), ("", "Auto-routing disabled.")),
        ] {
            let route = ask(CAST, text, explicit, false);
            assert_eq!(outcome(&route), expected, "{text} {explicit:?}");
            assert_eq!(route.scores, []);
        }
    }

    #[test]
    fn texts_are_routed_by_the_best_score() {
        for (text, expected) in [
            (
                "ask the Reviewer",
                ("reviewer", "matched agent name 'reviewer', keyword 'review'"),
            ),
            ("hunter of every BUG", ("bug-hunter", "matched agent name 'bug-hunter'")),
            ("run the bug-hunters", ("bug-hunter", "matched agent name 'bug-hunter'")),
            (
                "a condition of race, and a leak",
                ("bug-hunter", "matched keyword 'leak', keyword 'race condition'"),
            ),
            ("lint and qa", ("reviewer", "matched keyword 'lint', keyword 'QA'")),
            ("unleaked", ("bug-hunter", "matched keyword 'leak'")),
            ("review it", ("", "Multiple agents matched: reviewer, writer")),
            ("something else", ("", "No confident keyword match.")),
            ("", ("", "No confident keyword match.")),
        ] {
            assert_eq!(outcome(&ask(CAST, text, None, true)), expected, "{text}");
        }
    }

    #[test]
    fn scores_are_best_first_then_by_name() {
        let route = ask(CAST, "reviewer: review docs, then lint", None, true);
        let points: Vec<_> = route
            .scores
            .iter()
            .map(|score| (score.agent_type.as_str(), score.points, score.keywords.join(",")))
            .collect();
        assert_eq!(
            points,
            [
                ("reviewer", 5, "review,lint".to_owned()),
                ("writer", 2, "docs,review".to_owned())
            ]
        );
        let tied = ask(CAST, "docs leak", None, true);
        assert_eq!(tied.agent_type, None);
        assert_eq!(tied.scores.len(), 2);
        assert_eq!(tied.scores[0].agent_type, "bug-hunter");
    }

    #[test]
    fn name_without_words_matches_only_exactly() {
        let cast = [("a", "++"), ("b", "ревью"), ("_", "")];
        assert_eq!(
            outcome(&ask(&cast, "write C++", None, true)),
            ("a", "matched keyword '++'")
        );
        assert_eq!(
            outcome(&ask(&cast, "Ревью!", None, true)),
            ("b", "matched keyword 'ревью'")
        );
        assert_eq!(
            outcome(&ask(&cast, "nothing", None, true)),
            ("", "No confident keyword match.")
        );
    }

    #[test]
    fn reasons_are_bounded() {
        let word = "é".repeat(60_000);
        let route = ask(CAST, &format!("/use {word}"), None, true);
        assert_eq!(route.reason.chars().count(), "Unknown subagent ''.".len() + MAX_SHOWN);
    }

    #[test]
    fn missing_candidates_take_precedence() {
        assert_eq!(
            outcome(&ask(&[], "/use x", Some("x"), true)),
            ("", "No registered subagents.")
        );
    }
}
