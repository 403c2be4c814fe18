/** Bigram counts: the row of a token, from the few shards that hold it. */

import type { CountsDescription, Way } from "./contract";
import { fetchBytes } from "./fetching";

const MOST = 4294967295; // the largest count that is stored; it means that or more
const KEPT_SHARDS = 8;

export class Counts {
  private readonly indices = new Map<string, Promise<Uint32Array>>();
  private readonly shards = new Map<string, Promise<Uint32Array>>();

  constructor(
    private readonly described: CountsDescription,
    private readonly vocabularySize: number,
  ) {}

  get threshold(): number {
    return this.described.threshold;
  }

  /** Counts of a token's pairs: with the keys before it, or with the queries after it. */
  async row(token: number, way: Way): Promise<Map<number, number>> {
    const order = way === "looks" ? "by_query" : "by_key";
    const index = await this.index(order);
    const [begin, end] = [index[token], index[token + 1]];
    const size = this.described.pairs_per_shard;
    const found = new Map<number, number>();
    for (let shard = Math.floor(begin / size); shard * size < end; shard++) {
      const numbers = await this.shard(order, shard);
      const length = numbers.length / 2;
      const last = Math.min(length, end - shard * size);
      for (let place = Math.max(0, begin - shard * size); place < last; place++) {
        found.set(numbers[place], numbers[length + place]);
      }
    }
    return found;
  }

  private index(order: string): Promise<Uint32Array> {
    const file = `counts/${order}.index.bin`;
    const found = this.indices.get(order) ?? numbersOf(file, (this.vocabularySize + 1) * 4);
    this.indices.set(order, found);
    return found;
  }

  private shard(order: string, shard: number): Promise<Uint32Array> {
    const name = `counts/${order}-${String(shard).padStart(3, "0")}.bin`;
    const found = this.shards.get(name) ?? numbersOf(name);
    this.shards.delete(name);
    this.shards.set(name, found);
    if (this.shards.size > KEPT_SHARDS) this.shards.delete(this.shards.keys().next().value as string);
    return found;
  }
}

async function numbersOf(file: string, bytes: number | null = null): Promise<Uint32Array> {
  return new Uint32Array(await fetchBytes(file, bytes));
}

export interface PairCount {
  count: number | null;
  fewer: number | null;
}

/** A pair's count, or the threshold that it stays below. */
export function pairCount(row: Map<number, number> | null, other: number, threshold: number): PairCount {
  if (!row) return { count: null, fewer: null };
  const count = row.get(other);
  if (count !== undefined) return { count, fewer: null };
  return threshold === 1 ? { count: 0, fewer: null } : { count: null, fewer: threshold };
}

export function countShown(pair: PairCount): string {
  if (pair.fewer !== null) return `< ${pair.fewer}`;
  if (pair.count === null) return "–";
  return pair.count === MOST ? `≥ ${MOST.toLocaleString("en")}` : pair.count.toLocaleString("en");
}
