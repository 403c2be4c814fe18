import { expect, test } from "vitest";
import { dot, lookedFor, lookedForBy, lookingFor, type Head } from "../src/math/affinity";
import { rotaryKernel } from "../src/math/positions";
import { turned, type Rotary } from "../src/math/rotation";

const WIDTH = 7; // odd: two pairs turn, three coordinates stay
const TOKENS = 11;
const rotary: Rotary = { frequencies: [1, 0.3], factor: 1.2 };
let seed = 5;
const next = () => (seed = (seed * 16807) % 2147483647) / 2147483647 - 0.5;

function factorsOf(numbers: Float32Array) {
  return { rows: (begin: number, end: number) => numbers.slice(begin * WIDTH, end * WIDTH) };
}

function side() {
  return {
    factors: factorsOf(Float32Array.from({ length: TOKENS * WIDTH }, next)),
    common: Float64Array.from({ length: WIDTH }, next),
  };
}

const head: Head = {
  width: WIDTH,
  inverseScale: Float32Array.from({ length: TOKENS }, () => 1 + next()),
  query: side(),
  key: side(),
};

function vector({ factors, common }: Head["query"], token: number): number[] {
  return Array.from(common, (value, place) => factors.rows(token, token + 1)[place] * head.inverseScale[token] + value);
}

test("without rotary positions a score is the product of query and key", () => {
  const scores = lookedFor(head, 4, 9, null);
  for (let key = 0; key < TOKENS; key++)
    expect(scores[key]).toBeCloseTo(dot(vector(head.query, 4), vector(head.key, key)), 5);
});

test("what a token looks for and who looks for it are the same scores, at any offset", () => {
  for (const offset of [0, 1, 5, -3]) {
    const scores = lookedFor(head, 4, offset, rotary);
    for (let key = 0; key < TOKENS; key++) expect(lookingFor(head, key, offset, rotary)[4]).toBeCloseTo(scores[key], 5);
  }
});

test("an offset is the difference of two positions", () => {
  const scores = lookedFor(head, 2, 3, rotary);
  const [query, key] = [turned(vector(head.query, 2), 10, rotary), turned(vector(head.key, 6), 7, rotary)];
  expect(scores[6]).toBeCloseTo(dot(query, key), 5);
});

test("a query of no token, and the kernel as waves", () => {
  const [query, key] = [vector(head.query, 1), vector(head.key, 8)].map((each) => Float64Array.from(each));
  expect(lookedForBy(head, query, 2, rotary)[8]).toBeCloseTo(lookedFor(head, 1, 2, rotary)[8], 5);
  const kernel = rotaryKernel(query, key, rotary);
  for (const offset of [0, 2, -7])
    expect(kernel(offset)).toBeCloseTo(
      dot(turned(query, offset, { ...rotary, factor: 1.2 }), turned(key, 0, rotary)),
      9,
    );
});
