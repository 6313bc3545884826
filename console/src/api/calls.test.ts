import { create } from "@bufbuild/protobuf";
import { beforeEach, expect, test, vi } from "vitest";

import { ApprovalDecision, ApprovalSchema } from "../model/messages";

const supervisor = vi.hoisted(() => ({ getContent: vi.fn(), resolveApproval: vi.fn() }));
vi.mock("./clients", () => ({ supervisor, requestId: () => "r", UNLIMITED: { timeoutMs: 0 } }));

import { decide } from "./actions";
import { content, forgetContents } from "./content";

beforeEach(() => vi.resetAllMocks());

function contentOf(size: number): void {
  supervisor.getContent.mockImplementation(async function* () {
    yield { data: new Uint8Array(size) };
  });
}

test("small_content_is_cached_until_log_out", async () => {
  contentOf(10);
  await content("s", "small");
  await content("s", "small");
  expect(supervisor.getContent).toHaveBeenCalledExactlyOnceWith({ sessionId: "s", digest: "small" }, { timeoutMs: 0 });
  forgetContents();
  await content("s", "small");
  expect(supervisor.getContent).toHaveBeenCalledTimes(2);
});

test("large_content_is_not_cached", async () => {
  contentOf(1024 * 1024);
  await content("s", "large");
  await content("s", "large");
  expect(supervisor.getContent).toHaveBeenCalledTimes(2);
});

test.each([
  [true, ApprovalDecision.DENIED],
  [false, ApprovalDecision.GRANTED],
])("grant %s with decision %s is an error", async (grant, decision) => {
  const approval = create(ApprovalSchema, { approvalId: "p" });
  supervisor.resolveApproval.mockResolvedValue({ approval: { decision } });
  await expect(decide(approval, grant, "")).rejects.toThrow(ApprovalDecision[decision]);
});
