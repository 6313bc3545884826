import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";

import { UsageSchema } from "../model/messages";
import { csv } from "./csv";
import { diffLines } from "./diff";
import { budgetUsed, bytes, cost, count, countdown, money, percent, shortId, span } from "./format";
import { parse } from "./markdown";
import { block, line } from "./sanitize";

describe("hostile texts", () => {
  test.each([
    ["\x1b[2J\x1b]0;owned\x07hello", "[2J]0;ownedhello"],
    ["\x1b[31mred\x1b[0m", "[31mred[0m"],
    ["ls \x1b]; rm -rf ~", "ls ]; rm -rf ~"],
    ["a\x9b31mb", "a31mb"],
    ["a\u202egnp.exe", "agnp.exe"],
    ["zero\u200bwidth\ufeff", "zerowidth"],
    ["tag\u{e0041}s", "tags"],
    ["keeps \u{1f469}\u200d\u{1f680} and é", "keeps \u{1f469}\u200d\u{1f680} and é"],
    ["two\r\nlines\ttab", "two\nlines\ttab"],
  ])("%j is sanitized", (text, expected) => {
    expect(block(text)).toBe(expected);
  });

  test("line_has_no_breaks", () => {
    expect(line("  one\n\ttwo\u2028three\ufeff ")).toBe("one two three");
  });

  test("html_stays_text", () => {
    const text = '<img src=x onerror="alert(1)"><script>alert(1)</script>';
    expect(parse(text)).toEqual([{ kind: "paragraph", inlines: [{ kind: "text", text }] }]);
  });

  test.each(["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "/relative", "vbscript:x"])(
    "link to %s stays text",
    (target) => {
      const text = `[click](${target})`;
      expect(parse(text)).toEqual([{ kind: "paragraph", inlines: [{ kind: "text", text }] }]);
    },
  );

  test("image_is_a_link", () => {
    const [first] = parse("![x](https://evil.example/pixel.png)");
    expect(first).toMatchObject({ inlines: [{ kind: "link", text: "x" }] });
  });
});

test("markdown_has_blocks_and_inlines", () => {
  const blocks = parse("# Title\nSome **bold** and `code`\nnext\n\n- one\n  - two\n\n> quoted\n```rust\nfn main() {}\n```");
  expect(blocks.map(({ kind }) => kind)).toEqual(["heading", "paragraph", "list", "quote", "code"]);
  expect(blocks[1]).toMatchObject({
    inlines: [
      { kind: "text", text: "Some " },
      { kind: "strong", text: "bold" },
      { kind: "text", text: " and " },
      { kind: "code", text: "code" },
      { kind: "text", text: "\nnext" },
    ],
  });
  expect(blocks[4]).toEqual({ kind: "code", language: "rust", text: "fn main() {}" });
});

test("unclosed_code_ends_with_the_text", () => {
  expect(parse("```\na\nb")).toEqual([{ kind: "code", language: "", text: "a\nb" }]);
});

test("link_may_have_a_title", () => {
  const [first] = parse('[a](https://example.org/b "A title")');
  expect(first).toMatchObject({ inlines: [{ kind: "link", text: "a", url: new URL("https://example.org/b") }] });
});

test.each(["[](", "[](x ", "[a](" + "b".repeat(1_990) + " ", "```\n```\n"])("hostile text %j is parsed", (part) => {
  const text = part.repeat(Math.ceil(400_000 / part.length));
  const blocks = parse(`${text}\n\n[a](https://example.org/)`);
  expect(blocks.at(-1)).toMatchObject({ inlines: [{ kind: "link", text: "a" }] });
  if (blocks.length === 2) expect(blocks[0]).toEqual({ kind: "paragraph", inlines: [{ kind: "text", text }] });
});

test("long_text_is_parsed_quickly", () => {
  const start = performance.now();
  parse("*".repeat(20_000) + "[".repeat(20_000) + "`".repeat(20_000));
  expect(performance.now() - start).toBeLessThan(1_000);
});

test("diff_lines_have_kinds", () => {
  const kinds = diffLines("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n same\n").map(({ kind }) => kind);
  expect(kinds).toEqual(["file", "file", "hunk", "removed", "added", "context"]);
});

describe("format", () => {
  test("numbers", () => {
    expect([count(950n), count(12_999n), count(3_450_000n)]).toEqual(["950", "12k", "3.4M"]);
    expect([money(1_250_000n), money(0n), money(5n)]).toEqual(["1.25", "0.00", "0.000005"]);
    expect([bytes(900), bytes(2048n)]).toEqual(["900 B", "2.0 KiB"]);
    expect([percent(1n, 3n), percent(1n, 1_000n), percent(0n, 5n), percent(0n, 0n)]).toEqual(["33%", "<1%", "0%", "0%"]);
    expect(shortId("01234567-89ab")).toBe("567-89ab");
  });

  test("spans", () => {
    expect([span(5_000), span(200_000), span(7_200_000), span(-1)]).toEqual(["5s", "3m", "2h", "0s"]);
    expect([countdown(545_000), countdown(-5)]).toEqual(["9:05", "0:00"]);
  });

  test("cost_names_unknown_prices", () => {
    const usage = (costMicros: bigint, unpricedTokens: bigint) =>
      create(UsageSchema, { inputTokens: 10n, costMicros, unpricedTokens });
    expect(cost(create(UsageSchema))).toBe("");
    expect(cost(usage(1_250_000n, 0n))).toBe("1.25");
    expect(cost(usage(0n, 3n))).toBe("unknown");
    expect(cost(usage(1_250_000n, 3n))).toBe("1.25 + unknown");
  });

  test("budget_use_is_its_largest_share", () => {
    const usage = create(UsageSchema, { inputTokens: 40n, outputTokens: 10n, turns: 9 });
    const budget = { $typeName: "troupe.supervisor.v1.Budget" as const, tokens: 100n, turns: 10, costMicros: 0n };
    expect(budgetUsed(budget, usage)).toBe(90);
    expect(budgetUsed(undefined, usage)).toBeUndefined();
  });
});

test("csv_is_quoted_and_has_no_formulas", () => {
  const rows = [['a "b", c', "two\nlines"], ["=HYPERLINK(1)", "plain"]];
  expect(csv(["x", "y"], rows)).toBe('x,y\r\n"a ""b"", c","two\nlines"\r\n\'=HYPERLINK(1),plain\r\n');
});
