// An agent that reads files, as a loop around the chat completions API of OpenAI. Other providers have the same API.
//
//     OPENAI_API_KEY=… OPENAI_MODEL=gpt-5.2 node examples/tool_loop.ts
//
// The supervisor decides about each call of the tool, counts the usage and keeps the transcript. The agent gets the threads of
// sessions with `runnerLabels: { language: "typescript" }`.

import { agent, serve, type Task } from "@troupe/client/runner";

import { READ_FILE, type ReadFile, readFile } from "./read_file.ts";

const MAX_ROUNDS = 20;

interface Message {
  readonly role: "user" | "assistant" | "tool";
  readonly content: string | null;
  readonly tool_calls?: readonly { readonly id: string; readonly function: { readonly arguments: string } }[];
  readonly tool_call_id?: string;
}

interface Completion {
  readonly choices: readonly [{ readonly message: Message }];
  readonly usage?: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number };
  };
}

/** Asks the model until it answers without a tool. The conversation continues with the next turn. */
const toolLoop = agent([], async (task) => {
  const messages = (task.state["messages"] ??= []) as Message[];
  messages.push({ role: "user", content: task.prompt || task.message });
  for (let round = 0; round < MAX_ROUNDS; round += 1) {
    const answer = await complete(task, messages);
    const results: Message[] = [];
    for (const { id, function: called } of answer.tool_calls ?? []) {
      const content = await readFile(task, JSON.parse(called.arguments) as ReadFile);
      results.push({ role: "tool", tool_call_id: id, content });
    }
    // An interrupted turn must not leave a call without its result, which the provider would reject.
    task.signal.throwIfAborted();
    messages.push(answer, ...results);
    if (results.length === 0) return answer.content ?? "";
  }
  throw new Error(`the model has not finished within ${MAX_ROUNDS} rounds`);
});

/** Returns the next message of the model. */
async function complete(task: Task, messages: readonly Message[]): Promise<Message> {
  task.activity("the model answers");
  const { OPENAI_BASE_URL = "https://api.openai.com/v1", OPENAI_MODEL = "gpt-5.2", OPENAI_API_KEY = "" } = process.env;
  const response = await fetch(`${OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${OPENAI_API_KEY}`, "content-type": "application/json" },
    body: JSON.stringify({ model: OPENAI_MODEL, messages, tools: [{ type: "function", function: READ_FILE }] }),
    signal: task.signal,
  });
  if (!response.ok) throw new Error(`the provider answers ${response.status}: ${await response.text()}`);
  const { choices, usage } = (await response.json()) as Completion;
  task.usage({
    inputTokens: usage?.prompt_tokens ?? 0,
    cachedInputTokens: usage?.prompt_tokens_details?.cached_tokens ?? 0,
    outputTokens: usage?.completion_tokens ?? 0,
  });
  return choices[0].message;
}

await serve([toolLoop], { labels: { language: "typescript" }, enforcesTools: true, enforcesReadOnly: true });
