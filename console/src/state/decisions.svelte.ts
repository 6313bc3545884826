// Decisions on approvals. A decision hides its approval at once; if the call fails, the approval returns with the
// cause.

import { SvelteMap, SvelteSet } from "svelte/reactivity";

import { decide } from "../api/actions";
import { messageOf } from "../api/errors";
import type { Approval } from "../model/messages";
import { notices } from "./notices.svelte";

class Decisions {
  readonly #decided = new SvelteSet<string>();
  readonly #failures = new SvelteMap<string, string>();

  isDecided(approval: Approval): boolean {
    return this.#decided.has(approval.approvalId);
  }

  /** Returns the reason why the last decision on an approval failed. Empty if it did not fail. */
  failureOf(approval: Approval): string {
    return this.#failures.get(approval.approvalId) ?? "";
  }

  async decide(approval: Approval, grant: boolean, reason: string): Promise<void> {
    const { approvalId } = approval;
    if (this.#decided.has(approvalId)) return;
    this.#decided.add(approvalId);
    this.#failures.delete(approvalId);
    try {
      notices.success(await decide(approval, grant, reason));
    } catch (error) {
      this.#decided.delete(approvalId);
      this.#failures.set(approvalId, `${grant ? "Grant" : "Deny"} failed: ${messageOf(error)}`);
    }
  }
}

export const decisions = new Decisions();
