// The scenario as a program: `npm run client`.

import { runScenario } from "./client.js";
import { pairFromEnvironment } from "./troupe.js";

await runScenario(pairFromEnvironment());
