/** The distribution of all scores. */

export interface Histogram {
  low: number;
  high: number;
  counts: number[];
}

export function extent(values: ArrayLike<number>): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (let place = 0; place < values.length; place++) {
    if (values[place] < low) low = values[place];
    if (values[place] > high) high = values[place];
  }
  return [low, high];
}

export function histogram(values: Float32Array, bins: number): Histogram {
  const [low, high] = extent(values);
  const counts = new Array<number>(bins).fill(0);
  const step = high > low ? bins / (high - low) : 0;
  for (let place = 0; place < values.length; place++) {
    counts[Math.min(bins - 1, Math.floor((values[place] - low) * step))]++;
  }
  return { low, high, counts };
}
