// Lists that the services return in pages.

/** The request of a page. */
export interface Page {
  readonly pageSize: number;
  readonly pageToken: string;
}

const PAGE_SIZE = 1_000;

/** Yields the pages of a list. */
export async function* pagesOf<P extends { readonly nextPageToken: string }>(
  read: (page: Page) => Promise<P>,
): AsyncGenerator<P, void> {
  let pageToken = "";
  do {
    const page = await read({ pageSize: PAGE_SIZE, pageToken });
    yield page;
    pageToken = page.nextPageToken;
  } while (pageToken);
}

/** Reads all pages of a list. Stops after the page that contains the item number `most`. */
export async function allPages<P extends { readonly nextPageToken: string }, T>(
  read: (page: Page) => Promise<P>,
  itemsOf: (page: P) => readonly T[],
  most = Number.POSITIVE_INFINITY,
): Promise<T[]> {
  const items: T[] = [];
  for await (const page of pagesOf(read)) {
    items.push(...itemsOf(page));
    if (items.length >= most) break;
  }
  return items;
}
