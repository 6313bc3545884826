// An agent that reads files, as a loop around the messages API of Anthropic.
//
//     ANTHROPIC_API_KEY=… ANTHROPIC_MODEL=claude-sonnet-5 node examples/messages_loop.ts
//
// The supervisor decides about each call of the tool, counts the usage and keeps the transcript. The agent gets the threads of
// sessions with `runnerLabels: { language: "typescript" }`.

import { agent, serve, type Task } from "@troupe/client/runner";

import { READ_FILE, type ReadFile, readFile } from "./read_file.ts";

const MAX_ROUNDS = 20;
const MAX_TOKENS = 8_192;

type Block =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "tool_use"; readonly id: string; readonly input: ReadFile }
  | { readonly type: "tool_result"; readonly tool_use_id: string; readonly content: string };

interface Message {
  readonly role: "user" | "assistant";
  readonly content: string | readonly Block[];
}

interface Answer {
  readonly content: readonly Block[];
  readonly usage: {
    readonly input_tokens: number;
    readonly output_tokens: number;
    readonly cache_read_input_tokens?: number | null;
    readonly cache_creation_input_tokens?: number | null;
  };
}

/** Asks the model until it answers without a tool. The conversation continues with the next turn. */
const messagesLoop = agent([], async (task) => {
  const messages = (task.state["messages"] ??= []) as Message[];
  messages.push({ role: "user", content: task.prompt || task.message });
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const content = await complete(task, messages);
    const results: Block[] = [];
    for (const block of content) {
      if (block.type !== "tool_use") continue;
      results.push({ type: "tool_result", tool_use_id: block.id, content: await readFile(task, block.input) });
    }
    // An interrupted turn must not leave a call without its result, which the provider would reject.
    task.signal.throwIfAborted();
    messages.push({ role: "assistant", content });
    if (results.length === 0) return content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n");
    messages.push({ role: "user", content: results });
  }
  throw new Error(`the model has not finished within ${MAX_ROUNDS} rounds`);
});

/** Returns the content of the model's next message. */
async function complete(task: Task, messages: readonly Message[]): Promise<readonly Block[]> {
  task.activity("the model answers");
  const { ANTHROPIC_BASE_URL = "https://api.anthropic.com", ANTHROPIC_API_KEY = "" } = process.env;
  const { name, description, parameters } = READ_FILE;
  const response = await fetch(`${ANTHROPIC_BASE_URL}/v1/messages`, {
    method: "POST",
    headers: { "x-api-key": ANTHROPIC_API_KEY, "anthropic-version": "2023-06-01", "content-type": "application/json" },
    body: JSON.stringify({
      model: process.env.ANTHROPIC_MODEL ?? "claude-sonnet-5",
      max_tokens: MAX_TOKENS,
      messages,
      tools: [{ name, description, input_schema: parameters }],
    }),
    signal: task.signal,
  });
  if (!response.ok) throw new Error(`the provider answers ${response.status}: ${await response.text()}`);
  const { content, usage } = (await response.json()) as Answer;
  // The provider counts the tokens of its cache separately.
  const cachedInputTokens = usage.cache_read_input_tokens ?? 0;
  const inputTokens = usage.input_tokens + cachedInputTokens + (usage.cache_creation_input_tokens ?? 0);
  task.usage({ inputTokens, cachedInputTokens, outputTokens: usage.output_tokens });
  return content;
}

await serve([messagesLoop], { labels: { language: "typescript" }, enforcesTools: true, enforcesReadOnly: true });
