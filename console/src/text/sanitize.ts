// Removes characters with which an agent's text could imitate the page or hide a part of itself: control characters,
// invisible characters and characters that change the reading order. As in the command line, the printable characters
// of an escape sequence stay, because removing a sequence without an end would hide the text after it.

const UNSAFE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** Returns the text with its lines. */
export function block(text: string): string {
  return text.replace(/\r\n?/g, "\n").replace(UNSAFE, "");
}

/** Returns the text on one line. */
export function line(text: string): string {
  // In JavaScript, `\s` matches the byte order mark but not the C1 control character NEL, U+0085.
  const spaced = text.replaceAll("\ufeff", "").replace(/[\s\u0085]/g, " ");
  return spaced.replace(UNSAFE, "").replace(/ +/g, " ").trim();
}

/** Returns the text with its lines. Each unsafe character is shown as its code: `\u{1b}`. */
export function visible(text: string): string {
  return text.replace(UNSAFE, code);
}

/** Returns the text on one line. Each unsafe character and each line break is shown as its code. */
export function visibleLine(text: string): string {
  return visible(text).replace(/[\n\t]/g, code);
}

function code(character: string): string {
  return `\\u{${character.codePointAt(0)?.toString(16)}}`;
}
