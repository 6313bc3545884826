// Lists that the services return in pages.

import { allPages as readAll } from "@troupe/client/web";

/** The number of items after which a list is cut. */
const MAX_ITEMS = 10_000;

/** Reads all pages, or as many as a view can show. */
export const allPages: typeof readAll = (read, itemsOf) => readAll(read, itemsOf, MAX_ITEMS);
