//! `troupe mcp` as a process: a client exchanges lines with it.

use std::{fs::File, process::Stdio};

use serde_json::{Value, json};
use svc_kit::listen::url_of;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
};
use troupe_proto::registry::v1::DescribeSpawnToolRequest;
use troupe_proto::supervisor::v1::{
    CreateSessionRequest, Limits, ListSessionsRequest, ResolveApprovalRequest, Session, StatusKind, ToolCeiling,
};
use troupe_runner::mcp::is_annotated;
use troupe_tests::{
    client::{self, Supervisor},
    process::{Home, Up},
    relay::Relay,
    tree::Tree,
    within,
};

/// A client of a `troupe mcp` process that it started.
struct Client {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    last_id: u64,
}

impl Client {
    /// Starts the process and performs the initialization of MCP.
    async fn start(home: &Home, up: &Up, arguments: &[&str], thread_token: Option<&str>) -> Self {
        let mut command = home.troupe(&["mcp"]);
        command
            .args(arguments)
            .env("TROUPE_SUPERVISOR_URL", format!("http://{}", up.supervisor))
            .env("TROUPE_REGISTRY_URL", format!("http://{}", up.registry))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(home.path().join("mcp.log")).unwrap());
        if let Some(token) = thread_token {
            command.env("TROUPE_THREAD_TOKEN", token);
        }
        let mut process = command.spawn().unwrap();
        let mut client = Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()).lines(),
            process,
            last_id: 0,
        };
        let greeting = client
            .ask(
                "initialize",
                json!({
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "clientInfo": {"name": "by hand", "version": "1"},
                }),
            )
            .await;
        assert_eq!(greeting["serverInfo"]["name"], "troupe", "{greeting}");
        assert_eq!(greeting["capabilities"], json!({"tools": {}}));
        client
            .say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        client
    }

    async fn say(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Returns the result of a request. Every message in between must be MCP.
    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        loop {
            let line = within("an answer", self.output.next_line()).await.unwrap();
            let mut said: Value = serde_json::from_str(&line.expect("the server is running")).unwrap();
            assert_eq!(said["jsonrpc"], "2.0");
            if said["id"] == id {
                assert_eq!(said["error"], Value::Null, "{method}");
                return said["result"].take();
            }
        }
    }

    /// Calls a tool and returns its result or its error.
    async fn call(&mut self, tool: &str, arguments: Value) -> Result<Value, Value> {
        let result = self
            .ask("tools/call", json!({"name": tool, "arguments": arguments}))
            .await;
        let text = result["content"][0]["text"].as_str().unwrap();
        let answer = serde_json::from_str(text).unwrap();
        if result["isError"] == true {
            Err(answer)
        } else {
            Ok(answer)
        }
    }

    /// Returns the offered tools with their descriptions.
    async fn tools(&mut self) -> Vec<Value> {
        let listed = self.ask("tools/list", json!({})).await;
        listed["tools"].as_array().unwrap().clone()
    }

    /// Closes the input of the server. The server must write nothing more and end.
    async fn disconnect(self) {
        let Self {
            mut process,
            input,
            mut output,
            ..
        } = self;
        drop(input);
        assert_eq!(within("the end of the output", output.next_line()).await.unwrap(), None);
        assert!(within("its end", process.wait()).await.unwrap().success());
    }
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

async fn sessions(mut client: Supervisor) -> Vec<Session> {
    let request = ListSessionsRequest {
        include_closed: true,
        ..ListSessionsRequest::default()
    };
    client.list_sessions(request).await.unwrap().into_inner().sessions
}

/// Waits for an approval and grants it as an operator.
async fn grant(tree: &Tree) {
    let mut watch = tree.watch_after(0).await;
    let approval_id = watch.approval().await.approval_id;
    let request = ResolveApprovalRequest {
        session_id: tree.session.clone(),
        approval_id,
        grant: true,
        ..ResolveApprovalRequest::default()
    };
    tree.client().resolve_approval(request).await.unwrap();
}

fn names_tool(list: &Value, tool: &str) -> bool {
    list.as_array().unwrap().iter().any(|pattern| pattern == tool)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_session_ends_with_its_client() {
    let home = Home::default();
    let up = Up::start_with(&home, Up::WITH_RUNNER).await;
    let operator = client::supervisor(up.supervisor, Some(&home.operator_token()));
    let mut client = Client::start(&home, &up, &[], None).await;
    let [session] = &sessions(operator.clone()).await[..] else {
        panic!("expected one session")
    };
    assert!(!session.closed);

    let tools = client.tools().await;
    for name in ["spawn_agent", "list_agents", "wait", "send_input", "close_agent"] {
        assert!(names(&tools).contains(&name), "{name}");
    }
    for tool in &tools {
        let hints = &tool["annotations"];
        for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
            assert!(hints[hint].is_boolean(), "{hint} of {tool}");
        }
        assert!(hints["title"].is_string() && hints["openWorldHint"] == false, "{tool}");
        let reads =
            ["list_agents", "list_active_agents", "read_transcript", "wait"].contains(&tool["name"].as_str().unwrap());
        assert_eq!(hints["readOnlyHint"], reads, "{tool}");
        assert_eq!(hints["destructiveHint"], tool["name"] == "close_agent", "{tool}");
        if reads || tool["name"] == "close_agent" || tool["name"] == "spawn_agent" {
            assert_eq!(hints["idempotentHint"], tool["name"] != "spawn_agent", "{tool}");
        }
    }
    // Tools that are offered only to threads of a graph template have annotations as well.
    let described = client::registry(up.registry, Some(&home.operator_token()))
        .describe_spawn_tool(DescribeSpawnToolRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert!(described.tools.len() >= tools.len());
    for tool in described.tools {
        assert!(
            is_annotated(&tool.name),
            "runner/src/tool_hints.rs has no row for {}",
            tool.name
        );
    }
    let spawn = tools.iter().find(|tool| tool["name"] == "spawn_agent").unwrap();
    assert_eq!(spawn["inputSchema"]["type"], "object");
    assert!(
        spawn.to_string().contains("worker"),
        "the description contains the roles: {spawn}"
    );

    let roles = client.call("list_agents", json!({})).await.unwrap();
    let roles = roles["agents"].as_array().unwrap();
    let worker = roles.iter().find(|role| role["agent_type"] == "worker").unwrap();
    assert!(names_tool(&worker["allow_list"], "wait") && names_tool(&worker["deny_list"], "spawn_agent"));
    assert!(worker.get("default_prompt").is_none(), "{worker}");
    let asked = json!({"agent_type": " Bug_Hunter", "expanded": true});
    let hunters = client.call("list_agents", asked).await.unwrap();
    let [hunter] = &hunters["agents"].as_array().unwrap()[..] else {
        panic!("expected one role: {hunters}")
    };
    assert_eq!(hunter["agent_type"], "bug-hunter");
    assert!(hunter["default_prompt"].is_string(), "{hunter}");
    for (name, error, reason) in [
        ("nobody", "missing agent template: nobody", "TEMPLATE_NOT_FOUND"),
        (
            "no one",
            "invalid agent_type \"no one\"; expected snake_case or kebab-case like \"worker\", \"my_custom_role\", or \
             \"my-custom-role\"",
            "INVALID_AGENT_TYPE",
        ),
    ] {
        let refused = client
            .call("list_agents", json!({"agent_type": name}))
            .await
            .unwrap_err();
        assert_eq!(refused, json!({"error": error, "reason": reason}));
    }

    let task = json!({"agent_type": "worker", "message": "Greet.\nsay: hello"});
    let spawned = client.call("spawn_agent", task).await.unwrap();
    let id = spawned["agent_id"].as_str().unwrap();
    let waited = client
        .call("wait", json!({"ids": [id], "timeout_ms": 60_000}))
        .await
        .unwrap();
    let message = waited["status"][id]["completed"].as_str().unwrap();
    assert!(message.contains("hello"), "{waited}");
    let read = async |client: &mut Client, arguments| client.call("read_transcript", arguments).await;
    let whole = read(&mut client, json!({"id": id})).await.unwrap();
    let entries = whole["entries"].as_array().unwrap();
    assert_eq!(entries[0]["kind"], "input", "{whole}");
    let says_hello = |entry: &Value| entry["kind"] == "message" && entry.to_string().contains("hello");
    assert!(entries.iter().any(says_hello), "{whole}");
    let rest = read(&mut client, json!({"id": id, "after": 1})).await.unwrap();
    assert_eq!(rest["entries"].as_array().unwrap()[..], entries[1..]);
    let inputs = read(&mut client, json!({"id": id, "kinds": ["input"]})).await.unwrap();
    assert_eq!(inputs["entries"].as_array().unwrap().len(), 1, "{inputs}");
    // A client executes the root, and the server records its calls.
    let own = read(&mut client, json!({"kinds": ["tool_call", "tool_result"]}))
        .await
        .unwrap();
    let calls: Vec<&Value> = own["entries"].as_array().unwrap().iter().collect();
    let spawn = calls.iter().position(|entry| entry["tool"] == "spawn_agent").unwrap();
    assert!(calls[spawn]["text"].as_str().unwrap().contains("say: hello"), "{own}");
    assert!(calls[spawn + 1]["text"].as_str().unwrap().contains(id), "{own}");
    let refused = read(&mut client, json!({"kinds": ["thoughts"]})).await.unwrap_err();
    assert_eq!(refused["reason"], "INVALID_ARGUMENT", "{refused}");

    let refused = client
        .call("spawn_agent", json!({"agent_type": "worker", "message": " "}))
        .await
        .unwrap_err();
    assert_eq!(refused["reason"], "INVALID_INPUT", "{refused}");
    for (input, error) in [
        (json!({"items": []}), "Items can't be empty"),
        (
            json!({"items": [], "message": "x"}),
            "Provide either message or items, but not both",
        ),
        (json!({"items": null}), "Provide one of: message or items"),
    ] {
        let mut to_one = input.clone();
        to_one["id"] = json!(id);
        for (tool, arguments) in [("spawn_agent", input), ("send_input", to_one)] {
            let refused = client.call(tool, arguments).await.unwrap_err();
            assert_eq!(refused, json!({"error": error, "reason": "INVALID_INPUT"}), "{tool}");
        }
    }
    let unknown = client.call("format_disk", json!({})).await.unwrap_err();
    let expected = json!({"error": "unsupported tool: format_disk", "reason": "INVALID_ARGUMENT"});
    assert_eq!(unknown, expected);

    client.disconnect().await;
    let [session] = &sessions(operator).await[..] else {
        panic!("expected one session")
    };
    assert!(session.closed);
    up.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_token_offers_only_tools_of_its_thread() {
    let home = Home::default();
    let up = Up::start(&home).await;
    let request = CreateSessionRequest {
        limits: Some(Limits {
            max_depth: Some(1),
            ..Limits::default()
        }),
        // Calls that the server makes itself, to determine the owner of its token, need no approval.
        approve_tools: vec!["list_active_agents".to_owned(), "set_thread_note".to_owned()],
        ..CreateSessionRequest::default()
    };
    let tree = Tree::open(up.client(), request).await;
    // Without a role, the thread inherits every tool. The depth limit removes some of them.
    let child = tree.spawn("").await;
    let mut client = Client::start(&home, &up, &[], Some(&child.token)).await;
    let tools = client.tools().await;
    assert!(names(&tools).contains(&"wait") && !names(&tools).contains(&"spawn_agent"));
    let refused = client
        .call("spawn_agent", json!({"message": "Go on."}))
        .await
        .unwrap_err();
    assert_eq!(refused["reason"], "DEPTH_LIMIT", "{refused}");
    let note = client.call("set_thread_note", json!({"note": "by hand"}));
    let (noted, ()) = tokio::join!(note, grant(&tree));
    assert_eq!(noted.unwrap(), json!({"thread_note": "by hand"}));
    assert_eq!(tree.thread(&child.id).await.thread_note, "by hand");
    client.disconnect().await;
    assert!(!tree.now().await.closed, "the client must not close the session");

    let refused = home
        .troupe(&["mcp", "--supervisor", &format!("http://{}", up.supervisor)])
        .env("TROUPE_THREAD_TOKEN", "not-a-token-of-anybody")
        .output();
    let refused = within("its end", refused).await.unwrap();
    assert_eq!((refused.status.code(), &refused.stdout[..]), (Some(1), &b""[..]));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("the supervisor offers no tools"), "{said}");
    up.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_rejected_by_goaway_is_retried() {
    let home = Home::default();
    let up = Up::start(&home).await;
    let tree = Tree::open(up.client(), CreateSessionRequest::default()).await;
    let child = tree.spawn("").await;
    let mut relay = Relay::to(up.supervisor).await;
    let supervisor = url_of(relay.address());
    let mut client = Client::start(&home, &up, &["--supervisor", &supervisor], Some(&child.token)).await;
    relay.leave().await;
    let note = json!({"note": "once"});
    client.call("set_thread_note", note).await.unwrap();
    assert!(relay.has_left());
    assert_eq!(tree.thread(&child.id).await.thread_note, "once");
    client.disconnect().await;
    up.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_option_restricts_calls_to_its_subtree() {
    let home = Home::default();
    let up = Up::start(&home).await;
    let tree = Tree::open(up.client(), CreateSessionRequest::default()).await;
    let (lead, sibling) = (tree.spawn("").await, tree.spawn("").await);
    let below = tree.spawn_under(&lead.id, "").await;
    let nobody = "01890000-0000-7000-8000-000000000000";
    let mut client = Client::start(&home, &up, &["--thread", &lead.id], None).await;
    let active = client.call("list_active_agents", json!({})).await.unwrap();
    assert_eq!(active["agents"].as_array().unwrap().len(), 1, "{active}");
    assert_eq!(active["agents"][0]["thread_id"], below.id);
    let note = json!({"note": "mine"});
    assert_eq!(
        client.call("set_thread_note", note).await.unwrap(),
        json!({"thread_note": "mine"})
    );
    for (tool, arguments) in [
        ("close_agent", json!({"id": sibling.id})),
        ("send_input", json!({"id": tree.root, "message": "Stop."})),
        ("set_thread_note", json!({"id": sibling.id, "note": "theirs"})),
        ("wait", json!({"ids": [below.id, sibling.id], "timeout_ms": 10_000})),
        ("read_transcript", json!({"id": sibling.id})),
        ("read_transcript", json!({"id": nobody})),
        ("close_agent", json!({"id": nobody})),
        ("send_input", json!({"id": nobody, "message": "Stop."})),
        ("wait", json!({"ids": [below.id, nobody], "timeout_ms": 10_000})),
    ] {
        let refused = client.call(tool, arguments).await.unwrap_err();
        assert_eq!(refused["reason"], "OUTSIDE_SUBTREE", "{tool}: {refused}");
        let verb = if tool == "close_agent" { "close" } else { "act on" };
        let text = format!("Not permitted to {verb} agents outside your subtree.");
        assert_eq!(refused["error"], text, "{tool}: {refused}");
    }
    assert_ne!(tree.status(&sibling.id).await, StatusKind::Shutdown);
    client.call("close_agent", json!({"id": below.id})).await.unwrap();
    client.disconnect().await;
    up.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joined_session_acts_with_permissions_of_its_root() {
    let home = Home::default();
    let up = Up::start(&home).await;
    let request = CreateSessionRequest {
        tool_ceiling: Some(ToolCeiling {
            deny_list: vec!["close_agent".to_owned()],
            ..ToolCeiling::default()
        }),
        ..CreateSessionRequest::default()
    };
    let tree = Tree::open(up.client(), request).await;
    let mut client = Client::start(&home, &up, &["--session", &tree.session], None).await;
    let spawned = client
        .call("spawn_agent", json!({"agent_type": "worker", "message": "Wait."}))
        .await
        .unwrap();
    let id = spawned["agent_id"].as_str().unwrap();
    assert_eq!(tree.thread(id).await.parent_thread_id, tree.root);
    let active = client.call("list_active_agents", json!({})).await.unwrap();
    assert_eq!(active["agents"][0]["thread_id"], id);
    let refused = client.call("close_agent", json!({"id": id})).await.unwrap_err();
    assert_eq!(
        refused["reason"], "TOOL_DENIED",
        "an operator that joins as a thread has the thread's permissions: {refused}"
    );
    client.disconnect().await;
    assert!(!tree.now().await.closed);
    up.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_does_not_send_token_of_another_pair() {
    let (home, other) = (Home::default(), Home::default());
    Up::start_with(&home, Up::WITH_RUNNER).await.kill().await;
    let up = Up::start(&other).await;
    let tree = Tree::open(up.client(), CreateSessionRequest::default()).await;
    let mut client = Client::start(&home, &up, &["--session", &tree.session], None).await;
    assert!(names(&client.tools().await).contains(&"spawn_agent"));
    client.disconnect().await;
    up.kill().await;
}
