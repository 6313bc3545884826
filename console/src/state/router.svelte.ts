// The address of the page. Every view has an address.

class Router {
  #url = $state.raw(new URL(location.href));

  constructor() {
    addEventListener("popstate", () => (this.#url = new URL(location.href)));
    document.addEventListener("click", (event) => this.#followLink(event));
  }

  get path(): string {
    return this.#url.pathname;
  }

  get query(): URLSearchParams {
    return this.#url.searchParams;
  }

  go(address: string, { replace = false } = {}): void {
    const url = new URL(address, location.origin);
    if (url.origin !== location.origin || url.href === this.#url.href) return;
    if (replace) history.replaceState(null, "", url);
    else history.pushState(null, "", url);
    const isOtherPage = url.pathname !== this.#url.pathname;
    this.#url = url;
    if (!isOtherPage) return;
    const main = document.querySelector("main");
    main?.scrollTo(0, 0);
    // Focused, so that a screen reader continues at the new page.
    main?.focus({ preventScroll: true });
  }

  /** Changes parameters of the query. An empty value removes the parameter. */
  set(changes: Record<string, string>, options: { replace?: boolean } = { replace: true }): void {
    this.go(this.with(changes), options);
  }

  /** Returns the address with other parameters. */
  with(changes: Record<string, string>): string {
    const query = new URLSearchParams(this.#url.searchParams);
    for (const [name, value] of Object.entries(changes)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const text = query.toString();
    return this.#url.pathname + (text && `?${text}`);
  }

  #followLink(event: MouseEvent): void {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || url.hash) return;
    event.preventDefault();
    this.go(url.href);
  }
}

export const router = new Router();
