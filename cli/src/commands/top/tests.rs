//! Tests of the screen's state and of the drawn frames.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{buffer::Buffer, layout::Rect, style::Color};
use troupe_proto::supervisor::v1::{
    ApprovalDecision, ApprovalRequested, ApprovalResolved, CloseAgentRequest, Event, InterruptAgentRequest, NoteSet,
    SpawnableAgent, Telemetry, ThreadClosed, TurnEnded, TurnOutcome, Usage, WatchThreadsResponse, event::Kind,
    watch_threads_response::Message,
};

use super::{
    action::Call,
    detail::{Change, Source, Tab},
    fixture::{ago, id, message, press, state, type_text, updates},
    model::Reread,
    rows::{Key, View},
    state::{Answer, Effect, Mode, State, Target},
    view::{self, Theme},
};
use crate::{error::Error, filter::Filter, follow::SessionsUpdate};

fn draw(state: &State, theme: Theme) -> Buffer {
    let (width, height) = state.size;
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    view::draw(state, "local", theme, &mut buffer);
    buffer
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    (0..area.height)
        .map(|y| {
            let mut line = String::new();
            let mut x = 0;
            while x < area.width {
                let symbol = buffer[(x, y)].symbol();
                line.push_str(symbol);
                x += u16::try_from(unicode_width::UnicodeWidthStr::width(symbol))
                    .unwrap()
                    .max(1);
            }
            line.trim_end().to_owned()
        })
        .collect()
}

/// Describes the styles of each line: the first column of each run, its color and its modifiers.
fn styles(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let style = |x, y| {
        let cell = &buffer[(x, y)];
        (cell.fg, cell.bg, cell.modifier)
    };
    (0..area.height)
        .map(|y| {
            let starts = (0..area.width).filter(|x| *x == 0 || style(*x, y) != style(*x - 1, y));
            let runs = starts.map(|x| {
                let (fg, _, modifier) = style(x, y);
                format!(
                    "{x}:{fg:?}{}",
                    if modifier.is_empty() {
                        String::new()
                    } else {
                        format!("+{modifier:?}")
                    }
                )
            });
            runs.collect::<Vec<_>>().join(" ")
        })
        .collect()
}

fn frame(state: &State) -> String {
    let buffer = draw(state, Theme::Dark);
    format!("{}\n\n{}", lines(&buffer).join("\n"), styles(&buffer).join("\n"))
}

fn text(state: &State) -> String {
    lines(&draw(state, Theme::Dark)).join("\n")
}

#[track_caller]
fn assert_shows(state: &State, expected: &str) {
    let text = text(state);
    assert!(text.contains(expected), "{text}");
}

/// Returns an event of a thread of the fixture.
fn event(thread: &str, sequence: u64, kind: Kind) -> SessionsUpdate<WatchThreadsResponse> {
    message(Message::Event(Event {
        session_id: id("0000cc03"),
        thread_id: id(thread),
        sequence,
        kind: Some(kind),
        ..Event::default()
    }))
}

/// Loads details as the feed would.
fn load(state: &mut State, change: Change) {
    let source = state.source().unwrap();
    state.apply_detail(&source, change);
}

#[test]
fn frames_fit_every_size() {
    for (width, height) in [(40, 10), (80, 24), (120, 40), (200, 60)] {
        let mut state = state(width, height);
        if state.source().is_some() {
            load(&mut state, Change::Replace(vec!["the whole call".to_owned()]));
        }
        insta::assert_snapshot!(format!("{width}x{height}"), frame(&state));
        let plain = draw(&state, Theme::None);
        assert_eq!(
            lines(&plain),
            lines(&draw(&state, Theme::Dark)),
            "the same text without colors"
        );
        let is_colored = |cell: &ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
        assert!(!plain.content().iter().any(is_colored));
    }
}

#[test]
fn every_size_can_be_drawn() {
    for width in (0..130).step_by(13) {
        for height in (0..30).step_by(3) {
            let mut state = state(width, height);
            for keys in ["?", "esc", "N", "esc", "/", "esc", "tab", "G"] {
                press(&mut state, keys);
                draw(&state, Theme::Light);
            }
        }
    }
}

#[test]
fn thread_details_have_tabs() {
    let mut state = state(120, 30);
    press(&mut state, "ctrl-t ctrl-t");
    load(
        &mut state,
        Change::Replace(vec![format!("12:03 • {}", "a long text ".repeat(12))]),
    );
    insta::assert_snapshot!("thread", text(&state));
    press(&mut state, "]");
    assert_eq!(state.tab, Tab::Info);
    insta::assert_snapshot!("info", text(&state));
}

#[test]
fn hostile_text_draws_no_control_characters() {
    let mut state = state(120, 40);
    press(&mut state, "ctrl-t");
    load(&mut state, Change::Replace(vec!["plain".to_owned()]));
    let text = text(&state);
    assert!(text.contains("found 演出"), "{text}");
    assert!(
        !text
            .chars()
            .any(|character| character != '\n' && character.is_control())
    );
}

#[test]
fn update_that_moves_the_selection_blocks_decisions() {
    let mut state = state(120, 40);
    let resolved = Kind::ApprovalResolved(ApprovalResolved {
        approval_id: id("0000dd04"),
        decision: ApprovalDecision::Granted.into(),
        ..ApprovalResolved::default()
    });
    state.apply(event("0000aa02", 91, resolved));
    state.refresh();
    assert_eq!(press(&mut state, "x"), []);
    assert_shows(&state, "the selection has just moved");
    state.tick(ago(0) + std::time::Duration::from_secs(2));
    press(&mut state, "x");
    assert!(matches!(state.mode, Mode::Confirm { .. }));
}

#[test]
fn key_does_not_act_on_row_that_replaced_another() {
    let mut state = state(120, 40);
    let requested = |approval: &str, sequence| {
        event(
            "0000aa02",
            sequence,
            Kind::ApprovalRequested(ApprovalRequested {
                approval_id: id(approval),
                subject: "Tool call: write_file".to_owned(),
                ..ApprovalRequested::default()
            }),
        )
    };
    state.apply(requested("0000dd05", 91));
    state.refresh();
    // The first approval is selected, and another client decides it. The last frame still shows the approval.
    let resolved = Kind::ApprovalResolved(ApprovalResolved {
        approval_id: id("0000dd04"),
        ..ApprovalResolved::default()
    });
    state.apply(event("0000aa02", 92, resolved));
    let yes = KeyEvent::new(KeyCode::Char('y'), KeyModifiers::NONE);
    assert_eq!(state.key(&yes), [], "not the second approval");
    assert_shows(&state, "the selection has just moved");
}

#[test]
fn interrupt_carries_the_turn_on_the_screen() {
    let mut state = state(120, 40);
    press(&mut state, "ctrl-t ctrl-t i");
    assert_shows(&state, "interrupt worker 0000aa02?");
    let call = Call::Interrupt(InterruptAgentRequest {
        session_id: id("0000cc03"),
        thread_id: id("0000aa02"),
        turn: Some(4),
        ..InterruptAgentRequest::default()
    });
    assert_eq!(press(&mut state, "y"), [Effect::Call(call)]);
    press(&mut state, "i");
    assert_eq!(press(&mut state, "x"), [], "another key cancels");
    assert_shows(&state, "cancelled");
}

#[test]
fn close_shows_the_affected_threads() {
    let mut state = state(120, 40);
    press(&mut state, "ctrl-t x");
    assert_shows(&state, "close orchestrator lead and 5 threads below it (2 running)?");
    let call = Call::Close(CloseAgentRequest {
        session_id: id("0000cc03"),
        thread_id: id("0000aa01"),
        ..CloseAgentRequest::default()
    });
    assert_eq!(press(&mut state, "y"), [Effect::Call(call)]);
    press(&mut state, "h h h h h x");
    assert_shows(&state, "close session 0000cc03 with 7 threads (4 running)?");
}

#[test]
fn read_only_screen_changes_nothing() {
    let mut state = State::new(Filter::default(), true, ago(0));
    state.size = (100, 30);
    updates().into_iter().for_each(|update| {
        state.apply(update);
    });
    state.refresh();
    for key in "y n e s S i x R p m b N :".split(' ') {
        assert_eq!(press(&mut state, key), [], "{key}");
        assert!(matches!(state.mode, Mode::Browse), "{key}");
        assert!(text(&state).contains("--read-only: this key is off"), "{key}");
    }
}

#[test]
fn input_is_sent_or_steered() {
    let mut state = state(120, 40);
    for (key, steer) in [("s", false), ("S", true)] {
        press(&mut state, "ctrl-t");
        press(&mut state, key);
        type_text(&mut state, "hallo w");
        press(&mut state, "back");
        type_text(&mut state, "Welt");
        let sent = press(&mut state, "enter");
        let [Effect::Call(Call::Send(request))] = sent.as_slice() else {
            panic!("{sent:?}");
        };
        assert_eq!((request.message(), request.steer), ("hallo Welt", steer));
        press(&mut state, &format!("{key} enter"));
        assert!(matches!(state.mode, Mode::Browse), "an empty text sends nothing");
    }
}

#[test]
fn percent_in_command_line_is_the_selected_id() {
    let mut state = state(120, 40);
    press(&mut state, "ctrl-t :");
    type_text(&mut state, "troupe note % 'two words'");
    let expected = Effect::RunOnTerminal(["note", &id("0000aa01"), "two words"].map(ToOwned::to_owned).to_vec());
    assert_eq!(press(&mut state, "enter"), [expected]);
    press(&mut state, ":");
    type_text(&mut state, "note 'open");
    assert_eq!(press(&mut state, "enter"), []);
    assert_shows(&state, "a quote is not closed");
}

#[test]
fn spawn_offers_the_roles_of_the_parent() {
    let mut state = state(120, 40);
    assert_eq!(press(&mut state, "ctrl-t N"), [Effect::ReadSpawnable(id("0000aa01"))]);
    let role = |name: &str| SpawnableAgent {
        agent_type: name.to_owned(),
        description: format!("Use `{name}`"),
        ..SpawnableAgent::default()
    };
    let asked = state.answer(Answer::Spawnable(
        id("0000aa01"),
        vec![role("explorer"), role("worker")],
    ));
    let resolve = |role: &str| Effect::Resolve {
        session: id("0000cc03"),
        parent: id("0000aa01"),
        role: role.to_owned(),
    };
    assert_eq!(asked, [resolve("explorer")]);
    assert_shows(&state, "role of the new agent below orchestrator lead");
    let request = state.spawn_request(&id("0000cc03"), &id("0000aa01"), "worker").unwrap();
    assert_eq!(request.inherited.unwrap().model, "gpt-5.2");
    assert_eq!(press(&mut state, "j"), [resolve("worker")]);
    let resolved = vec!["model  role  gpt-5.2-codex".to_owned()];
    state.answer(Answer::Resolved("worker".to_owned(), resolved));
    assert_shows(&state, "model  role  gpt-5.2-codex");
    press(&mut state, "enter");
    type_text(&mut state, "Fix it");
    let spawned = press(&mut state, "enter");
    let expected = ["spawn", "worker", "--parent", &id("0000aa01"), "--message", "Fix it"];
    assert!(
        matches!(spawned.as_slice(), [Effect::Run { arguments, file: None }] if *arguments == expected),
        "{spawned:?}"
    );
}

#[test]
fn filter_follows_each_key() {
    let mut state = state(120, 40);
    press(&mut state, "/");
    type_text(&mut state, "r:explorer");
    assert!(!text(&state).contains("bug-hunter"), "{}", text(&state));
    assert!(text(&state).contains("orchestrator"), "the threads above stay");
    press(&mut state, "enter");
    assert_shows(&state, "filter r:explorer");
    press(&mut state, "esc");
    assert_shows(&state, "bug-hunter");
    press(&mut state, "/");
    type_text(&mut state, "x:y");
    press(&mut state, "enter");
    assert_shows(&state, "unknown key \"x\"");
    press(&mut state, "esc f");
    assert_shows(&state, "filter needs:me");
}

#[test]
fn view_requests_its_data() {
    let mut state = state(120, 40);
    assert_eq!(press(&mut state, "3"), [Effect::ReadRunners]);
    assert_shows(&state, "no runner is attached");
    assert_eq!(press(&mut state, "4"), [Effect::ReadRoles]);
    press(&mut state, "1");
    assert_eq!(state.options.view, View::Needs);
    assert_shows(&state, "needs you (3)");
    press(&mut state, "esc");
    assert_eq!(state.options.view, View::Tree);
}

#[test]
fn new_waiting_rows_alert_once() {
    let mut state = state(120, 40);
    assert!(state.take_alert());
    let errored = Kind::TurnEnded(TurnEnded {
        turn: 4,
        outcome: TurnOutcome::Errored.into(),
        message: "no".to_owned(),
        ..TurnEnded::default()
    });
    let resolved = Kind::ApprovalResolved(ApprovalResolved {
        approval_id: id("0000dd04"),
        ..ApprovalResolved::default()
    });
    state.apply(event("0000aa02", 91, resolved));
    state.refresh();
    assert!(!state.take_alert());
    // The alert does not depend on the view.
    press(&mut state, "3");
    state.apply(event("0000aa02", 92, errored.clone()));
    state.refresh();
    assert!(state.take_alert());
    state.apply(event("0000aa02", 93, errored));
    state.refresh();
    assert!(!state.take_alert());
}

#[test]
fn token_rate_is_shown() {
    let mut state = state(120, 40);
    let telemetry = Telemetry {
        thread_id: id("0000aa02"),
        generation: 1,
        usage: Some(Usage {
            input_tokens: 180_000,
            output_tokens: 5_000,
            cost_micros: 1_000_000,
            ..Usage::default()
        }),
        ..Telemetry::default()
    };
    state.apply(message(Message::Telemetry(telemetry)));
    assert_eq!(state.model.tokens().per_minute(ago(0)), 3_000);
    assert_eq!(state.model.cost().per_hour(ago(0)), 90_000 * 12);
    state.refresh();
    assert_shows(&state, "3k/min");
}

#[test]
fn unclear_parts_are_read_again() {
    let mut state = state(120, 40);
    let ended = Kind::TurnEnded(TurnEnded {
        outcome: TurnOutcome::Completed.into(),
        ..TurnEnded::default()
    });
    let effects = state.apply(event("0000aa05", 91, ended));
    let stalled = Reread::Thread {
        session: id("0000cc03"),
        thread: id("0000aa05"),
    };
    assert_eq!(effects, [Effect::Reread(stalled)]);
}

#[test]
fn lost_connection_is_shown_until_reconnect() {
    let mut state = state(120, 40);
    state.apply(SessionsUpdate::Lost("connection refused".to_owned()));
    state.apply(SessionsUpdate::Interrupted(id("0000cc03")));
    state.refresh();
    let lost = text(&state);
    assert!(lost.contains("reconnecting, as of 08:00:00"), "{lost}");
    assert!(lost.contains("session  0000cc03  reconnecting"), "{lost}");
    for update in updates() {
        state.apply(update);
    }
    state.refresh();
    assert!(!text(&state).contains("reconnecting"));
}

#[test]
fn rejected_watch_does_not_delay_the_others() {
    let mut state = State::new(Filter::default(), false, ago(0));
    state.size = (120, 40);
    let mut first = updates();
    first.truncate(1);
    first.into_iter().for_each(|update| {
        state.apply(update);
    });
    assert!(!state.model.is_synced());
    state.apply(SessionsUpdate::Unfollowed(
        id("0000cc03"),
        Error::failure("no permission"),
    ));
    assert!(state.model.is_synced());
    state.refresh();
    assert_shows(&state, "cannot be followed");
}

#[test]
fn deleted_session_is_removed() {
    let mut state = state(120, 40);
    state.apply(SessionsUpdate::Deleted(id("0000cc03")));
    state.refresh();
    assert_shows(&state, "no sessions");
}

#[test]
fn busy_thread_shows_older_version_of_details() {
    let mut state = state(120, 40);
    press(&mut state, "ctrl-t ] ] ]");
    assert_eq!(state.tab, Tab::Mail);
    let older = state.source().unwrap();
    state.apply(event("0000aa01", 91, Kind::NoteSet(NoteSet::default())));
    state.refresh();
    assert_ne!(state.source().as_ref(), Some(&older));
    state.apply_detail(&older, Change::Replace(vec!["one letter".to_owned()]));
    assert_shows(&state, "one letter");
}

#[test]
fn every_key_is_safe_on_every_row() {
    for start in ["g", "ctrl-t", "G", "tab", "1", "3", "4"] {
        for binding in super::keys::BINDINGS {
            let mut state = state(120, 40);
            press(&mut state, start);
            for (modifiers, code) in binding.keys() {
                state.key(&KeyEvent::new(*code, *modifiers));
                state.refresh();
                draw(&state, Theme::Dark);
            }
        }
    }
}

#[test]
fn selection_stays_on_its_row() {
    let mut state = state(120, 40);
    press(&mut state, "ctrl-t ctrl-t");
    let before = state.selected;
    state.apply(event("0000aa05", 91, Kind::ThreadClosed(ThreadClosed::default())));
    state.refresh();
    assert_eq!(state.selected, before - 1, "a row above is gone");
    assert!(matches!(state.target(), Target::Thread(_, thread) if thread.thread_id == id("0000aa02")));
}

#[test]
fn details_of_another_thread_are_not_shown() {
    let mut state = state(120, 40);
    press(&mut state, "ctrl-t");
    let old = state.source().unwrap();
    press(&mut state, "ctrl-t");
    state.apply_detail(&old, Change::Replace(vec!["of the other".to_owned()]));
    assert_eq!(state.loaded(), None);
    assert!(matches!(state.source(), Some(Source::Thread { thread, .. }) if thread == id("0000aa02")));
    assert!(matches!(state.rows.first(), Some(super::rows::Row::NeedsHeading(3))));
    assert_eq!(state.key_of(&state.rows[0]), Some(Key::NeedsHeading));
}

/// Panics like a process that shows the screen. `panic_restores_the_terminal` runs this test in a process.
#[test]
#[ignore = "panics for `panic_restores_the_terminal`"]
fn panics_on_the_screen() {
    super::terminal::restore_at_panic();
    panic!("on purpose");
}

#[test]
fn panic_restores_the_terminal() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--nocapture",
            "--exact",
            "commands::top::tests::panics_on_the_screen",
        ])
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.contains("\u{1b}[?1049l") && shown.contains("\u{1b}[?25h"),
        "{shown:?}"
    );
    assert!(String::from_utf8(output.stderr).unwrap().contains("on purpose"));
}
