// A reporter for node:test: prints a line for each test, which ../../run counts, and the output of the client.

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
        // The cause is the error that the test threw.
        for (const line of inspect(event.data.details.error).split("\n")) yield `        ${line}\n`;
        break;
    }
  }
}
