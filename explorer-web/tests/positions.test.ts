import { expect, test } from "vitest";
import { alibiKernel, kernelCurves, learnedCurves, seenKeys } from "../src/math/positions";

const sight = { attentionScale: 0.5, softcap: null, isCausal: true, window: null };

test("the keys that a query sees", () => {
  expect(seenKeys(3, 10, sight)).toEqual([0, 4]);
  expect(seenKeys(3, 10, { ...sight, window: 2 })).toEqual([2, 4]);
  expect(seenKeys(3, 10, { ...sight, window: 1 })).toEqual([3, 4]);
  expect(seenKeys(3, 10, { ...sight, isCausal: false })).toEqual([0, 10]);
  expect(seenKeys(3, 10, { ...sight, isCausal: false, window: 3 })).toEqual([1, 6]);
});

test("terms of positions alone, divided by σ or not", () => {
  const factors = {
    width: 2,
    query: Float32Array.of(1, 0, 2, 1),
    key: Float32Array.of(1, 1, 3, -1),
    bias: [0.5, 2],
    scale: Float32Array.of(2, 4),
  };
  const normed = learnedCurves(factors, 1, 2, sight);
  expect(Array.from(normed.p ?? [])).toEqual([2.5 / 2, -0.5 / 4]);
  expect(Array.from(normed.pp ?? [])).toEqual([3 / 8, 5 / 16]);
  const undivided = learnedCurves({ ...factors, scale: null }, 1, 2, sight);
  expect(Array.from(undivided.sum)).toEqual([5.5, 4.5]);
  expect(undivided.attention[0]).toBeCloseTo(1 / (1 + Math.exp(-0.5)), 9);
});

test("a slope pulls to the nearest key", () => {
  const { attention, sum, first } = kernelCurves(alibiKernel(0.5, 0.5), 2, 9, sight);
  expect([first, ...sum.map((value) => value + 0)]).toEqual([0, -2, -1, 0]);
  expect(attention[2]).toBeCloseTo(1 / (1 + Math.exp(-0.5) + Math.exp(-1)), 9);
});
