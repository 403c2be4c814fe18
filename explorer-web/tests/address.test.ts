import { expect, test } from "vitest";
import { defaults, moved, parsed, written, type State } from "../src/state/address";
import { bundle } from "./bundle";

test("an address gives back the state that wrote it", () => {
  const changes: Partial<State>[] = [
    { view: "token", heads: [3, 1], token: 42, way: "looked", centred: true, offset: 5, top: 50 },
    { view: "text", heads: [2], text: "x, y & ␣=#?%\n é", bos: true, off: ["p"], show: "change", cell: [3, 1] },
    { view: "text", text: null, ids: [5, 6] },
    { view: "positions", query: 9, norm: false },
    { view: "text", heads: [1, 3], other: "c d", draw: "matrix", cell: [1, 0], cell2: [1, 1] },
    { view: "heads", heads: [3], all: true, sort: "auroc", descending: true, x: "a", y: "b" },
  ];
  for (const change of changes) {
    const state = { ...defaults(bundle), ...change };
    expect(parsed(written(state, bundle), bundle)).toEqual({ ...state, ids: change.ids ?? [1, 2] });
  }
});

test("what is bad in an address falls back", () => {
  const address = "#/token?head=99&token=-1&offset=x&way=&top=7&split=none&cell=1&off=zz&query=1e9&show=<b>";
  expect(parsed(address, bundle)).toEqual({ ...defaults(bundle), view: "token" });
  expect(parsed("#/nowhere?%%%", bundle)).toEqual(defaults(bundle));
});

test("going to another view keeps what only this one says", () => {
  const before = { ...defaults(bundle), view: "text" as const, text: "typed", token: 3 };
  const after = moved(before, "#/token?head=1&token=9", bundle);
  expect([after.view, after.text, after.token, after.heads]).toEqual(["token", "typed", 9, [1]]);
});

test("the query position looked from first lies where positions were trained", () => {
  expect(defaults(bundle).query).toBe(20);
});
