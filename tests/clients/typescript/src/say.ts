// The output of the scenario.

/** Prints a line. */
export function say(what: string, ...words: string[]): void {
  console.log(what.padEnd(9), ...words);
}
