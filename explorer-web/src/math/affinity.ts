/** Tᵉᵉ of one token with the whole vocabulary, in a head: thin factors in, one score per token out. */

import { turnedByOffset, type Rotary } from "./rotation";

/** Rows of numbers, decoded on demand; what is returned is valid until the next call. */
export interface Factors {
  rows(begin: number, end: number): Float32Array;
}

const BLOCK = 2048; // rows decoded together

/** One side of a head, queries or keys: the vector of token t is factors[t] / σ_t + common. */
export interface Side {
  factors: Factors; // [token, width]
  common: Float64Array; // [width], 0 where nothing is added
}

export interface Head {
  width: number;
  inverseScale: Float32Array; // 1 / σ of each token
  query: Side;
  key: Side;
}

/** Scores of one query token with every key token, at an offset i − j if positions are rotary. */
export function lookedFor(head: Head, token: number, offset: number, rotary: Rotary | null): Float32Array {
  const asking = turnedByOffset(vectorOf(head, head.query, token), offset, rotary);
  return productsWith(head, head.key, asking);
}

/** Scores of one key token with every query token; the key is rotated back instead of all queries. */
export function lookingFor(head: Head, token: number, offset: number, rotary: Rotary | null): Float32Array {
  const asked = turnedByOffset(vectorOf(head, head.key, token), -offset, rotary);
  return productsWith(head, head.query, asked);
}

/** Scores of a given query vector; for the mean query, each key's mean over all queries. */
export function lookedForBy(head: Head, query: ArrayLike<number>, offset: number, rotary: Rotary | null): Float32Array {
  return productsWith(head, head.key, turnedByOffset(query, offset, rotary));
}

function vectorOf(head: Head, side: Side, token: number): Float64Array {
  const row = side.factors.rows(token, token + 1);
  return side.common.map((common, place) => row[place] * head.inverseScale[token] + common);
}

/** The dot product with each token's vector, with four independent sums for speed. */
function productsWith(head: Head, side: Side, vector: Float64Array): Float32Array {
  const { width, inverseScale } = head;
  const constant = dot(vector, side.common);
  const scores = new Float32Array(inverseScale.length);
  const whole = width - (width % 4);
  let factors: Float32Array = new Float32Array();
  for (let token = 0, begin = 0; token < scores.length; token++, begin += width) {
    if (token % BLOCK === 0) {
      factors = side.factors.rows(token, Math.min(token + BLOCK, scores.length));
      begin = 0;
    }
    let first = 0;
    let second = 0;
    let third = 0;
    let fourth = 0;
    for (let place = 0; place < whole; place += 4) {
      first += vector[place] * factors[begin + place];
      second += vector[place + 1] * factors[begin + place + 1];
      third += vector[place + 2] * factors[begin + place + 2];
      fourth += vector[place + 3] * factors[begin + place + 3];
    }
    for (let place = whole; place < width; place++) first += vector[place] * factors[begin + place];
    scores[token] = (first + second + third + fourth) * inverseScale[token] + constant;
  }
  return scores;
}

export function dot(one: ArrayLike<number>, other: ArrayLike<number>): number {
  let sum = 0;
  for (let place = 0; place < one.length; place++) sum += one[place] * other[place];
  return sum;
}
