// Checks of the A2A port with the official JavaScript SDK. See ../README.md.
//
// The port is at TROUPE_A2A (a URL), with the token TROUPE_A2A_TOKEN. Its agent is ../agent.py.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { json } from "node:stream/consumers";

import { ListTasksRequest, SendMessageRequest, TaskState } from "@a2a-js/sdk";
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";

const URL = process.env.TROUPE_A2A;
const TRANSPORTS = [new JsonRpcTransportFactory(), new RestTransportFactory(), new GrpcTransportFactory()];
const WITHIN = 30_000;

// Adds the token and a deadline to each call.
const caller = {
  async before(call) {
    const serviceParameters = { ...call.options.serviceParameters, Authorization: `Bearer ${process.env.TROUPE_A2A_TOKEN}` };
    call.options = { ...call.options, serviceParameters, signal: AbortSignal.timeout(WITHIN) };
  },
  async after() {},
};

// Returns a client of the default agent.
function connect(binding, interceptors = [caller]) {
  const transports = TRANSPORTS.filter((transport) => transport.protocolName === binding);
  return new ClientFactory({ transports, clientConfig: { interceptors } }).createFromUrl(URL);
}

// Returns a message. The prefix of its id selects what agent.py does.
function request(prefix, { text = "Hello", taskId, contextId, ...configuration } = {}) {
  const message = { messageId: `tck-${prefix}-${randomUUID()}`, role: "ROLE_USER", parts: [{ text }], taskId, contextId };
  return SendMessageRequest.fromJSON({ message, configuration });
}

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event.payload);
  return events;
}

async function next(stream) {
  return (await stream.next()).value.payload;
}

function assertState(task, state) {
  assert.equal(TaskState[task.status.state], `TASK_STATE_${state}`);
}

const texts = (parts) => parts.map((part) => part.content.value);

const checks = {
  async "blocking message"(binding) {
    const client = await connect(binding);
    const task = await client.sendMessage(request("complete-task"));
    assertState(task, "COMPLETED");
    assert.deepEqual(texts(task.artifacts[0].parts), ["Hello from TCK"]);
    const found = await client.getTask({ id: task.id });
    assert.deepEqual(found.history.flatMap((message) => texts(message.parts)), ["Hello", "Hello from TCK"]);
    const { contextId } = task;
    const second = await client.sendMessage(request("complete-task", { contextId }));
    const listed = await client.listTasks(ListTasksRequest.fromJSON({ contextId }));
    assert.deepEqual(listed.tasks.map((task) => task.id), [second.id, task.id]);
  },

  async "streamed message"(binding) {
    const client = await connect(binding);
    const events = await collect(client.sendMessageStream(request("stream-001")));
    assert.deepEqual(events.map((event) => event.$case), ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]);
    assert.deepEqual(texts(events[2].value.artifact.parts), ["Stream hello from TCK"]);
    assertState(events[3].value, "COMPLETED");
  },

  async question(binding) {
    const client = await connect(binding);
    const task = await client.sendMessage(request("input-required"));
    assertState(task, "INPUT_REQUIRED");
    assert.deepEqual(texts(task.status.message.parts), ["What next?"]);
    const done = await client.sendMessage(request("complete-task", { text: "This", taskId: task.id }));
    assert.equal(done.id, task.id);
    assertState(done, "COMPLETED");
  },

  async cancellation(binding) {
    const client = await connect(binding);
    const { id } = await client.sendMessage(request("complete-task", { text: "hold", returnImmediately: true }));
    const stream = client.resubscribeTask({ id });
    assert.equal((await next(stream)).value.id, id);
    assertState(await client.cancelTask({ id }), "CANCELED");
    assertState((await collect(stream)).at(-1).value, "CANCELED");
  },

  async push(binding) {
    const webhook = createServer().listen(0, "127.0.0.1");
    await once(webhook, "listening");
    const received = [];
    const ended = new Promise((resolve) => {
      webhook.on("request", async (message, response) => {
        const update = await json(message);
        received.push({ headers: message.headers, update });
        response.writeHead(204).end();
        if (update.statusUpdate?.status.state === "TASK_STATE_COMPLETED") resolve();
      });
    });
    const url = `http://127.0.0.1:${webhook.address().port}/hook`;
    const authentication = { scheme: "Bearer", credentials: "secret" };
    const client = await connect(binding);
    const taskPushNotificationConfig = { id: "hook", url, token: "token", authentication };
    const task = await client.sendMessage(request("stream-001", { taskPushNotificationConfig }));
    await ended;
    webhook.close();
    const { headers, update } = received[0];
    assert.deepEqual([headers.authorization, headers["x-a2a-notification-token"]], ["Bearer secret", "token"]);
    assert.equal(update.statusUpdate.taskId, task.id);
    const kinds = received.flatMap(({ update }) => Object.keys(update));
    assert.deepEqual(kinds, ["statusUpdate", "statusUpdate", "artifactUpdate", "statusUpdate"]);
  },

  async "extended card"(binding) {
    const card = await (await connect(binding)).getAgentCard();
    assert.equal(card.capabilities.extensions.filter((extension) => extension.uri.includes("limits")).length, 1);
  },

  async "call without a token"(binding) {
    const client = await connect(binding, []);
    await assert.rejects(client.getTask({ id: "none" }), /token/);
  },
};

async function beforeRestart(binding) {
  const client = await connect(binding);
  const completed = await client.sendMessage(request("complete-task"));
  const asked = await client.sendMessage(request("input-required"));
  assertState(asked, "INPUT_REQUIRED");
  const stream = client.sendMessageStream(request("stream-001", { text: "hold" }));
  const { value: task } = await next(stream);
  const { value: working } = await next(stream);
  assertState(working, "WORKING");
  return { completed, asked, stream, id: task.id, position: working.metadata["troupe/sequence"] };
}

async function afterRestart(binding, { completed, asked, stream, id, position }) {
  await assert.rejects(collect(stream));
  const client = await connect(binding);
  assert.deepEqual((await client.getTask({ id: completed.id })).artifacts, completed.artifacts);
  assertState(await client.sendMessage(request("complete-task", { text: "This", taskId: asked.id })), "COMPLETED");

  const rest = client.resubscribeTask({ id }, { serviceParameters: { "troupe-after-sequence": position } });
  const { value: first } = await next(rest);
  assert.equal(first.id, id);
  assertState(first, "WORKING");
  await client.sendMessage(request("stream-001", { text: "Continue", taskId: id }));
  const events = await collect(rest);
  const artifacts = events.filter((event) => event.$case === "artifactUpdate").map((event) => event.value.artifact);
  assert.deepEqual(artifacts.flatMap((artifact) => texts(artifact.parts)), ["Stream hello from TCK"]);
  assertState(events.at(-1).value, "COMPLETED");
  assert.deepEqual((await client.getTask({ id })).artifacts, artifacts);
}

// Awaits a check and prints its result.
async function check(name, work) {
  const timeout = setTimeout(() => {
    console.log(`FAILED ${name}\n  no end after ${3 * WITHIN} ms`);
    process.exit(1);
  }, 3 * WITHIN);
  try {
    const result = await work;
    console.log(`ok ${name}`);
    return result;
  } catch (error) {
    console.log(`FAILED ${name}\n  ${error.message.replaceAll("\n", " ")}`);
    console.error(error);
  } finally {
    clearTimeout(timeout);
  }
}

const bindings = TRANSPORTS.map((transport) => transport.protocolName);
const tasks = {};
for (const binding of bindings) {
  for (const [name, operation] of Object.entries(checks)) await check(`${binding} ${name}`, operation(binding));
}
for (const binding of bindings) tasks[binding] = await check(`${binding} tasks before kill -9`, beforeRestart(binding));
console.log("restart");
await once(process.stdin, "data");
for (const binding of bindings.filter((binding) => tasks[binding])) {
  await check(`${binding} tasks survive kill -9 during a stream`, afterRestart(binding, tasks[binding]));
}
// The SDK has no means to close its gRPC channels.
process.exit();
