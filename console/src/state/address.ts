// The address of a page whose login has ended. A link that logs in returns to it if it is opened in the same tab.

const STORE = "troupe.address";

export function keepAddress(): void {
  sessionStorage.setItem(STORE, location.href);
}

/** Returns the kept address, and forgets it. */
export function takeAddress(): string | undefined {
  const address = sessionStorage.getItem(STORE) ?? undefined;
  sessionStorage.removeItem(STORE);
  return address;
}
