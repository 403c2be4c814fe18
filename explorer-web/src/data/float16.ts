/** Decode half precision with a table of all 65,536 patterns. */

let decoded: Float32Array | null = null;

/** The value of every pattern, computed once: 256 kB. */
function table(): Float32Array {
  if (decoded) return decoded;
  decoded = new Float32Array(65536);
  for (let pattern = 0; pattern < 65536; pattern++) decoded[pattern] = fromPattern(pattern);
  return decoded;
}

function fromPattern(pattern: number): number {
  const sign = pattern & 0x8000 ? -1 : 1;
  const exponent = (pattern >> 10) & 0x1f;
  const fraction = pattern & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The stored numbers times the multiplier, in a given array if there is one. */
export function decodeFloat16(
  stored: Uint16Array,
  multiplier: number,
  result: Float32Array = new Float32Array(stored.length),
): Float32Array {
  const numbers = table();
  for (let place = 0; place < stored.length; place++) result[place] = numbers[stored[place]] * multiplier;
  return result;
}
