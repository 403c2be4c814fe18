import { expect, test } from "vitest";
import { attentionOf, sees, softmax, type Sight } from "../src/math/attention";

const plain: Sight = { attentionScale: 0.5, softcap: null, isCausal: true, window: null };

test("a causal row is the softmax of what it sees", () => {
  const attention = attentionOf(Float32Array.of(9, 9, 2, 4), 2, plain);
  const share = 1 / (1 + Math.exp(1));
  expect(attention[0]).toBe(1);
  expect(attention[1]).toBe(0);
  expect(attention[2]).toBeCloseTo(share, 6);
  expect(attention[3]).toBeCloseTo(1 - share, 6);
});

test("a window, both ways where nothing is causal", () => {
  const sight = { ...plain, isCausal: false, window: 2 };
  expect([0, 1, 2, 3].map((key) => sees(sight, 2, key))).toEqual([false, true, true, true]);
  expect(sees({ ...sight, window: 1 }, 2, 3)).toBe(false);
});

test("a cap bounds scaled scores, so that a huge score does not take all", () => {
  const sight = { ...plain, softcap: 1 };
  const attention = attentionOf(Float32Array.of(0, 0, 0, 1000), 2, sight);
  expect(attention[3]).toBeCloseTo(Math.E / (1 + Math.E), 5);
});

test("softmax of large numbers does not overflow", () => {
  expect(Array.from(softmax(Float64Array.of(1000, 1000)))).toEqual([0.5, 0.5]);
});
