import { afterEach, expect, test, vi } from "vitest";
import { Arrays } from "../src/data/arrays";
import type { ArrayDescription } from "../src/data/contract";

const described = (file: string, dtype: ArrayDescription["dtype"], shape: number[], multiplier = 1) => ({
  file,
  dtype,
  shape,
  multiplier,
  error: 0,
});
const files: Record<string, ArrayBuffer> = {
  half: Uint16Array.of(0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600).buffer, // 1 … 6
  one: Float32Array.of(1, 2).buffer,
  two: Float32Array.of(3, 4).buffer,
  three: Float32Array.of(5, 6).buffer,
  short: Float32Array.of(1).buffer,
};
const descriptions = {
  half: described("half", "float16", [3, 2], 0.5),
  one: described("one", "float32", [2]),
  two: described("two", "float32", [2]),
  three: described("three", "float32", [2]),
  short: described("short", "float32", [2]),
};
let fetched: string[] = [];

function serve(): void {
  fetched = [];
  vi.stubGlobal("document", { baseURI: "http://127.0.0.1/sub/" });
  vi.stubGlobal("fetch", async (url: URL) => {
    const name = url.pathname.replace("/sub/", "");
    fetched.push(name);
    return files[name] ? new Response(files[name].slice(0)) : new Response(null, { status: 404 });
  });
}

afterEach(() => vi.unstubAllGlobals());

test("arrays are decoded, and some rows of one are those of the whole", async () => {
  serve();
  const arrays = new Arrays(descriptions);
  expect(Array.from(await arrays.floats("half"))).toEqual([0.5, 1, 1.5, 2, 2.5, 3]);
  expect(Array.from(await arrays.row("half", 1))).toEqual([1.5, 2]);
  expect(Array.from(await arrays.rows("half", [2, 0]))).toEqual([2.5, 3, 0.5, 1]);
});

test("what is there is not fetched again; what was asked for longest ago makes room", async () => {
  serve();
  const arrays = new Arrays(descriptions, 16);
  for (const name of ["one", "two", "one", "three", "one", "two"]) await arrays.get(name);
  expect(fetched).toEqual(["one", "two", "three", "two"]);
});

test("a head larger than the cache stays, with the small arrays that are used next to it", async () => {
  serve();
  const arrays = new Arrays({ ...descriptions, small: described("small", "uint32", [1]) }, 16);
  files.small = Uint32Array.of(1).buffer;
  for (const name of ["one", "two", "small", "one", "two", "small"]) await arrays.get(name);
  expect(fetched).toEqual(["one", "two", "small"]);
  await arrays.get("three");
  await arrays.get("one");
  expect(fetched).toEqual(["one", "two", "small", "three", "one"]);
});

test("a file that is cut short or missing is named, and may be asked for again", async () => {
  serve();
  const arrays = new Arrays({ ...descriptions, lost: described("lost", "float32", [2]) });
  await expect(arrays.get("short")).rejects.toThrow("The file short has 4 bytes instead of 8");
  await expect(arrays.get("lost")).rejects.toThrow("The file lost is missing (404)");
  files.lost = Float32Array.of(7, 8).buffer;
  expect(Array.from(await arrays.get("lost"))).toEqual([7, 8]);
});
