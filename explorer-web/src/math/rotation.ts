/** Rotary positions: coordinates c and c + n are a pair rotated by position · θ_c; the rest is unchanged. */

export interface Rotary {
  frequencies: number[];
  factor: number;
}

/** A copy of a vector, rotated by a position as layer 0 rotates queries and keys. */
export function turned(vector: ArrayLike<number>, position: number, rotary: Rotary): Float64Array {
  return turnedBy(vector, position, rotary.frequencies, rotary.factor);
}

/** A query rotated so that its dot product with unrotated keys is the score at the offset i − j. */
export function turnedByOffset(query: ArrayLike<number>, offset: number, rotary: Rotary | null): Float64Array {
  if (!rotary) return Float64Array.from(query);
  return turnedBy(query, offset, rotary.frequencies, rotary.factor ** 2);
}

function turnedBy(vector: ArrayLike<number>, by: number, frequencies: number[], factor: number): Float64Array {
  const result = Float64Array.from(vector);
  const pairs = frequencies.length;
  for (let pair = 0; pair < pairs; pair++) {
    const cosine = factor * Math.cos(by * frequencies[pair]);
    const sine = factor * Math.sin(by * frequencies[pair]);
    result[pair] = vector[pair] * cosine - vector[pair + pairs] * sine;
    result[pair + pairs] = vector[pair + pairs] * cosine + vector[pair] * sine;
  }
  return result;
}
