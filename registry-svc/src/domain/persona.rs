//! Persona blocks: splitting of a role's body, and pairing of the blocks with the declared personas.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::{
    malformed::{Located, Malformed},
    name::PersonaName,
    template::Persona,
};

const KEY: &str = "agent_name";
const OPEN: &str = "<!--";
const CLOSE: &str = "-->";

/// The lines that count as markers, depending on the dialect. Other comments are prose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Markers {
    /// `<!-- agent_name: NAME -->`, with exactly this spacing before the name. A comment without a name is prose.
    Exact,
    /// Any spacing. A marker without a name starts a block with an empty name.
    Tolerant,
}

/// The text between one persona marker and the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The persona that the block belongs to.
    pub name: PersonaName,
    /// The marker's line in the file.
    pub line: usize,
    /// The text, trimmed.
    pub text: String,
}

/// A body, split at its markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The text before the first marker, trimmed; the default prompt.
    pub default: String,
    /// The personas' blocks, in the order of the file.
    pub named: Vec<Block>,
}

impl Blocks {
    /// Splits a body. `first_line` is the number of the body's first line in the file.
    #[must_use]
    pub fn split(body: &str, first_line: usize, markers: Markers) -> Self {
        let mut default = String::new();
        let mut named: Vec<Block> = Vec::new();
        let mut fence: Option<Fence> = None;
        for (index, line) in body.lines().enumerate() {
            let marker = if fence.is_none() { marker(line, markers) } else { None };
            fence = Fence::after(fence, line);
            if let Some(name) = marker {
                named.push(Block {
                    name,
                    line: first_line + index,
                    text: String::new(),
                });
                continue;
            }
            let text = named.last_mut().map_or(&mut default, |block| &mut block.text);
            text.push_str(line);
            text.push('\n');
        }
        for block in &mut named {
            block.text = block.text.trim().to_owned();
        }
        Self {
            default: default.trim().to_owned(),
            named,
        }
    }
}

/// Returns the name in a marker line, or `None` for any other line.
fn marker(line: &str, markers: Markers) -> Option<PersonaName> {
    let inner = line.trim().strip_prefix(OPEN)?.strip_suffix(CLOSE)?;
    let inner = match markers {
        Markers::Exact => inner.strip_prefix(' ')?.strip_prefix(KEY)?.strip_prefix(':')?,
        Markers::Tolerant => inner.trim_start().strip_prefix(KEY)?.trim_start().strip_prefix(':')?,
    };
    let name = PersonaName::normalise(inner);
    let is_marker = match markers {
        Markers::Exact => !name.is_empty(),
        Markers::Tolerant => true,
    };
    (is_marker && !inner.contains(CLOSE)).then_some(name)
}

/// An open fence of a code block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fence {
    letter: char,
    length: usize,
    /// The depth of the block quotes around the fence.
    quotes: usize,
}

impl Fence {
    /// Returns the fence that is open after a line. As in Markdown, an unclosed fence extends to the end of the file.
    fn after(open: Option<Self>, line: &str) -> Option<Self> {
        let (text, quotes) = match open {
            // Inside code, list markers and deeper block quotes are text.
            Some(fence) => (without_quotes(line, fence.quotes), fence.quotes),
            None => outside_containers(line),
        };
        let text = text.trim();
        let letter = text.chars().next().filter(|letter| matches!(letter, '`' | '~'));
        let Some(letter) = letter else { return open };
        let length = text.chars().take_while(|other| *other == letter).count();
        let rest = text.trim_start_matches(letter);
        match open {
            Some(fence) if fence.letter == letter && length >= fence.length && rest.is_empty() => None,
            Some(fence) => Some(fence),
            // A back-tick in the info string makes the line inline code.
            None if length >= 3 && !(letter == '`' && rest.contains('`')) => Some(Self { letter, length, quotes }),
            None => None,
        }
    }
}

/// Removes the given number of block quote markers from a line.
fn without_quotes(line: &str, quotes: usize) -> &str {
    (0..quotes).fold(line.trim_start(), |text, _| {
        text.strip_prefix('>').map_or(text, str::trim_start)
    })
}

/// Removes the list and block quote markers from the start of a line, and returns the quote depth. A fence may open
/// directly after these markers.
fn outside_containers(line: &str) -> (&str, usize) {
    let mut text = line.trim_start();
    let mut quotes = 0;
    loop {
        quotes += usize::from(text.starts_with('>'));
        let unnumbered = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let item = if unnumbered.len() == text.len() {
            ["- ", "* ", "+ ", ">"].iter().find_map(|mark| text.strip_prefix(mark))
        } else {
            [". ", ") "].iter().find_map(|mark| unnumbered.strip_prefix(mark))
        };
        match item {
            Some(rest) => text = rest.trim_start(),
            None => return (text, quotes),
        }
    }
}

/// Gives each declared persona the text of its block, one to one, and sorts the personas by name.
///
/// # Errors
///
/// If a persona or a block has no counterpart, is repeated or empty, or has a name that is too long.
pub fn pair(mut declared: Vec<Persona>, blocks: &[Block]) -> Result<Vec<Persona>, Located> {
    if let (Some(block), true) = (blocks.first(), declared.is_empty()) {
        return Err(Malformed::BlocksWithoutPersonas.at(Some(block.line)));
    }
    let written = written(&declared.iter().map(|persona| &persona.name).collect(), blocks)?;
    let mut paired = BTreeSet::new();
    for persona in &mut declared {
        let name = persona.name.clone();
        let Some(block) = written.get(&name) else {
            return Err(Malformed::MissingBlock(name).into());
        };
        persona.prompt.clone_from(&block.text);
        if let Some(name) = paired.replace(name) {
            return Err(Malformed::RepeatedPersona(name).into());
        }
    }
    declared.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(declared)
}

/// Returns the blocks by name. Every block must belong to a declared persona.
fn written<'a>(
    wanted: &BTreeSet<&PersonaName>,
    blocks: &'a [Block],
) -> Result<BTreeMap<&'a PersonaName, &'a Block>, Located> {
    // Checked first, because the messages of the other errors would repeat the long name.
    if let Some(long) = wanted.iter().find(|name| name.is_too_long()) {
        return Err(Malformed::LongPersona(PersonaName::clone(long)).into());
    }
    let mut written = BTreeMap::new();
    for block in blocks {
        let why: fn(PersonaName) -> Malformed = if block.name.is_too_long() {
            Malformed::LongPersona
        } else if !wanted.contains(&block.name) {
            Malformed::UndeclaredBlock
        } else if written.insert(&block.name, block).is_some() {
            Malformed::RepeatedBlock
        } else if block.text.is_empty() {
            Malformed::EmptyBlock
        } else {
            continue;
        };
        return Err(why(block.name.clone()).at(Some(block.line)));
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::name::MAX_BYTES;

    fn split(body: &str) -> (String, Vec<(String, usize, String)>) {
        let blocks = Blocks::split(body, 10, Markers::Exact);
        let named = blocks.named.into_iter();
        (
            blocks.default,
            named
                .map(|block| (block.name.to_string(), block.line, block.text))
                .collect(),
        )
    }

    #[test]
    fn marker_opens_block() {
        let (default, named) = split("base\n\n  <!-- agent_name:  Fast --> \none\ntwo\n\n<!-- agent_name:deep-->\nx");
        assert_eq!(default, "base");
        assert_eq!(
            named,
            [
                ("fast".to_owned(), 12, "one\ntwo".to_owned()),
                ("deep".to_owned(), 16, "x".to_owned())
            ]
        );
    }

    #[test]
    fn other_lines_are_prose() {
        for line in [
            "<!--agent_name: x-->",
            "<!-- Agent_Name: x -->",
            "<!-- agent_name: x --> tail",
            "text <!-- agent_name: x -->",
            "<!-- agent_name: -->",
            "<!-- agent_name: x --> <!-- agent_name: y -->",
            "<!-- agent_name x -->",
        ] {
            assert_eq!(split(line), (line.to_owned(), vec![]));
        }
    }

    #[test]
    fn tolerant_markers_differ_in_spacing_only() {
        for (line, names) in [
            ("<!-- agent_name: X -->", &["x"][..]),
            ("<!--agent_name: x-->", &["x"]),
            (" <!--   agent_name :x--> ", &["x"]),
            ("<!-- agent_name: -->", &[""]),
            ("<!-- agent_name:-->", &[""]),
            ("<!-- Agent_Name: x -->", &[]),
            ("<!-- agent_name: x --> tail", &[]),
            ("<!-- agent_names: x -->", &[]),
            ("<!- agent_name: x -->", &[]),
            ("<!-- agent_name: x --> <!-- agent_name: y -->", &[]),
            ("```\n<!--agent_name: x-->\n```", &[]),
        ] {
            let blocks = Blocks::split(line, 1, Markers::Tolerant).named;
            let found: Vec<_> = blocks.iter().map(|block| block.name.as_str()).collect();
            assert_eq!(found, names, "{line}");
        }
    }

    #[test]
    fn markers_inside_code_fences_are_text() {
        let marker = "<!-- agent_name: x -->";
        for (open, close) in [
            ("```", "```"),
            ("```md", "```"),
            ("~~~~", "~~~~~"),
            ("  - ```yaml", "    ```"),
            ("10. > ```", "> ```"),
            ("> > ```", ">> ```"),
            ("> ```", "```"),
            ("    ```", "    ```"),
        ] {
            let body = format!("{open}\n{marker}\n{close}\n<!-- agent_name: y -->\ny");
            let (_, named) = split(&body);
            let names: Vec<_> = named.iter().map(|(name, ..)| name.as_str()).collect();
            assert_eq!(names, ["y"], "{open}");
        }
    }

    #[test]
    fn fence_closes_only_with_same_marker() {
        for body in [
            "````\n```\n<!-- agent_name: x -->",
            "```\n~~~\n<!-- agent_name: x -->",
            "```\n``` info\n<!-- agent_name: x -->",
            "```\nnever closed\n<!-- agent_name: x -->",
            "```\n> ```\n<!-- agent_name: x -->",
            "```\n- ```\n1. ```\n<!-- agent_name: x -->",
            "> ```\n> > ```\n<!-- agent_name: x -->",
        ] {
            assert_eq!(split(body).1, [], "{body}");
        }
        assert_eq!(split("```inline```\n<!-- agent_name: x -->\nx").1.len(), 1);
    }

    fn run(declared: &[&str], body: &str) -> Result<Vec<String>, Located> {
        let declared = declared.iter().map(|name| Persona {
            name: PersonaName::normalise(name),
            description: None,
            model: None,
            effort: None,
            prompt: String::new(),
        });
        let personas = pair(declared.collect(), &Blocks::split(body, 1, Markers::Exact).named)?;
        Ok(personas.into_iter().map(|persona| persona.prompt).collect())
    }

    #[test]
    fn personas_and_blocks_are_one_to_one() {
        let a = "<!-- agent_name: a -->\nA\n";
        let b = "<!-- agent_name: b -->\nB\n";
        let name = PersonaName::normalise;
        assert_eq!(run(&[], "text"), Ok(vec![]));
        assert_eq!(
            run(&["b", "A"], &format!("{a}{b}")),
            Ok(vec!["A".to_owned(), "B".to_owned()])
        );
        let (longest, long) = ("x".repeat(MAX_BYTES), "x".repeat(MAX_BYTES + 1));
        let block = format!("<!-- agent_name: {longest} -->\nX");
        assert_eq!(run(&[&longest], &block), Ok(vec!["X".to_owned()]));
        let rows: &[(&[&str], String, Located)] = &[
            (&[], a.to_owned(), Malformed::BlocksWithoutPersonas.at(Some(1))),
            (
                &["a"],
                format!("{a}{b}"),
                Malformed::UndeclaredBlock(name("b")).at(Some(3)),
            ),
            (&["a", "b"], a.to_owned(), Malformed::MissingBlock(name("b")).at(None)),
            (&[""], "text".to_owned(), Malformed::MissingBlock(name("")).at(None)),
            (
                &["a", "a"],
                a.to_owned(),
                Malformed::RepeatedPersona(name("a")).at(None),
            ),
            (
                &["a"],
                format!("{a}{a}"),
                Malformed::RepeatedBlock(name("a")).at(Some(3)),
            ),
            (
                &["a", "b"],
                format!("<!-- agent_name: a -->\n \n{b}"),
                Malformed::EmptyBlock(name("a")).at(Some(1)),
            ),
            (&[&long], a.to_owned(), Malformed::LongPersona(name(&long)).at(None)),
            (
                &["a"],
                format!("{a}<!-- agent_name: {long} -->\nlong"),
                Malformed::LongPersona(name(&long)).at(Some(3)),
            ),
        ];
        for (declared, body, error) in rows {
            assert_eq!(run(declared, body), Err(error.clone()), "{declared:?} {body:?}");
        }
        assert_eq!(
            Malformed::LongPersona(name(&long)).to_string(),
            format!("agent_name \"{longest}...\" has 129 bytes; at most 128 are allowed")
        );
    }
}
