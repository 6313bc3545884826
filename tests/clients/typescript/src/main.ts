// The scenario as a program: `npm run client`.

import { tell } from "./client.js";
import { pairFromEnvironment } from "./troupe.js";

await tell(pairFromEnvironment());
