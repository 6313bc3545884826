// The filter of a list of threads. It is part of the address.

import { Filter } from "../model/filter";
import { router } from "./router.svelte";

class Filters {
  #parsed = $derived.by(() => {
    try {
      return { filter: new Filter(this.text), error: "" };
    } catch (error) {
      return { filter: new Filter(""), error: error instanceof Error ? error.message : String(error) };
    }
  });

  get text(): string {
    return router.query.get("filter") ?? "";
  }

  /** The filter. If its text has a mistake, the filter that selects everything. */
  get present(): Filter {
    return this.#parsed.filter;
  }

  /** The mistake in the text. Empty without a mistake. */
  get error(): string {
    return this.#parsed.error;
  }
}

export const filters = new Filters();
