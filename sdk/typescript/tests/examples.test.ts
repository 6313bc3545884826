// The examples as programs of their own, against a provider that follows a script.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { ToolVerdict } from "../src/gen/troupe/supervisor/v1/transcript_pb.js";
import { deadline, inTime, Pair } from "./pair.js";

/** The format of the script's messages in an API. */
interface Api {
  readonly example: string;
  readonly environment: (url: string) => Record<string, string>;
  readonly path: string;
  /** Returns the results of the tool in a request. */
  readonly results: (request: unknown) => string[];
  /** Returns a message that calls the tool. */
  readonly call: (path: string) => object;
  /** Returns a message without a call. */
  readonly say: (text: string) => object;
}

interface ChatRequest {
  readonly messages: readonly { readonly role: string; readonly content: string }[];
}

const chat = (message: object): object => ({
  choices: [{ message: { role: "assistant", content: null, ...message } }],
  usage: { prompt_tokens: 10, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 4 } },
});

const CHAT: Api = {
  example: "tool_loop.js",
  environment: (url) => ({ OPENAI_BASE_URL: url, OPENAI_API_KEY: "k" }),
  path: "/chat/completions",
  results: (request) => (request as ChatRequest).messages.flatMap(({ role, content }) => (role === "tool" ? [content] : [])),
  call: (path) => {
    const called = { name: "read_file", arguments: JSON.stringify({ path }) };
    return chat({ tool_calls: [{ id: path, type: "function", function: called }] });
  },
  say: (content) => chat({ content }),
};

interface MessagesRequest {
  readonly messages: readonly { readonly content: string | readonly { readonly type: string; readonly content: string }[] }[];
}

const usage = { input_tokens: 6, cache_read_input_tokens: 4, output_tokens: 2 };

const MESSAGES: Api = {
  example: "messages_loop.js",
  environment: (url) => ({ ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: "k" }),
  path: "/v1/messages",
  results: (request) =>
    (request as MessagesRequest).messages
      .flatMap(({ content }) => (typeof content === "string" ? [] : content))
      .flatMap(({ type, content }) => (type === "tool_result" ? [content] : [])),
  call: (path) => ({ content: [{ type: "tool_use", id: path, name: "read_file", input: { path } }], usage }),
  say: (text) => ({ content: [{ type: "text", text }], usage }),
};

/** The files that the model asks for. */
const PATHS = ["note.txt", "../secret.txt", "denied.txt"];

for (const api of [CHAT, MESSAGES]) {
  test(`${api.example} reads files that it may read`, async () => {
    await using pair = await Pair.start("--no-runner");
    writeFileSync(join(pair.project, "note.txt"), "the parser is old");
    writeFileSync(join(pair.directory, "secret.txt"), "secret");
    const paths: (string | undefined)[] = [];
    const provider = createServer(async (request, response) => {
      paths.push(request.url);
      const results = api.results(JSON.parse(await text(request)));
      const path = PATHS[results.length];
      response.end(JSON.stringify(path ? api.call(path) : api.say(results.join(" | "))));
    });
    await once(provider.listen(0, "127.0.0.1"), "listening");
    const { port } = provider.address() as AddressInfo;
    const runner = spawn(process.execPath, [fileURLToPath(new URL(`../examples/${api.example}`, import.meta.url))], {
      env: { ...api.environment(`http://127.0.0.1:${port}`), TROUPE_SUPERVISOR_URL: pair.url, TROUPE_DATA_DIR: pair.data },
      stdio: "inherit",
    });
    try {
      await using client = await pair.connect();
      const settings = { cwd: pair.project, approveTools: ["read_file"], runnerLabels: { language: "typescript" } };
      await using session = await client.session(settings);
      const thread = await session.spawn("explorer", "What is old?");
      for await (const event of session.events()) {
        if (event.kind === "turnEnded") break;
        if (event.kind !== "approvalRequested") continue;
        await (event.data.subject.includes("denied.txt") ? event.deny("not this file") : event.grant());
      }
      const results = (await thread.result(deadline())).text.split(" | ");
      assert.equal(results[0], "the parser is old");
      assert.match(results[1] ?? "", /secret.txt is not in the project/);
      assert.match(results[2] ?? "", /not this file/);
      const info = await thread.info();
      assert.deepEqual([info.usage?.inputTokens, info.usage?.cachedInputTokens, info.usage?.outputTokens], [40n, 16n, 8n]);
      const verdicts: (ToolVerdict | undefined)[] = [];
      for await (const { toolCall } of thread.transcript()) if (toolCall) verdicts.push(toolCall.verdict);
      assert.deepEqual(verdicts, [ToolVerdict.ALLOWED, ToolVerdict.ALLOWED, ToolVerdict.DENIED]);
      // The next turn has the conversation of this one.
      await thread.send("Are you sure?");
      assert.deepEqual((await thread.result(deadline())).text.split(" | "), results);
      assert.deepEqual(new Set(paths), new Set([api.path]));
    } finally {
      provider.close();
      const ended = once(runner, "exit");
      runner.kill();
      assert.deepEqual(await inTime(ended), [0, null]);
    }
  });
}
