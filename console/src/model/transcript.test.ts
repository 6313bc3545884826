import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";

import { TranscriptEntrySchema, TranscriptKind } from "./messages";
import { transcriptItems } from "./transcript";

function entry(number: bigint, init: MessageInitShape<typeof TranscriptEntrySchema>) {
  return create(TranscriptEntrySchema, { number, generation: 1, ...init });
}

const call = (number: bigint, callId: string, generation = 1) =>
  entry(number, { kind: TranscriptKind.TOOL_CALL, toolCall: { callId, tool: "x" }, generation });
const result = (number: bigint, callId: string, generation = 1) =>
  entry(number, { kind: TranscriptKind.TOOL_RESULT, toolResult: { callId }, generation });

test("call_and_result_are_one_item", () => {
  const items = transcriptItems([call(1n, "a"), call(2n, "b"), result(3n, "a"), entry(4n, { kind: TranscriptKind.MESSAGE })]);
  expect(items.map(({ entry, result }) => [entry.number, result?.number])).toEqual([
    [1n, 3n],
    [2n, undefined],
    [4n, undefined],
  ]);
});

test("result_without_its_call_is_an_item", () => {
  expect(transcriptItems([result(7n, "a")])).toHaveLength(1);
});

test("call_of_another_attempt_has_another_result", () => {
  const items = transcriptItems([call(1n, "a", 1), call(2n, "a", 2), result(3n, "a", 2)]);
  expect(items.map(({ result }) => result?.number)).toEqual([undefined, 3n]);
});
