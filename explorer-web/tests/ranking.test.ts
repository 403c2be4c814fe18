import { expect, test } from "vitest";
import { largest, rankOf, smallest } from "../src/math/ranking";

const all = (scores: Float32Array) => Uint32Array.from(scores.keys());
const random = (seed: number) => () => (seed = (seed * 16807) % 2147483647) / 2147483647;

test("the largest and smallest of many are those of a whole sort, ties by id", () => {
  const next = random(7);
  const scores = Float32Array.from({ length: 5000 }, () => Math.round(next() * 300) / 10); // many ties
  const places = Array.from(scores.keys());
  const down = [...places].sort((one, other) => scores[other] - scores[one] || one - other);
  const up = [...places].sort((one, other) => scores[one] - scores[other] || one - other);
  expect(largest(scores, 60, all(scores))).toEqual(down.slice(0, 60));
  expect(smallest(scores, 60, all(scores))).toEqual(up.slice(0, 60));
  const even = all(scores).filter((id) => id % 2 === 0);
  expect(largest(scores, 60, even)).toEqual(down.filter((id) => id % 2 === 0).slice(0, 60));
});

test("fewer than asked for are all", () => {
  expect(largest(Float32Array.of(1, 3, 2), 10, Uint32Array.of(0, 1, 2))).toEqual([1, 2, 0]);
  expect(largest(Float32Array.of(), 10, Uint32Array.of())).toEqual([]);
});

test("a rank counts larger scores, and equal ones of smaller ids", () => {
  const scores = Float32Array.of(5, 7, 5, 1);
  expect([0, 1, 2, 3].map((place) => rankOf(scores, place, all(scores)))).toEqual([2, 1, 3, 4]);
  expect(rankOf(scores, 3, Uint32Array.of(0, 3))).toBe(2);
});
