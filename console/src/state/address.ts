// Stores the address of a page whose login has ended. A login link that is opened in the same tab returns to this
// address.

const STORE = "troupe.address";

export function keepAddress(): void {
  sessionStorage.setItem(STORE, location.href);
}

/** Returns the stored address and removes it. */
export function takeAddress(): string | undefined {
  const address = sessionStorage.getItem(STORE) ?? undefined;
  sessionStorage.removeItem(STORE);
  return address;
}
