/** From scores to attention: the softmax over the keys that a query can attend to. */

export interface Sight {
  attentionScale: number;
  softcap: number | null;
  isCausal: boolean;
  window: number | null;
}

/** Whether the query at i can attend to the key at j. */
export function sees(sight: Sight, query: number, key: number): boolean {
  if (sight.isCausal && key > query) return false;
  return sight.window === null || Math.abs(query - key) < sight.window;
}

/** The softmax's input: the score times the attention scale, soft-capped if the model does that. */
export function logit(score: number, sight: Sight): number {
  const scaled = score * sight.attentionScale;
  return sight.softcap === null ? scaled : sight.softcap * Math.tanh(scaled / sight.softcap);
}

/** Attention [query, key] from scores [query, key]; 0 for masked keys. */
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

/** The softmax of one row without a mask. */
export function softmax(values: Float64Array): Float64Array {
  const top = values.reduce((most, value) => Math.max(most, value), -Infinity);
  const result = values.map((value) => Math.exp(value - top));
  const sum = result.reduce((total, value) => total + value, 0);
  return result.map((value) => value / sum);
}
