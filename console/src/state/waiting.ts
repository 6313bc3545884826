// The approvals and threads that wait for a person, without the approvals that were just decided on this page.

import type { Approval } from "../model/messages";
import { needsOf, type Model, type Need } from "../model/model";
import { decisions } from "./decisions.svelte";

export function waitingNeeds(model: Model): Need[] {
  return needsOf(model).filter(({ approval }) => !approval || !decisions.isDecided(approval));
}

export function waitingApprovals(model: Model): Approval[] {
  return waitingNeeds(model).flatMap(({ approval }) => approval ?? []);
}
