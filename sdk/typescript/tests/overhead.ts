// Compares `Session.spawn` with a call of the generated stub: the median of both, in alternation. `sdk/run overhead` runs it.

import { randomUUID } from "node:crypto";

import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { AgentSupervisorService } from "../src/gen/troupe/supervisor/v1/supervisor_pb.js";
import { Pair } from "./pair.js";

const ROUNDS = 500;
const WARM_UP = 50;

const median = (times: number[]): number => times.sort((a, b) => a - b)[Math.floor(times.length / 2)] ?? 0;

const most = String(2 * (WARM_UP + ROUNDS) + 1);
const limits = ["--max-threads", most, "--max-open-threads", most, "--max-total-threads", most];
await using pair = await Pair.start("--no-runner", ...limits);
await using client = await pair.connect();
await using session = await client.session();
const stub = createClient(AgentSupervisorService, createGrpcTransport({ baseUrl: pair.url }));
const fields = { sessionId: session.id, agentType: "explorer", message: "Find it." };
const calls = {
  stub: () => stub.spawnAgent({ ...fields, requestId: randomUUID() }, { timeoutMs: 30_000 }),
  sdk: () => session.spawn("explorer", "Find it."),
};
const times = { stub: [] as number[], sdk: [] as number[] };
for (let number = 0; number < WARM_UP + ROUNDS; number++) {
  for (const name of ["stub", "sdk"] as const) {
    const begun = performance.now();
    await calls[name]();
    if (number >= WARM_UP) {
      times[name].push(performance.now() - begun);
    }
  }
}
const [raw, sdk] = [median(times.stub), median(times.sdk)];
console.log(
  `typescript: spawn p50 ${sdk.toFixed(2)} ms, stub ${raw.toFixed(2)} ms, ratio ${(sdk / raw).toFixed(2)} (at most 1.3)`,
);
