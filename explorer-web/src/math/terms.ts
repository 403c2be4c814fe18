/** The terms of a text in one head: named parts [query, key] that add up to the score. */

import { turned, type Rotary } from "./rotation";

export interface Terms {
  length: number;
  names: string[];
  parts: Record<string, Float32Array>;
  scale: Float32Array; // σ of each place
}

/** One vector per position, concatenated. */
export interface Rows {
  width: number;
  numbers: Float64Array;
}

/** Rows of a factor table, each divided by σ of its position, plus the same vector. */
export function dividedRows(
  table: Float32Array,
  rows: ArrayLike<number>,
  width: number,
  scale: Float32Array,
  added: Float64Array = new Float64Array(width),
): Rows {
  const numbers = new Float64Array(rows.length * width);
  for (let place = 0; place < rows.length; place++) {
    for (let each = 0; each < width; each++) {
      numbers[place * width + each] = table[rows[place] * width + each] / scale[place] + added[each];
    }
  }
  return { width, numbers };
}

/** Six terms with learned positions: three query factors times two key factors. */
export function learnedTerms(
  tokens: { query: Rows; key: Rows },
  positions: { query: Rows; key: Rows },
  bias: ArrayLike<number>,
  scale: Float32Array,
): Terms {
  return named(scale, {
    ee: products(tokens.query, tokens.key),
    pp: products(positions.query, positions.key),
    pe: products(positions.query, tokens.key),
    ep: products(tokens.query, positions.key),
    e: sameForAll(bias, tokens.key),
    p: sameForAll(bias, positions.key),
  });
}

/** `common` is the query and key shared by all tokens; `tokens` is the rest at each position. */
export interface OffsetParts {
  tokens: { query: Rows; key: Rows };
  common: { query: Float64Array; key: Float64Array };
}

export function rotaryTerms({ tokens, common }: OffsetParts, rotary: Rotary, scale: Float32Array): Terms {
  const [query, key] = [turnedRows(tokens.query, rotary), turnedRows(tokens.key, rotary)];
  const commonQuery = turnedRows(repeated(common.query, scale.length), rotary);
  const commonKey = turnedRows(repeated(common.key, scale.length), rotary);
  return named(scale, {
    ee: products(query, key),
    e: products(commonQuery, key),
    ep: products(query, commonKey),
    p: products(commonQuery, commonKey),
  });
}

/** ALiBi slopes apply to scaled scores, so as a term they are divided by the attention scale. */
export function alibiTerms(
  { tokens, common }: OffsetParts,
  slope: number,
  attentionScale: number,
  scale: Float32Array,
): Terms {
  const length = scale.length;
  const lowered = new Float32Array(length * length);
  for (let query = 0; query < length; query++) {
    for (let key = 0; key < length; key++) lowered[query * length + key] = (-slope * (query - key)) / attentionScale;
  }
  return named(scale, {
    ee: products(tokens.query, tokens.key),
    e: sameForAll(common.query, tokens.key),
    p: lowered,
  });
}

/** Only the terms of this split, in its order. */
export function restricted(terms: Terms, names: string[]): Terms {
  const parts = Object.fromEntries(names.map((name) => [name, terms.parts[name]]));
  return { ...terms, names, parts };
}

/** The score: the sum of all terms that are not switched off. */
export function scoreOf(terms: Terms, off: readonly string[] = []): Float32Array {
  const sum = new Float32Array(terms.length * terms.length);
  for (const name of terms.names) {
    if (off.includes(name)) continue;
    const part = terms.parts[name];
    for (let place = 0; place < sum.length; place++) sum[place] += part[place];
  }
  return sum;
}

function named(scale: Float32Array, parts: Record<string, Float32Array>): Terms {
  return { length: scale.length, names: Object.keys(parts), parts, scale };
}

function repeated(vector: Float64Array, times: number): Rows {
  const numbers = new Float64Array(vector.length * times);
  for (let place = 0; place < times; place++) numbers.set(vector, place * vector.length);
  return { width: vector.length, numbers };
}

function turnedRows({ width, numbers }: Rows, rotary: Rotary): Rows {
  const result = new Float64Array(numbers.length);
  for (let place = 0; place * width < numbers.length; place++) {
    result.set(turned(numbers.subarray(place * width, (place + 1) * width), place, rotary), place * width);
  }
  return { width, numbers: result };
}

/** Dot products of each query with each key. */
function products(queries: Rows, keys: Rows): Float32Array {
  const { width, numbers: query } = queries;
  const key = keys.numbers;
  const result = new Float32Array((query.length / width) * (key.length / width));
  let place = 0;
  for (let from = 0; from < query.length; from += width) {
    for (let to = 0; to < key.length; to += width) {
      let sum = 0;
      for (let each = 0; each < width; each++) sum += query[from + each] * key[to + each];
      result[place++] = sum;
    }
  }
  return result;
}

/** Dot products of one query with each key, repeated in every row. */
function sameForAll(query: ArrayLike<number>, keys: Rows): Float32Array {
  const row = products({ width: keys.width, numbers: Float64Array.from(query) }, keys);
  const result = new Float32Array(row.length * row.length);
  for (let place = 0; place < row.length; place++) result.set(row, place * row.length);
  return result;
}

/** What σ at each position of a text needs; covariances are [position, rank]. */
export interface Variances {
  token: ArrayLike<number>;
  position: ArrayLike<number>;
  tokenCovariance: Float32Array;
  positionCovariance: Float32Array;
  rank: number;
  epsilon: number;
}

/** σ at each position with learned positions: Var(e + p) = Var(e) + Var(p) + 2 Cov(e, p). */
export function learnedScale(variances: Variances): Float32Array {
  const { rank, tokenCovariance, positionCovariance } = variances;
  return Float32Array.from(variances.token, (ofToken, place) => {
    let covariance = 0;
    for (let each = place * rank; each < (place + 1) * rank; each++)
      covariance += tokenCovariance[each] * positionCovariance[each];
    const variance = ofToken + variances.position[place] + 2 * covariance;
    return Math.sqrt(Math.max(0, variance) + variances.epsilon);
  });
}
