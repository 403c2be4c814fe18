import { expect, test } from "vitest";
import { decodeFloat16 } from "../src/data/float16";

test("known patterns of half precision", () => {
  const patterns = Uint16Array.of(0x0000, 0x3c00, 0xc000, 0x3555, 0x7bff, 0x0001, 0x8400, 0x7c00, 0xfc00);
  const expected = [0, 1, -2, 0.333251953125, 65504, 2 ** -24, -(2 ** -14), Infinity, -Infinity];
  expect(Array.from(decodeFloat16(patterns, 1))).toEqual(expected);
  expect(decodeFloat16(Uint16Array.of(0x7e00), 1)[0]).toBeNaN();
});

test("each number is times the multiplier", () => {
  expect(Array.from(decodeFloat16(Uint16Array.of(0x3c00, 0xc000), 2 ** -17))).toEqual([2 ** -17, -(2 ** -16)]);
});
