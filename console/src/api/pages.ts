// Lists that the services return in pages.

interface Page {
  readonly nextPageToken: string;
}

/** Reads all pages. Stops after `most` items. */
export async function allPages<P extends Page, T>(
  read: (pageToken: string) => Promise<P>,
  itemsOf: (page: P) => readonly T[],
  most = 10_000,
): Promise<T[]> {
  const items: T[] = [];
  let token = "";
  do {
    const page = await read(token);
    items.push(...itemsOf(page));
    token = page.nextPageToken;
  } while (token && items.length < most);
  return items;
}
