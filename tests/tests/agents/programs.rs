//! `troupe doctor` with the real programs: their versions, and one dry turn that sends the key to the base URL.

use serde_json::Value;
use troupe_tests::{
    agents::{CLAUDE, CODEX, KEY, Lab, are_wanted},
    within,
};

use super::UNDER;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_turn_goes_to_the_base_url_of_its_key() {
    if !are_wanted("dry turns") {
        return;
    }
    let lab = Lab::without_runner(UNDER.as_ref()).await;
    let url = lab.stand_in.url.trim_end_matches('/');
    // By default, Gemini CLI lets a model choose the model, which the stand-in does not support.
    for program in [CLAUDE, CODEX] {
        let line = format!("troupe doctor --output json --programs {program} --dry-turn {program}");
        let mut command = lab.person(&line);
        command
            .env("OPENAI_API_KEY", KEY)
            .env("OPENAI_BASE_URL", format!("{url}/v1"));
        let output = within("a diagnosis", command.output()).await.unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = said["checks"].as_array().unwrap();
        let check = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap();
        assert_eq!(check("program")["verdict"], "good", "{said}");
        assert!(check("program")["program"]["version"].is_string(), "{said}");
        assert_eq!(check("dry turn")["verdict"], "good", "{program}: {said}");
        assert!(
            !lab.stand_in.asked_by(program).is_empty(),
            "{program} called another host"
        );
    }
}
