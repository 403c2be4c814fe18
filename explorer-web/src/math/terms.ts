/** The terms of a text in one head: named parts [query, key] that add up to the score. */

import { dot } from "./affinity";
import { turned, type Rotary } from "./rotation";

export interface Terms {
  length: number;
  names: string[];
  parts: Record<string, Float32Array>;
  scale: Float32Array; // σ of each place
}

type Rows = Float64Array[]; // one vector a place

/** Rows of a table of factors, each divided by its place's σ. */
export function dividedRows(table: Float32Array, rows: ArrayLike<number>, width: number, scale: Float32Array): Rows {
  return Array.from(rows, (row, place) =>
    Float64Array.from(table.subarray(row * width, (row + 1) * width), (value) => value / scale[place]),
  );
}

/** Six terms where positions are learned: three query factors times two key factors. */
export function learnedTerms(
  tokens: { query: Rows; key: Rows },
  positions: { query: Rows; key: Rows },
  bias: ArrayLike<number>,
  scale: Float32Array,
): Terms {
  const every = tokens.query.map(() => Float64Array.from(bias));
  return named(scale, {
    ee: products(tokens.query, tokens.key),
    pp: products(positions.query, positions.key),
    pe: products(positions.query, tokens.key),
    ep: products(tokens.query, positions.key),
    e: products(every, tokens.key),
    p: products(every, positions.key),
  });
}

/** What queries and keys have in common is `common`; what is left of each place's token is `tokens`. */
export interface OffsetParts {
  tokens: { query: Rows; key: Rows };
  common: { query: Float64Array; key: Float64Array };
}

export function rotaryTerms({ tokens, common }: OffsetParts, rotary: Rotary, scale: Float32Array): Terms {
  const [query, key] = [turnedRows(tokens.query, rotary), turnedRows(tokens.key, rotary)];
  const commonQuery = turnedRows(tokens.query.map(() => common.query), rotary);
  const commonKey = turnedRows(tokens.key.map(() => common.key), rotary);
  return named(scale, {
    ee: products(query, key),
    e: products(commonQuery, key),
    ep: products(query, commonKey),
    p: products(commonQuery, commonKey),
  });
}

/** A slope lowers scores that are already scaled, so as a term it is divided by the attention scale. */
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
    e: products(tokens.query.map(() => common.query), tokens.key),
    p: lowered,
  });
}

/** Only the terms of this split, in its order. */
export function restricted(terms: Terms, names: string[]): Terms {
  const parts = Object.fromEntries(names.map((name) => [name, terms.parts[name]]));
  return { ...terms, names, parts };
}

/** The score: all terms added but those that are switched off. */
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

function turnedRows(rows: Rows, rotary: Rotary): Rows {
  return rows.map((row, place) => turned(row, place, rotary));
}

/** Each query's product with each key. */
function products(queries: Rows, keys: Rows): Float32Array {
  const result = new Float32Array(queries.length * keys.length);
  for (let query = 0; query < queries.length; query++) {
    for (let key = 0; key < keys.length; key++) result[query * keys.length + key] = dot(queries[query], keys[key]);
  }
  return result;
}

export interface Variances {
  token: Float32Array; // of every token
  position: Float32Array; // of every place
  tokenCovariance: Float32Array | null; // [token, rank]
  positionCovariance: Float32Array | null; // [place, rank]
  rank: number;
  epsilon: number;
}

/** σ of token t at place i where positions are learned: Var(e + p) = Var(e) + Var(p) + 2 Cov(e, p). */
export function learnedScale(ids: ArrayLike<number>, variances: Variances): Float32Array {
  const { rank, tokenCovariance, positionCovariance } = variances;
  return Float32Array.from(ids, (token, place) => {
    let covariance = 0;
    if (tokenCovariance && positionCovariance) {
      for (let each = 0; each < rank; each++) {
        covariance += tokenCovariance[token * rank + each] * positionCovariance[place * rank + each];
      }
    }
    const variance = variances.token[token] + variances.position[place] + 2 * covariance;
    return Math.sqrt(Math.max(0, variance) + variances.epsilon);
  });
}
