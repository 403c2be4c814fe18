import { expect, test } from "vitest";
import { toggled } from "../src/parts/HeadPicker";
import { sorted } from "../src/views/heads/cards";

test("unknown values come last either way, equal ones by head", () => {
  const rows = [
    { head: 0, a: 2 },
    { head: 1, a: null },
    { head: 2, a: 3 },
    { head: 3, a: 2 },
  ];
  expect(sorted(rows, "a", true).map((row) => row.head)).toEqual([2, 0, 3, 1]);
  expect(sorted(rows, "a", false).map((row) => row.head)).toEqual([0, 3, 2, 1]);
});

test("one head always stays, four at most", () => {
  expect(toggled([1], 1, 4)).toEqual([1]);
  expect(toggled([1, 2], 1, 4)).toEqual([2]);
  expect(toggled([1, 2, 3, 4], 5, 4)).toEqual([2, 3, 4, 5]);
});
