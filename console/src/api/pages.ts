// Lists that the services return in pages.

import { allPages as readAll } from "@troupe/client/web";

/** Maximum number of items of a list. Further items are not read. */
const MAX_ITEMS = 10_000;

/** Reads all pages of a list, up to `MAX_ITEMS` items. */
export const allPages: typeof readAll = (read, itemsOf) => readAll(read, itemsOf, MAX_ITEMS);
