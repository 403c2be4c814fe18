/** The largest and smallest scores among some tokens, and the rank of one. */

/** The ids of the `count` largest scores, largest first; ties by id. */
export function largest(scores: Float32Array, count: number, among: Uint32Array): number[] {
  return selected(scores, count, among, 1);
}

/** The ids of the `count` smallest scores, smallest first; ties by id. */
export function smallest(scores: Float32Array, count: number, among: Uint32Array): number[] {
  return selected(scores, count, among, -1);
}

/** One pass with insertion into a short sorted list. */
function selected(scores: Float32Array, count: number, among: Uint32Array, sign: 1 | -1): number[] {
  const kept = Math.min(count, among.length);
  const values = new Float64Array(kept).fill(-Infinity);
  const ids = new Int32Array(kept);
  let found = 0;
  if (!kept) return [];
  for (const id of among) {
    const value = sign * scores[id];
    if (found === kept && !(value > values[kept - 1])) continue;
    let slot = found < kept ? found++ : kept - 1;
    for (; slot > 0 && values[slot - 1] < value; slot--) {
      values[slot] = values[slot - 1];
      ids[slot] = ids[slot - 1];
    }
    values[slot] = value;
    ids[slot] = id;
  }
  return Array.from(ids.subarray(0, found));
}

/** The rank of a token, from 1; ties by id. */
export function rankOf(scores: Float32Array, id: number, among: Uint32Array): number {
  const own = scores[id];
  let rank = 1;
  for (const other of among) {
    if (scores[other] > own || (scores[other] === own && other < id)) rank++;
  }
  return rank;
}
