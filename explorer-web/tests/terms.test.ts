import { expect, test } from "vitest";
import { dot } from "../src/math/affinity";
import { turned, type Rotary } from "../src/math/rotation";
import {
  alibiTerms,
  dividedRows,
  learnedScale,
  learnedTerms,
  restricted,
  rotaryTerms,
  scoreOf,
  type Rows,
} from "../src/math/terms";

const WIDTH = 5;
const LENGTH = 6;
let seed = 11;
const next = () => (seed = (seed * 16807) % 2147483647) / 2147483647 - 0.5;
const vector = () => Float64Array.from({ length: WIDTH }, next);
const rows = (): Rows => ({ width: WIDTH, numbers: Float64Array.from({ length: WIDTH * LENGTH }, next) });
const row = (of: Rows, place: number) => of.numbers.subarray(place * WIDTH, (place + 1) * WIDTH);
const sum = (...vectors: ArrayLike<number>[]) =>
  Float64Array.from(vectors[0], (_, place) => vectors.reduce((total, each) => total + each[place], 0));
const scale = new Float32Array(LENGTH).fill(1);

test("six terms add up to (query + position + bias) times (key + position)", () => {
  const [tokens, positions, bias] = [{ query: rows(), key: rows() }, { query: rows(), key: rows() }, vector()];
  const terms = learnedTerms(tokens, positions, bias, scale);
  expect(terms.names).toEqual(["ee", "pp", "pe", "ep", "e", "p"]);
  const score = scoreOf(terms);
  for (let i = 0; i < LENGTH; i++) {
    for (let j = 0; j < LENGTH; j++) {
      const whole = dot(
        sum(row(tokens.query, i), row(positions.query, i), bias),
        sum(row(tokens.key, j), row(positions.key, j)),
      );
      expect(score[i * LENGTH + j]).toBeCloseTo(whole, 5);
      expect(terms.parts.ep[i * LENGTH + j]).toBeCloseTo(dot(row(tokens.query, i), row(positions.key, j)), 5);
    }
  }
});

test("four rotary terms add up to the product of turned wholes", () => {
  const rotary: Rotary = { frequencies: [0.9, 0.2], factor: 1.1 };
  const [tokens, common] = [
    { query: rows(), key: rows() },
    { query: vector(), key: vector() },
  ];
  const score = scoreOf(rotaryTerms({ tokens, common }, rotary, scale));
  for (let i = 0; i < LENGTH; i++) {
    for (let j = 0; j < LENGTH; j++) {
      const query = turned(sum(row(tokens.query, i), common.query), i, rotary);
      const key = turned(sum(row(tokens.key, j), common.key), j, rotary);
      expect(score[i * LENGTH + j]).toBeCloseTo(dot(query, key), 5);
    }
  }
});

test("a slope is divided by the attention scale, which multiplies it again", () => {
  const tokens = { query: rows(), key: rows() };
  const terms = alibiTerms({ tokens, common: { query: vector(), key: vector() } }, 0.25, 0.5, scale);
  expect(terms.parts.p[3 * LENGTH + 1]).toBeCloseTo(-1, 6);
  expect(terms.names).toEqual(["ee", "e", "p"]);
});

test("a term that is off has no part in the score; a split without a term has none", () => {
  const terms = learnedTerms({ query: rows(), key: rows() }, { query: rows(), key: rows() }, vector(), scale);
  const [all, less] = [scoreOf(terms), scoreOf(terms, ["pp"])];
  expect(all[7] - less[7]).toBeCloseTo(terms.parts.pp[7], 5);
  expect(restricted(terms, ["ee"]).names).toEqual(["ee"]);
});

test("rows are divided by their own place's σ, and the same vector is added to each", () => {
  const table = Float32Array.of(1, 2, 3, 4, 5, 6);
  const divided = dividedRows(table, [2, 0], 2, Float32Array.of(2, 4), Float64Array.of(1, 0));
  expect(Array.from(divided.numbers)).toEqual([3.5, 3, 1.25, 0.5]);
});

test("σ of token and position together", () => {
  const variances = {
    token: [1, 4],
    position: Float32Array.of(0.5, 0.25),
    rank: 2,
    epsilon: 0.25,
    tokenCovariance: Float32Array.of(0, 0, 0.5, 1),
    positionCovariance: Float32Array.of(1, 1, -2, 0.5),
  };
  const scales = learnedScale(variances);
  expect(scales[0]).toBeCloseTo(Math.sqrt(1.75), 6);
  expect(scales[1]).toBeCloseTo(Math.sqrt(4 + 0.25 + 2 * (-1 + 0.5) + 0.25), 6);
  const without = { ...variances, tokenCovariance: Float32Array.of(), positionCovariance: Float32Array.of(), rank: 0 };
  expect(learnedScale(without)[1]).toBeCloseTo(Math.sqrt(4.5), 6);
});
