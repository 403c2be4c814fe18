/** From scores to attention: the softmax over the keys that a query sees. */

export interface Sight {
  attentionScale: number;
  softcap: number | null;
  isCausal: boolean;
  window: number | null;
}

/** May the query at i look at the key at j? */
export function sees(sight: Sight, query: number, key: number): boolean {
  if (sight.isCausal && key > query) return false;
  return sight.window === null || Math.abs(query - key) < sight.window;
}

/** What the softmax is taken of: the score times the attention scale, capped where the model caps it. */
export function logit(score: number, sight: Sight): number {
  const scaled = score * sight.attentionScale;
  return sight.softcap === null ? scaled : sight.softcap * Math.tanh(scaled / sight.softcap);
}

/** Attention [query, key] of scores [query, key]; 0 where a query may not look. */
export function attentionOf(scores: Float32Array, length: number, sight: Sight): Float32Array {
  const result = new Float32Array(length * length);
  for (let query = 0; query < length; query++) {
    const row = result.subarray(query * length, (query + 1) * length);
    fillRow(row, scores.subarray(query * length, (query + 1) * length), query, sight);
  }
  return result;
}

function fillRow(row: Float32Array, scores: Float32Array, query: number, sight: Sight): void {
  let top = -Infinity;
  for (let key = 0; key < row.length; key++) {
    row[key] = sees(sight, query, key) ? logit(scores[key], sight) : -Infinity;
    if (row[key] > top) top = row[key];
  }
  let sum = 0;
  for (let key = 0; key < row.length; key++) sum += row[key] = Math.exp(row[key] - top);
  for (let key = 0; key < row.length; key++) row[key] /= sum;
}

/** The softmax of one row of numbers, all of them seen. */
export function softmax(values: Float64Array): Float64Array {
  const top = values.reduce((most, value) => Math.max(most, value), -Infinity);
  const result = values.map((value) => Math.exp(value - top));
  const sum = result.reduce((total, value) => total + value, 0);
  return result.map((value) => value / sum);
}
