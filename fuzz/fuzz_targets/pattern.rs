//! The tool-policy matcher, compared with a direct implementation of the glob rule.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tool_policy::{MatchMode, Pattern};

/// Matches the whole name: `*` is any run of characters, `?` is one character, and every other character is literal.
/// Uses linear space, and time proportional to the product of the lengths.
fn naive(pattern: &[char], name: &[char]) -> bool {
    // For each number of characters: whether the pattern so far matches the beginning of the name with that length.
    let mut covers: Vec<bool> = (0..=name.len()).map(|taken| taken == 0).collect();
    for part in pattern {
        let mut next = vec![false; name.len() + 1];
        match part {
            '*' => {
                let mut reached = false;
                for (taken, covered) in covers.iter().enumerate() {
                    reached |= covered;
                    next[taken] = reached;
                }
            }
            part => {
                for (taken, letter) in name.iter().enumerate() {
                    next[taken + 1] = covers[taken] && (*part == '?' || part == letter);
                }
            }
        }
        covers = next;
    }
    covers.last().copied().unwrap_or_default()
}

/// Returns the character in lower case if that is a single character.
fn folded(letter: char) -> char {
    let mut lower = letter.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(only), None) => only,
        _ => letter,
    }
}

fn without_alias(name: &str) -> &str {
    match name {
        "plan" => "update_plan",
        "local_shell" | "exec" => "exec_command",
        other => other,
    }
}

fuzz_target!(|input: (u8, &str, &str)| {
    let (mode, text, name) = input;
    let mode = match mode % 3 {
        0 => MatchMode::Glob,
        1 => MatchMode::GlobIgnoreCase,
        _ => MatchMode::Literal,
    };
    let Ok(pattern) = Pattern::new(text, mode) else { return };
    let letters = |text: &str| -> Vec<char> {
        match mode {
            MatchMode::GlobIgnoreCase => text.chars().map(folded).collect(),
            MatchMode::Glob | MatchMode::Literal => text.chars().collect(),
        }
    };
    let expected = match mode {
        MatchMode::Glob | MatchMode::GlobIgnoreCase => naive(&letters(text), &letters(name)),
        MatchMode::Literal => without_alias(text) == without_alias(name),
    };
    assert_eq!(pattern.matches(name), expected, "{mode:?} {text:?} {name:?}");
});
