// The code of the one-time link. This module is imported first and removes the code from the address, so that no other
// module sees it.

import { takeAddress } from "./address";

/** The code. Empty: the page was not opened with a link. */
export const code = location.pathname === "/login" ? location.hash.slice(1) : "";

if (location.pathname === "/login") history.replaceState(null, "", takeAddress() ?? "/");
