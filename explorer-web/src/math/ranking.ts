/** The largest and smallest scores, and the rank of one. */

/** Indices of the `count` largest scores, largest first; ties by index. */
export function largest(scores: Float32Array, count: number): number[] {
  return selected(scores, count, 1);
}

/** Indices of the `count` smallest scores, smallest first; ties by index. */
export function smallest(scores: Float32Array, count: number): number[] {
  return selected(scores, count, -1);
}

/** One pass with insertion into a short sorted list. */
function selected(scores: Float32Array, count: number, sign: 1 | -1): number[] {
  const kept = Math.min(count, scores.length);
  const values = new Float64Array(kept).fill(-Infinity);
  const places = new Int32Array(kept);
  let found = 0;
  for (let place = 0; place < scores.length && kept > 0; place++) {
    const value = sign * scores[place];
    if (found === kept && !(value > values[kept - 1])) continue;
    let slot = found < kept ? found++ : kept - 1;
    for (; slot > 0 && values[slot - 1] < value; slot--) {
      values[slot] = values[slot - 1];
      places[slot] = places[slot - 1];
    }
    values[slot] = value;
    places[slot] = place;
  }
  return Array.from(places.subarray(0, found));
}

/** Rank from 1; ties by index. */
export function rankOf(scores: Float32Array, place: number): number {
  const own = scores[place];
  let rank = 1;
  for (let other = 0; other < scores.length; other++) {
    if (scores[other] > own || (scores[other] === own && other < place)) rank++;
  }
  return rank;
}
