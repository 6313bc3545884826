// Unified diffs as lines with their kind.

export type DiffLineKind = "added" | "removed" | "hunk" | "file" | "context";

export interface DiffLine {
  readonly kind: DiffLineKind;
  readonly text: string;
}

export function diffLines(diff: string): DiffLine[] {
  return diff
    .replace(/\n$/, "")
    .split("\n")
    .map((text) => ({ kind: kindOf(text), text }));
}

function kindOf(text: string): DiffLineKind {
  if (/^(\+\+\+|---|diff |index )/.test(text)) return "file";
  if (text.startsWith("@@")) return "hunk";
  if (text.startsWith("+")) return "added";
  return text.startsWith("-") ? "removed" : "context";
}
