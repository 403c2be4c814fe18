import { expect, test } from "vitest";
import { firstCell, mostAttended, shownValues, type Seen } from "../src/views/text/answer";

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
