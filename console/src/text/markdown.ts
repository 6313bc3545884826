// The parts of Markdown that make text easier to read: headings, lists, quotes, code, emphasis and links. The result is
// data for the page, so HTML in the text stays text.

export type Inline =
  | { readonly kind: "text" | "code" | "strong" | "emphasis"; readonly text: string }
  | { readonly kind: "link"; readonly text: string; readonly url: URL };

export type Block =
  | { readonly kind: "code"; readonly language: string; readonly text: string }
  | { readonly kind: "heading" | "paragraph" | "quote"; readonly inlines: Inline[] }
  | { readonly kind: "list"; readonly items: { readonly mark: string; readonly indent: number; readonly inlines: Inline[] }[] };

// Each repetition is bounded and ends before a character that can begin another match, so that a long text cannot make
// the expression slow.
const INLINE =
  /(?<code>`{1,3})(?<codeText>[^`]{1,500}?)\k<code>(?!`)|\*\*(?<strong>[^*\n]{1,500}?)\*\*|(?<![\w*])\*(?<emphasis>[^*\s][^*\n]{0,500}?)\*(?![\w*])|!?\[(?<label>[^[\]\n]{0,500})\]\((?<target>[^()\s]{1,2000})(?:\s[^()\n]{0,200})?\)|(?<bare>https?:\/\/[^\s<>"')\]]+)/g;
const ITEM = /^(\s*)([-*+]|\d{1,3}[.)])\s+(.*)$/;

/** Splits text into blocks. Text that is no Markdown becomes paragraphs with its line breaks. */
export function parse(text: string): Block[] {
  const lines = text.split("\n");
  const blocks: Block[] = [];
  for (let index = 0; index < lines.length; ) {
    const line = lines[index] ?? "";
    const fence = /^\s*(```+|~~~+)\s*([\w.+-]*)/.exec(line);
    if (fence) {
      let last = index + 1;
      while (last < lines.length && !lines[last]?.trim().startsWith(fence[1] ?? "")) last += 1;
      blocks.push({ kind: "code", language: fence[2] ?? "", text: lines.slice(index + 1, last).join("\n") });
      index = last + 1;
      continue;
    }
    const kind = kindOf(line);
    let end = index + 1;
    while (kind !== "heading" && end < lines.length && kindOf(lines[end] ?? "") === kind) end += 1;
    if (kind !== "blank") blocks.push(blockOf(kind, lines.slice(index, end)));
    index = end;
  }
  return blocks;
}

function kindOf(line: string): "blank" | "fence" | "heading" | "quote" | "list" | "paragraph" {
  if (!line.trim()) return "blank";
  if (/^\s*(```|~~~)/.test(line)) return "fence";
  if (/^#{1,6}\s/.test(line)) return "heading";
  if (/^>/.test(line)) return "quote";
  return ITEM.test(line) ? "list" : "paragraph";
}

function blockOf(kind: string, lines: string[]): Block {
  switch (kind) {
    case "heading":
      return { kind, inlines: inlinesOf((lines[0] ?? "").replace(/^#+\s*/, "")) };
    case "quote":
      return { kind, inlines: inlinesOf(lines.map((line) => line.replace(/^>\s?/, "")).join("\n")) };
    case "list":
      return { kind, items: lines.map(itemOf) };
    default:
      return { kind: "paragraph", inlines: inlinesOf(lines.join("\n")) };
  }
}

function itemOf(line: string): { mark: string; indent: number; inlines: Inline[] } {
  const [, indent = "", mark = "", text = ""] = ITEM.exec(line) ?? [];
  return { mark: /\d/.test(mark) ? mark : "•", indent: Math.min(3, Math.floor(indent.length / 2)), inlines: inlinesOf(text) };
}

function inlinesOf(text: string): Inline[] {
  const inlines: Inline[] = [];
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    const inline = inlineOf(match.groups ?? {});
    if (!inline) continue;
    if (match.index > from) inlines.push({ kind: "text", text: text.slice(from, match.index) });
    inlines.push(inline);
    from = match.index + match[0].length;
  }
  if (from < text.length) inlines.push({ kind: "text", text: text.slice(from) });
  return inlines;
}

/** Returns the inline element of a match, or `undefined` if the match is plain text. */
function inlineOf(groups: Record<string, string | undefined>): Inline | undefined {
  if (groups["codeText"] !== undefined) return { kind: "code", text: groups["codeText"] };
  if (groups["strong"] !== undefined) return { kind: "strong", text: groups["strong"] };
  if (groups["emphasis"] !== undefined) return { kind: "emphasis", text: groups["emphasis"] };
  const url = webUrl(groups["target"] ?? groups["bare"] ?? "");
  return url && { kind: "link", text: groups["label"] || url.href, url };
}

/** Returns the URL if a browser may open it: an absolute URL with http or https. */
function webUrl(text: string): URL | undefined {
  if (!URL.canParse(text)) return undefined;
  const url = new URL(text);
  return /^https?:$/.test(url.protocol) ? url : undefined;
}
