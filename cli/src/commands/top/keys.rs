//! The keys of the screen.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A command of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Quit,
    Help,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Fold,
    Unfold,
    ToggleFold,
    Open,
    Back,
    OtherPane,
    NextTab,
    PreviousTab,
    NextNeed,
    NextActive,
    ViewNeeds,
    ViewTree,
    ViewRunners,
    ViewRoles,
    Filter,
    NextFilter,
    Sort,
    ShowClosed,
    Grant,
    Deny,
    DenyWithReason,
    Send,
    Steer,
    Interrupt,
    Close,
    Resume,
    Pause,
    Mode,
    Budget,
    Spawn,
    Pager,
    Copy,
    Export,
    Run,
    Suspend,
    Redraw,
}

impl Command {
    /// Returns whether the command changes a session.
    pub(super) const fn is_mutation(self) -> bool {
        matches!(
            self,
            Self::Grant
                | Self::Deny
                | Self::DenyWithReason
                | Self::Send
                | Self::Steer
                | Self::Interrupt
                | Self::Close
                | Self::Resume
                | Self::Pause
                | Self::Mode
                | Self::Budget
                | Self::Spawn
                | Self::Run
        )
    }
}

/// A key with its modifiers.
type Pressed = (KeyModifiers, KeyCode);

/// The keys of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    keys: &'static [Pressed],
    pub(super) command: Command,
    /// The description in the help.
    pub(super) help: &'static str,
}

const fn plain(key: char) -> Pressed {
    (KeyModifiers::NONE, KeyCode::Char(key))
}

const fn control(key: char) -> Pressed {
    (KeyModifiers::CONTROL, KeyCode::Char(key))
}

const fn code(key: KeyCode) -> Pressed {
    (KeyModifiers::NONE, key)
}

const fn bind(keys: &'static [Pressed], command: Command, help: &'static str) -> Binding {
    Binding { keys, command, help }
}

/// The keys in the order of the help.
pub(super) const BINDINGS: &[Binding] = &[
    bind(&[plain('k'), code(KeyCode::Up)], Command::Up, "Previous row"),
    bind(&[plain('j'), code(KeyCode::Down)], Command::Down, "Next row"),
    bind(&[code(KeyCode::PageUp), control('b')], Command::PageUp, "Previous page"),
    bind(&[code(KeyCode::PageDown), control('f')], Command::PageDown, "Next page"),
    bind(&[plain('g'), code(KeyCode::Home)], Command::First, "First row"),
    bind(&[plain('G'), code(KeyCode::End)], Command::Last, "Last row"),
    bind(
        &[plain('h'), code(KeyCode::Left)],
        Command::Fold,
        "Fold the row; previous tab",
    ),
    bind(
        &[plain('l'), code(KeyCode::Right)],
        Command::Unfold,
        "Unfold the row; next tab",
    ),
    bind(&[plain(' ')], Command::ToggleFold, "Fold or unfold the row"),
    bind(&[code(KeyCode::Enter)], Command::Open, "Go to the details"),
    bind(&[code(KeyCode::Esc)], Command::Back, "Go back; remove the filter"),
    bind(&[code(KeyCode::Tab)], Command::OtherPane, "Other pane"),
    bind(&[plain(']')], Command::NextTab, "Next tab of the details"),
    bind(&[plain('[')], Command::PreviousTab, "Previous tab of the details"),
    bind(&[plain('a')], Command::NextNeed, "Next row that waits for a person"),
    bind(&[control('t')], Command::NextActive, "Next active thread"),
    bind(&[plain('1')], Command::ViewNeeds, "Show what waits for a person"),
    bind(&[plain('2')], Command::ViewTree, "Show all sessions and threads"),
    bind(&[plain('3')], Command::ViewRunners, "Show the runners"),
    bind(&[plain('4')], Command::ViewRoles, "Show the roles"),
    bind(&[plain('/')], Command::Filter, "Filter, as in `troupe ps --filter`"),
    bind(&[plain('f')], Command::NextFilter, "Next common filter"),
    bind(&[plain('O')], Command::Sort, "Next order"),
    bind(&[plain('w')], Command::ShowClosed, "Show or hide closed threads"),
    bind(&[plain('y')], Command::Grant, "Grant the approval"),
    bind(&[plain('n')], Command::Deny, "Deny the approval"),
    bind(
        &[plain('e')],
        Command::DenyWithReason,
        "Deny the approval with a reason",
    ),
    bind(&[plain('s')], Command::Send, "Send input to the thread"),
    bind(&[plain('S')], Command::Steer, "Send input to the running turn"),
    bind(
        &[plain('i')],
        Command::Interrupt,
        "Interrupt the thread and its descendants",
    ),
    bind(&[plain('x')], Command::Close, "Close the thread or the session"),
    bind(&[plain('R')], Command::Resume, "Reopen the closed thread"),
    bind(&[plain('p')], Command::Pause, "Pause or resume the session"),
    bind(&[plain('m')], Command::Mode, "Change the mode of the session"),
    bind(&[plain('b')], Command::Budget, "Set the budget of the thread"),
    bind(&[plain('N')], Command::Spawn, "Spawn an agent below the thread"),
    bind(&[plain('o')], Command::Pager, "Show the details in the pager"),
    bind(&[plain('c')], Command::Copy, "Copy the id to the clipboard"),
    bind(&[plain('E')], Command::Export, "Export the session to a file"),
    bind(
        &[plain(':')],
        Command::Run,
        "Run a troupe command; % is the selected id",
    ),
    bind(&[plain('?'), code(KeyCode::F(1))], Command::Help, "Show the keys"),
    bind(&[control('l')], Command::Redraw, "Draw the screen again"),
    bind(&[control('z')], Command::Suspend, "Suspend"),
    bind(&[plain('q'), control('c')], Command::Quit, "Quit"),
];

/// Returns the command of a key.
pub(super) fn command(event: &KeyEvent) -> Option<Command> {
    // Terminals report upper-case letters with or without Shift.
    let modifiers = event.modifiers.difference(KeyModifiers::SHIFT);
    let pressed = (modifiers, event.code);
    BINDINGS
        .iter()
        .find(|binding| binding.keys.contains(&pressed))
        .map(|binding| binding.command)
}

impl Binding {
    /// Returns the keys of the binding.
    #[cfg(test)]
    pub(super) const fn keys(&self) -> &'static [Pressed] {
        self.keys
    }

    /// Returns the names of the keys: `j ↓`.
    pub(super) fn names(&self) -> String {
        self.keys.iter().map(name).collect::<Vec<_>>().join(" ")
    }
}

fn name((modifiers, key): &Pressed) -> String {
    let key = match key {
        KeyCode::Char(' ') => "Space".to_owned(),
        KeyCode::Char(key) if modifiers.contains(KeyModifiers::CONTROL) => key.to_ascii_uppercase().to_string(),
        KeyCode::Char(key) => key.to_string(),
        KeyCode::Up => "↑".to_owned(),
        KeyCode::Down => "↓".to_owned(),
        KeyCode::Left => "←".to_owned(),
        KeyCode::Right => "→".to_owned(),
        other => other.to_string(),
    };
    if modifiers.contains(KeyModifiers::CONTROL) {
        format!("Ctrl+{key}")
    } else {
        key
    }
}

/// Returns the name of the first key of a command.
pub(super) fn key_of(command: Command) -> String {
    BINDINGS
        .iter()
        .find(|binding| binding.command == command)
        .and_then(|binding| binding.keys.first())
        .map(name)
        .unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::string_slice)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_unique_and_found() {
        let mut seen = HashSet::new();
        for binding in BINDINGS {
            for (modifiers, key) in binding.keys {
                assert!(seen.insert((*modifiers, *key)), "{} is bound twice", binding.names());
                assert_eq!(command(&KeyEvent::new(*key, *modifiers)), Some(binding.command));
            }
        }
        let shifted = KeyEvent::new(KeyCode::Char('S'), KeyModifiers::SHIFT);
        assert_eq!(command(&shifted), Some(Command::Steer));
        assert_eq!(command(&KeyEvent::new(KeyCode::Char('é'), KeyModifiers::NONE)), None);
    }

    #[test]
    fn keys_have_names() {
        assert_eq!(key_of(Command::NextActive), "Ctrl+T");
        assert_eq!(key_of(Command::ToggleFold), "Space");
        let down = BINDINGS.iter().find(|binding| binding.command == Command::Down);
        assert_eq!(down.map(Binding::names).as_deref(), Some("j ↓"));
    }

    #[test]
    fn documentation_has_the_keys() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/top.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (begin, end) = ("<!-- begin: keys, written by a test -->\n", "<!-- end: keys -->");
        let start = page.find(begin).unwrap() + begin.len();
        let stop = page.find(end).unwrap();
        let rows = BINDINGS.iter().map(|binding| {
            let keys: Vec<String> = binding.keys.iter().map(|key| format!("`{}`", name(key))).collect();
            format!("| {} | {} |\n", keys.join(" "), binding.help)
        });
        let table = format!("\n| key | effect |\n|---|---|\n{}\n", rows.collect::<String>());
        if std::env::var_os("TROUPE_WRITE_DOCS").is_some() {
            let page = format!("{}{table}{}", &page[..start], &page[stop..]);
            std::fs::write(&path, page).unwrap();
        } else {
            assert_eq!(&page[start..stop], table, "TROUPE_WRITE_DOCS=1 writes the table");
        }
    }
}
