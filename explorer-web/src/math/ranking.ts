/** Which scores are the largest, which the smallest, and where does one score stand among all? */

/** The places of the `count` largest scores, the largest first; of equal ones the first comes first. */
export function largest(scores: Float32Array, count: number): number[] {
  return selected(scores, count, 1);
}

/** The places of the `count` smallest scores, the smallest first; of equal ones the first comes first. */
export function smallest(scores: Float32Array, count: number): number[] {
  return selected(scores, count, -1);
}

/** One pass that keeps the best found so far in order: few are kept, so few are ever moved. */
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

/** From 1: how many scores are larger, or as large and earlier, plus one. */
export function rankOf(scores: Float32Array, place: number): number {
  const own = scores[place];
  let rank = 1;
  for (let other = 0; other < scores.length; other++) {
    if (scores[other] > own || (scores[other] === own && other < place)) rank++;
  }
  return rank;
}
