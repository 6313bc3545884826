// The code of the one-time link. This module comes first, so that no other one sees the code in the address.

import { takeAddress } from "./address";

/** The code. Empty: the page was not opened with a link. */
export const code = location.pathname === "/login" ? location.hash.slice(1) : "";

if (location.pathname === "/login") history.replaceState(null, "", takeAddress() ?? "/");
