/** How do we write numbers, and where do they stand on an axis? */

export function signed(value: number, digits = 2): string {
  return fixed(value, digits).replace(/^(?=[\d.])/, "+");
}

export function fixed(value: number, digits = 2): string {
  const text = value.toFixed(digits);
  return (/^-0(\.0*)?$/.test(text) ? text.slice(1) : text).replace("-", "−");
}

/** Four significant digits, as in the package's tables. */
export function brief(value: number): string {
  return String(Number(value.toPrecision(4))).replace("-", "−");
}

export function whole(value: number): string {
  return value.toLocaleString("en");
}

/** Attention as a share: 0.312, and what is smaller than a thousandth as such. */
export function share(value: number): string {
  return value > 0 && value < 0.0005 ? "< 0.001" : value.toFixed(3);
}

export interface Scale {
  (value: number): number;
  invert(place: number): number;
}

export function linear([low, high]: [number, number], [start, end]: [number, number]): Scale {
  const span = high - low || 1;
  const scale = (value: number) => start + ((value - low) / span) * (end - start);
  return Object.assign(scale, { invert: (place: number) => low + ((place - start) / (end - start || 1)) * span });
}

/** Round numbers within a range, about `about` of them. */
export function ticks(low: number, high: number, about: number): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((each) => each * power >= rough) ?? 10);
  const first = Math.ceil(low / step);
  const found: number[] = [];
  for (let place = first; place * step <= high + step * 1e-9; place++)
    found.push(Number((place * step).toPrecision(12)));
  return found;
}

export function tickText(value: number): string {
  const size = Math.abs(value);
  if (size >= 10000) return brief(value / 1000) + "k";
  return brief(value);
}

/** A range with a little margin on both ends. */
export function padded([low, high]: [number, number], margin = 0.04): [number, number] {
  const span = high - low || Math.abs(high) || 1;
  return [low - span * margin, high + span * margin];
}
