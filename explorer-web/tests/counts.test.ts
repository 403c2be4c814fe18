import { afterEach, expect, test, vi } from "vitest";
import { Counts, countShown, pairCount } from "../src/data/counts";

const description = {
  threshold: 1,
  pairs: 5,
  pairs_per_shard: 2,
  total_tokens: 0,
  total_pairs: 5,
  by_query: { shards: 3 },
  by_key: { shards: 3 },
};
const files: Record<string, Uint32Array> = {
  "by_query.index.bin": Uint32Array.of(0, 1, 1, 3, 5), // token 0 has one pair, 1 none, 2 and 3 two each, both over two shards
  "by_query-000.bin": Uint32Array.of(2, 0, 10, 20),
  "by_query-001.bin": Uint32Array.of(1, 2, 30, 40),
  "by_query-002.bin": Uint32Array.of(7, 4294967295),
};

afterEach(() => vi.unstubAllGlobals());

test("a row may run over several shards, the last of which is shorter", async () => {
  vi.stubGlobal("document", { baseURI: "http://127.0.0.1/" });
  vi.stubGlobal(
    "fetch",
    async (url: URL) => new Response(files[url.pathname.replace("/counts/", "")].buffer.slice(0) as ArrayBuffer),
  );
  const counts = new Counts(description, 4);
  expect([...(await counts.row(0, "looks"))]).toEqual([[2, 10]]);
  expect([...(await counts.row(1, "looks"))]).toEqual([]);
  expect([...(await counts.row(2, "looks"))]).toEqual([
    [0, 20],
    [1, 30],
  ]);
  expect([...(await counts.row(3, "looks"))]).toEqual([
    [2, 40],
    [7, 4294967295],
  ]);
});

test("what is not there occurred never, or fewer times than the threshold", () => {
  const row = new Map([[3, 1200]]);
  expect(countShown(pairCount(row, 3, 5))).toBe("1,200");
  expect(countShown(pairCount(row, 4, 5))).toBe("< 5");
  expect(countShown(pairCount(row, 4, 1))).toBe("0");
  expect(countShown(pairCount(null, 4, 1))).toBe("–");
  expect(countShown({ count: 4294967295, fewer: null })).toBe("≥ 4,294,967,295");
});
