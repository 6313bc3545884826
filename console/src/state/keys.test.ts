import { beforeEach, expect, test, vi } from "vitest";

/** A fake element with only the properties that the keys use. */
class FakeElement {
  readonly tagName: string;
  readonly isContentEditable = false;

  constructor(tagName: string) {
    this.tagName = tagName;
  }

  closest(selector: string): FakeElement | null {
    return selector.toUpperCase().split(", ").includes(this.tagName) ? this : null;
  }
}

let press: (event: object) => void;
const pressed: string[] = [];

beforeEach(async () => {
  vi.resetModules();
  vi.stubGlobal("localStorage", { getItem: () => null });
  vi.stubGlobal("document", { querySelector: () => null });
  vi.stubGlobal("HTMLElement", FakeElement);
  vi.stubGlobal("addEventListener", (_: string, listener: typeof press) => (press = listener));
  const { keys } = await import("./keys.svelte");
  const run = (key: string) => ({ key, text: key, run: () => pressed.push(key) });
  keys.add("Test", ["j", "y", "Enter"].map(run));
  pressed.length = 0;
});

function down(key: string, { repeat = false, target = new FakeElement("DIV") } = {}) {
  const event = { key, repeat, target, preventDefault: vi.fn() };
  press(event);
  return event;
}

test("held_key_decides_once", () => {
  down("y");
  down("y", { repeat: true });
  expect(pressed).toEqual(["y"]);
});

test("held_j_repeats", () => {
  down("j");
  down("j", { repeat: true });
  expect(pressed).toEqual(["j", "j"]);
});

test.each(["A", "BUTTON", "SUMMARY"])("enter on %s keeps its action", (tagName) => {
  const { preventDefault } = down("Enter", { target: new FakeElement(tagName) });
  expect(pressed).toEqual([]);
  expect(preventDefault).not.toHaveBeenCalled();
});

test("enter_elsewhere_runs_its_key", () => {
  down("Enter");
  expect(pressed).toEqual(["Enter"]);
});
