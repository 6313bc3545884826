// Removes what text of agents could use to imitate the page or to hide a part of itself: escape sequences of terminals,
// control characters, invisible characters and characters that change the reading order.

// CSI, OSC and the strings of DCS, SOS, PM and APC; then two-character sequences.
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -~])?/g;
const UNSAFE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** Returns the text with its lines. */
export function block(text: string): string {
  return text.replace(/\r\n?/g, "\n").replace(ESCAPES, "").replace(UNSAFE, "");
}

/** Returns the text on one line. */
export function line(text: string): string {
  return block(text).replace(/\s+/g, " ").trim();
}
