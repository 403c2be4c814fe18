/** Position terms: Tᵖ, Tᵖᵖ, their sum and its softmax, or the kernel by offset. */

import { dot } from "./affinity";
import { logit, sees, softmax, type Sight } from "./attention";
import type { Rotary } from "./rotation";

/** Curves along the keys that a query can attend to, starting at position `first`. */
export interface PositionCurves {
  first: number;
  p: Float64Array | null; // null where a family has no such term
  pp: Float64Array | null;
  sum: Float64Array;
  attention: Float64Array;
}

export interface PositionFactors {
  width: number;
  query: Float32Array; // [position, width]
  key: Float32Array;
  bias: ArrayLike<number>;
  scale: Float32Array | null; // σ of each position; null: as if nothing were divided
}

/** The range of keys that a query can attend to: the first, and one past the last. */
export function seenKeys(query: number, length: number, sight: Sight): [number, number] {
  let [first, end] = [0, length];
  while (first < query && !sees(sight, query, first)) first++;
  while (end > query + 1 && !sees(sight, query, end - 1)) end--;
  return [first, end];
}

export function learnedCurves(factors: PositionFactors, query: number, length: number, sight: Sight): PositionCurves {
  const [first, end] = seenKeys(query, length, sight);
  const row = (table: Float32Array, place: number) =>
    table.subarray(place * factors.width, (place + 1) * factors.width);
  const sigma = (place: number) => (factors.scale ? factors.scale[place] : 1);
  const keys = Array.from({ length: end - first }, (_, place) => first + place);
  const asking = row(factors.query, query);
  const p = Float64Array.from(keys, (key) => dot(factors.bias, row(factors.key, key)) / sigma(key));
  const pp = Float64Array.from(keys, (key) => dot(asking, row(factors.key, key)) / (sigma(query) * sigma(key)));
  const sum = p.map((value, place) => value + pp[place]);
  return { first, p, pp, sum, attention: attended(sum, sight) };
}

/** The purely positional part of the score at an offset i − j. */
export type Kernel = (offset: number) => number;

/** q R_δ k as waves: each pair of coordinates gives one cosine and one sine of δ, the rest a constant. */
export function rotaryKernel(query: Float64Array, key: Float64Array, rotary: Rotary): Kernel {
  const { frequencies } = rotary;
  const pairs = frequencies.length;
  const factor = rotary.factor ** 2;
  const cosines = frequencies.map((_, c) => factor * (query[c] * key[c] + query[c + pairs] * key[c + pairs]));
  const sines = frequencies.map((_, c) => factor * (query[c] * key[c + pairs] - query[c + pairs] * key[c]));
  const constant = dot(query.subarray(2 * pairs), key.subarray(2 * pairs));
  return (offset) => {
    let sum = constant;
    for (let pair = 0; pair < pairs; pair++) {
      const angle = offset * frequencies[pair];
      sum += cosines[pair] * Math.cos(angle) + sines[pair] * Math.sin(angle);
    }
    return sum;
  };
}

export function alibiKernel(slope: number, attentionScale: number): Kernel {
  return (offset) => (-slope * offset) / attentionScale;
}

export function kernelCurves(kernel: Kernel, query: number, length: number, sight: Sight): PositionCurves {
  const [first, end] = seenKeys(query, length, sight);
  const sum = Float64Array.from({ length: end - first }, (_, place) => kernel(query - first - place));
  return { first, p: null, pp: null, sum, attention: attended(sum, sight) };
}

function attended(sum: Float64Array, sight: Sight): Float64Array {
  return softmax(sum.map((score) => logit(score, sight)));
}
