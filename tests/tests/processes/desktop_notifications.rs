//! `troupe notify --desktop` and `--bell`, with a `notify-send` that records its arguments.

use std::{fs, os::unix::fs::PermissionsExt as _};

use tokio::process::Command;
use troupe_proto::supervisor::v1::CreateSessionRequest;
use troupe_tests::{
    client,
    process::{Home, Up},
    tree::Tree,
    within,
};

/// A message of an agent with text that a shell or a desktop could interpret.
const MESSAGE: &str = "say -e $(reboot) <b>bold</b>";

/// Starts a pair with one completed turn whose message is [`MESSAGE`].
async fn completed(home: &Home) -> (Up, Tree) {
    let up = Up::start_with(home, Up::WITH_RUNNER).await;
    let operator = client::supervisor(up.supervisor, Some(&home.operator_token()));
    let tree = Tree::open(operator, CreateSessionRequest::default()).await;
    tree.spawn_for("worker", MESSAGE).await;
    (up, tree)
}

fn notify(home: &Home, up: &Up, tree: &Tree, arguments: &[&str]) -> Command {
    let mut command = home.troupe(&["notify", &tree.session, "--after", "0", "--count", "1"]);
    command
        .args(arguments)
        .env("TROUPE_SUPERVISOR_URL", format!("http://{}", up.supervisor));
    command
}

fn script(home: &Home, name: &str, text: &str) {
    let bin = home.path().join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join(name), text).unwrap();
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn path(home: &Home) -> String {
    format!("{}:/usr/bin:/bin", home.path().join("bin").display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn desktop_gets_title_and_text_as_arguments() {
    let home = Home::default();
    let (up, tree) = completed(&home).await;
    let record = home.path().join("arguments");
    let program = if cfg!(target_os = "macos") {
        "osascript"
    } else {
        "notify-send"
    };
    script(
        &home,
        program,
        &format!("#!/bin/sh\nprintf '%s\\0' \"$@\" > {}\n", record.display()),
    );
    let mut command = notify(&home, &up, &tree, &["--desktop", "--kind", "agent-turn-complete"]);
    let output = within("a notification", command.env("PATH", path(&home)).output())
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("agent-turn-complete"));
    assert_eq!(output.stderr, b"", "nothing is written to the terminal");

    let said = fs::read_to_string(record).unwrap();
    let arguments: Vec<&str> = said.split_terminator('\0').collect();
    let [.., title, text] = &arguments[..] else {
        panic!("{arguments:?}")
    };
    assert!(title.starts_with("troupe agent-turn-complete"), "{title}");
    assert!(text.contains("worker") && text.contains("completed"), "{text}");
    if program == "notify-send" {
        assert_eq!(arguments[..3], ["--app-name=troupe", "--urgency=normal", "--"]);
        assert!(text.contains("$(reboot) &lt;b&gt;bold&lt;/b&gt;"), "{text}");
    }
    up.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminal_notifies_without_desktop() {
    // Runs a program in a pseudo-terminal and forwards its output.
    const IN_A_TERMINAL: &str = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    const OSC_9: &[u8] = b"\x1b]9;troupe agent-turn-complete";
    let home = Home::default();
    let (up, tree) = completed(&home).await;
    let has = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);

    // A `notify-send` that finds no desktop fails.
    for name in ["notify-send", "osascript"] {
        script(&home, name, "#!/bin/sh\nexit 1\n");
    }
    let wanted = ["--desktop", "--kind", "agent-turn-complete", "--client-id", "terminal"];
    let inner = notify(&home, &up, &tree, &wanted);
    let inner = inner.as_std();
    let mut terminal = Command::new("python3");
    terminal
        .args(["-c", IN_A_TERMINAL])
        .arg(inner.get_program())
        .args(inner.get_args());
    terminal
        .env_clear()
        .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("PATH", path(&home))
        .current_dir(home.path())
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    let output = within("a notification in a terminal", terminal.output()).await.unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        has(&output.stdout, OSC_9) && has(&output.stdout, b"\x07\x07"),
        "{shown:?}"
    );
    assert!(
        shown.contains("notifications are sent to the terminal instead"),
        "{shown:?}"
    );

    // Without a terminal, standard error receives no control sequences unless they are requested.
    for (flag, expected) in [("--desktop", false), ("--bell", true)] {
        let mut command = notify(
            &home,
            &up,
            &tree,
            &[
                flag,
                "--kind",
                "agent-turn-complete",
                "--client-id",
                flag.trim_start_matches('-'),
            ],
        );
        let output = within("a notification", command.env("PATH", path(&home)).output())
            .await
            .unwrap();
        assert!(output.status.success());
        assert_eq!(has(&output.stderr, OSC_9), expected, "{flag}");
    }
    up.kill().await;
}
