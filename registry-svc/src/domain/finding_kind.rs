//! The kinds of findings. Each has an identifier that stays the same when its message changes.

macro_rules! kinds {
    ($($kind:ident $id:literal $summary:literal;)*) => {
        /// The kind of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FindingKind {
            $(#[doc = $summary] $kind,)*
        }

        impl FindingKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Returns the identifier: lower-case words with hyphens.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self { $(Self::$kind => $id,)* }
            }

            /// Returns a sentence that describes the kind.
            #[must_use]
            pub const fn summary(self) -> &'static str {
                match self { $(Self::$kind => $summary,)* }
            }
        }
    };
}

kinds! {
    Unreadable "unreadable" "A file or directory cannot be read, or is not text of the permitted size.";
    UnterminatedFrontmatter "unterminated-frontmatter" "No line closes the frontmatter.";
    MissingFrontmatter "missing-frontmatter" "The file has no frontmatter, which must declare its name.";
    MissingPreamble "missing-preamble" "A graph template has no preamble and declares no capability.";
    InvalidYaml "invalid-yaml" "The frontmatter is not YAML, or a value has the wrong type.";
    InvalidToml "invalid-toml" "The file or its preamble is not TOML, or a value has the wrong type.";
    UnknownKey "unknown-key" "An unknown key is ignored.";
    MisspeltRestriction "misspelt-restriction" "An unknown key resembles a key that restricts.";
    MisplacedRestriction "misplaced-restriction" "A key restricts only in another dialect or in another mapping.";
    TooManyKeys "too-many-keys" "The file has too many keys.";
    MissingField "missing-field" "A required key or part is missing.";
    InvalidValue "invalid-value" "A value breaks a rule.";
    ConflictingKeys "conflicting-keys" "Two keys contradict each other.";
    DuplicateEntry "duplicate-entry" "A list has an entry twice.";
    BlankEntry "blank-entry" "A list has a blank entry.";
    EmptyList "empty-list" "An empty list may not mean what its author intended.";
    InvalidPattern "invalid-pattern" "A tool pattern cannot be compiled.";
    LiteralPattern "literal-pattern" "A wildcard has no effect in a list of literal names.";
    UnknownTool "unknown-tool" "No supported agent program has a tool of this name.";
    UnknownRole "unknown-role" "No role of this name exists.";
    UndeclaredPersona "undeclared-persona" "A block belongs to a persona that is not declared.";
    MissingPersonaBlock "missing-persona-block" "A declared persona has no block.";
    RepeatedPersona "repeated-persona" "A persona or its block is repeated.";
    EmptyPersonaBlock "empty-persona-block" "A persona's block is empty.";
    MissingDescription "missing-description" "A role or persona has no description, so that it cannot be listed.";
    MissingPrompt "missing-prompt" "A role has no default prompt, so that it cannot be listed.";
    UnusableName "unusable-name" "The file's name cannot be the name of a template.";
    DuplicateName "duplicate-name" "Two files of one directory have the same name.";
    DifferentName "different-name" "The name in the file differs from the name of the file.";
    UnmappedField "unmapped-field" "A setting of another program has no equivalent.";
    UnusedAgent "unused-agent" "An agent of another program is disabled or remote.";
    EndpointNotAllowed "endpoint-not-allowed" "A project's template names an endpoint that the operator does not allow.";
    MoreFindings "more-findings" "The file has more findings than are shown.";
}
