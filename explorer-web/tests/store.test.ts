import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { change, connect, state } from "../src/state/store";
import { bundle } from "./bundle";

let written: string[] = [];
let clock = 0;
let goBack: () => void = () => undefined;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  vi.advanceTimersByTime((clock += 10_000)); // each fake clock begins at 0, the store remembers when it wrote last
  written = [];
  const bar = { hash: "" };
  const write = (how: string) => (_: unknown, __: string, address: string) => {
    bar.hash = address;
    written.push(`${how} ${address}`);
  };
  vi.stubGlobal("location", bar);
  vi.stubGlobal("history", { pushState: write("push"), replaceState: write("replace") });
  vi.stubGlobal("window", { addEventListener: (_: string, listener: () => void) => (goBack = listener) });
  connect({ bundle });
});

afterEach(() => {
  vi.advanceTimersByTime(1000);
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("dragging writes the address at once, then only now and then, and the last place in the end", () => {
  for (let query = 1; query <= 40; query++) {
    change({ view: "positions", query });
    vi.advanceTimersByTime(10);
  }
  vi.advanceTimersByTime(1000);
  expect(written[0]).toBe("replace #/positions?head=2&query=1");
  expect(written.at(-1)).toBe("replace #/positions?head=2&query=40");
  expect(written.length).toBeLessThanOrEqual(4);
});

test("a step keeps what was typed just before it to go back to", () => {
  change({ view: "text", text: "x" });
  change({ text: "xy" });
  change({ view: "token", token: 9 }, true);
  expect(written).toEqual([
    "replace #/text?head=2&text=x",
    "replace #/text?head=2&text=xy",
    "push #/token?head=2&token=9",
  ]);
  vi.advanceTimersByTime(1000);
  expect(written.length).toBe(3);
});

test("going back shows what the address says, and nothing that waited overwrites it", () => {
  change({ view: "text", text: "x" });
  change({ text: "xy" });
  location.hash = "#/token?head=1&token=5";
  goBack();
  vi.advanceTimersByTime(1000);
  expect([state.value.view, state.value.token, location.hash]).toEqual(["token", 5, "#/token?head=1&token=5"]);
});
