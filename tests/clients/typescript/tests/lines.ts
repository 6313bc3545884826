// Reports to node:test's runner: a line for each test, as ../../run counts them, and what the client narrates.

import type { TestEvent } from "node:test/reporters";
import { inspect } from "node:util";

export default async function* lines(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const event of source) {
    switch (event.type) {
      case "test:stdout":
        yield event.data.message;
        break;
      case "test:pass":
        yield `ok ${event.data.name}\n`;
        break;
      case "test:fail":
        yield `FAILED ${event.data.name}\n`;
        // With its cause, which is what the test threw.
        for (const line of inspect(event.data.details.error).split("\n")) yield `        ${line}\n`;
        break;
    }
  }
}
