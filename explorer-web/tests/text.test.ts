import { expect, test } from "vitest";
import { differences, firstCell, mostAttended, shownValues, type Seen } from "../src/views/text/answer";
import { arcLayout, arcOf, linksOf } from "../src/views/text/arcs";
import { coloured } from "../src/views/text/matrix";

const attention = Float32Array.of(1, 0, 0, 0.9, 0.1, 0, 0.2, 0.5, 0.3);
const terms = { length: 3, names: ["ee"], parts: { ee: new Float32Array(9).fill(2) }, scale: new Float32Array(3) };
const seen: Seen = {
  head: 0,
  ids: [4, 5, 6],
  terms,
  whole: new Float32Array(9).fill(0.25),
  off: ["ee"],
  score: new Float32Array(9),
  attention,
};

test("the first cell is the strongest link to another token, the first one aside", () => {
  expect(firstCell(seen)).toEqual([2, 1]);
  expect(firstCell({ ...seen, ids: [4], attention: Float32Array.of(1) })).toEqual([0, 0]);
  expect(mostAttended(seen, 1)).toBe(0);
});

test("what the matrix draws", () => {
  expect(shownValues(seen, "attention")).toEqual({ values: attention, isShare: true });
  expect(shownValues(seen, "change").values[3]).toBeCloseTo(0.65, 6);
  expect(shownValues(seen, "ee").values[0]).toBe(2);
  expect(shownValues(seen, "no such").isShare).toBe(true);
});

const sight = { attentionScale: 1, softcap: null, isCausal: true, window: null };

test("arcs are the links to other tokens that are strong enough, the strongest last", () => {
  const links = linksOf(coloured(attention, 3, true, sight));
  expect(links.map(({ query, key }) => [query, key])).toEqual([[2, 0], [2, 1], [1, 0]]);
  const row = arcLayout(["a", "bb", "c"], 400, links);
  const column = arcLayout(["a".repeat(14), "b".repeat(14), "c"], 150, links);
  expect([row.isRow, column.isRow]).toEqual([true, false]);
  for (const layout of [row, column]) {
    for (const link of links) {
      const [x, y] = arcOf(layout, link).apex;
      expect(x >= 0 && x <= layout.width && y >= 0 && y <= layout.height).toBe(true);
    }
  }
});

test("two heads are compared cell by cell, two texts by pair of tokens", () => {
  const heads = differences(seen, { ...seen, head: 1, attention: Float32Array.of(1, 0, 0, 0.1, 0.9, 0, 0.2, 0.5, 0.3) });
  expect(heads[0].shares[1] - heads[0].shares[0]).toBeCloseTo(-0.8, 6);
  const texts = differences(seen, { ...seen, ids: [9, 5, 6], attention: Float32Array.of(1, 0, 0, 0.5, 0.5, 0, 0.1, 0.9, 0) });
  expect([texts[0].query, texts[0].key]).toEqual([5, 5]);
  expect(texts.some(({ key }) => key === 4)).toBe(false);
});
