import { expect, test } from "vitest";
import { missingFeatures } from "../src/features";

test("what a browser lacks is named", () => {
  const some = {
    Float32Array,
    BigUint64Array,
    fetch,
    HTMLCanvasElement: 1,
    ResizeObserver: 1,
    TextDecoder,
    TextEncoder,
  };
  expect(missingFeatures({ ...some, Worker: 1 } as unknown as typeof globalThis)).toEqual([]);
  expect(missingFeatures(some as unknown as typeof globalThis)).toEqual(["web workers"]);
});
