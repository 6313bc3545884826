// The narration.

/** A line of it. */
export function say(what: string, ...words: string[]): void {
  console.log(what.padEnd(9), ...words);
}
