//! The configurations of `docs/mcp.md`, used verbatim with the real programs: every tool call succeeds without a
//! prompt.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::process::Command;
use troupe_proto::supervisor::v1::ListSessionsRequest;
use troupe_tests::{
    UNKNOWN,
    agents::{CLAUDE, CODEX, GEMINI, KEY, Lab, OPENCODE, are_wanted},
    page::root,
    within,
};

use super::{UNDER, results};

/// Reads the page's section about a program. Returns the text of its configuration file and its terminal command.
fn documented(title: &str) -> (String, String) {
    let page = fs::read_to_string(root().join("docs/mcp.md")).unwrap();
    let section = page.split(&format!("\n### {title}\n")).nth(1).expect(title);
    let section = section.split("\n### ").next().unwrap().split("\n## ").next().unwrap();
    let block = |language: &[&str]| {
        let mut blocks = section.split("\n```");
        blocks
            .find_map(|block| {
                let (first, text) = block.split_once('\n')?;
                language.contains(&first).then(|| text.to_owned())
            })
            .unwrap_or_else(|| panic!("{title} has no block of {language:?}"))
    };
    let command = block(&["console"]);
    let command = command.lines().find_map(|line| line.strip_prefix("$ ")).unwrap();
    (block(&["json", "toml"]), command.to_owned())
}

/// Returns the documented file with the address of the scripted provider added.
fn with_provider(program: &str, documented: &str, url: &str) -> String {
    let parsed = || serde_json::from_str::<Value>(documented).unwrap();
    match program {
        CODEX => format!(
            "model = 'standin'\nmodel_provider = 'standin'\n{documented}\n[model_providers.standin]\nname = 'standin'\n\
             base_url = '{url}/v1'\nwire_api = 'responses'\nenv_key = 'STANDIN_KEY'\n[features]\nmulti_agent = false\n"
        ),
        GEMINI => {
            let mut file = parsed();
            file["security"] = json!({"auth": {"selectedType": "gemini-api-key"}});
            file["privacy"] = json!({"usageStatisticsEnabled": false});
            file["general"] = json!({"disableAutoUpdate": true});
            file.to_string()
        }
        OPENCODE => {
            let mut file = parsed();
            file["model"] = json!("standin/m1");
            file["small_model"] = json!("standin/m1");
            file["autoupdate"] = json!(false);
            file["provider"] = json!({"standin": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "standin",
                "options": {"baseURL": format!("{url}/v1"), "apiKey": KEY},
                "models": {"m1": {"name": "m1", "tool_call": true, "limit": {"context": 100_000, "output": 8_000}}},
            }});
            file.to_string()
        }
        _ => documented.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_configuration_works_unattended() {
    if !are_wanted("the configuration of docs/mcp.md") {
        return;
    }
    let lab = Lab::without_runner(UNDER.as_ref()).await;
    let url = lab.stand_in.url.trim_end_matches('/').to_owned();
    let mut git = Command::new("git");
    git.args(["init", "-q"]).current_dir(lab.project());
    assert!(git.status().await.unwrap().success());
    for (program, title, file) in [
        (CLAUDE, "Claude Code", lab.project().join(".mcp.json")),
        (CODEX, "Codex", lab.home().join(".codex/config.toml")),
        (GEMINI, "Gemini CLI", lab.home().join(".gemini/settings.json")),
        (OPENCODE, "OpenCode", lab.project().join("opencode.json")),
    ] {
        let (text, command) = documented(title);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, with_provider(program, &text, &url)).unwrap();
        // The prompt is the first word in quotes.
        let [before, _, after] = &command.splitn(3, '\'').collect::<Vec<_>>()[..] else {
            panic!("no prompt in {command:?}")
        };
        let steps = json!([
            {"tool": "list_agents", "args": {}},
            {"tool": "spawn_agent", "args": {"agent_type": "worker", "message": "Look."}},
            {"tool": "set_thread_note", "args": {"note": program}},
            {"tool": "close_agent", "args": {"id": UNKNOWN}},
            {"text": "all of it worked"},
        ]);
        let mut command = lab.person(&format!("{before}\"$PROMPT\"{after}"));
        // OpenCode changes quotes in its arguments.
        let encoded = STANDARD.encode(steps.to_string());
        command.env("PROMPT", format!("Lead. @@b64:{encoded}@@"));
        let output = within("the end of a program", command.output()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let results = results(&lab, program);
        assert!(
            output.status.success() && said.contains("all of it worked"),
            "{program}: {output:?} {results:?}"
        );
        let [roles, spawned, note, closed] = &results[..] else {
            panic!("{program}: {results:?}")
        };
        assert!(roles.contains("agent_type"), "{program}: {roles}");
        assert!(spawned.contains("agent_id"), "{program}: {spawned}");
        assert!(!note.contains("error"), "{program}: {note}");
        // Troupe rejects the close of an unknown agent. This shows that the program made the call. Gemini CLI shortens
        // the error.
        let refused = ["outside your subtree", "reported tool error"];
        assert!(refused.iter().any(|text| closed.contains(text)), "{program}: {closed}");
    }
    let request = ListSessionsRequest {
        include_closed: true,
        ..ListSessionsRequest::default()
    };
    let sessions = lab.client().list_sessions(request).await.unwrap().into_inner().sessions;
    assert_eq!(sessions.len(), 4, "each program has led its own agents");
    assert!(sessions.iter().all(|session| session.closed));
}
