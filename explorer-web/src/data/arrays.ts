/** The bundle's arrays: fetched on demand, decoded once, kept in a least-recently-used cache. */

import type { ArrayDescription } from "./contract";
import { fetchBytes } from "./fetching";
import { decodeFloat16 } from "./float16";
import { Problem } from "./problem";
import type { Factors } from "../math/affinity";

export type Numbers = Float32Array | Float64Array | Uint32Array;

const BYTES = { float16: 2, float32: 4, float64: 8, uint32: 4 } as const;
const CAPACITY = 64e6; // bytes of what is kept: four heads of GPT-2 small; more only if one head is larger

interface Kept {
  content: Promise<Numbers | ArrayBuffer>;
  bytes: number;
}

export class Arrays {
  private readonly kept = new Map<string, Kept>();

  constructor(
    private readonly descriptions: Record<string, ArrayDescription>,
    private readonly capacity: number = CAPACITY,
  ) {}

  has(name: string): boolean {
    return name in this.descriptions;
  }

  shape(name: string): number[] {
    return this.described(name).shape;
  }

  /** One decoded array; the least recently used ones are dropped if the cache is full. */
  get(name: string): Promise<Numbers> {
    const description = this.described(name);
    const read = async () => decoded(await this.bytesOf(description), description);
    return this.remembered(name, size(description.shape) * 4, read) as Promise<Numbers>;
  }

  /** Some rows of an array; the array is cached undecoded. */
  async rows(name: string, places: ArrayLike<number>): Promise<Float32Array> {
    const description = this.described(name);
    const [, width] = description.shape;
    const stored = await this.stored(name);
    const result = new Float32Array(places.length * width);
    const each = width * BYTES[description.dtype];
    for (let place = 0; place < places.length; place++) {
      const row = stored.slice(places[place] * each, (places[place] + 1) * each);
      result.set(decoded(row, description), place * width);
    }
    return result;
  }

  /** A large array in half precision: kept as stored, decoded a few rows at a time. */
  async factors(name: string): Promise<Factors> {
    const { multiplier, shape } = this.described(name);
    const stored = new Uint16Array(await this.stored(name));
    const width = shape[1];
    let block = new Float32Array();
    return {
      rows(begin, end) {
        const size = (end - begin) * width;
        if (block.length < size) block = new Float32Array(size);
        return decodeFloat16(stored.subarray(begin * width, end * width), multiplier, block);
      },
    };
  }

  private async stored(name: string): Promise<ArrayBuffer> {
    const description = this.described(name);
    const bytes = size(description.shape) * BYTES[description.dtype];
    return (await this.remembered(`${name} as stored`, bytes, () => this.bytesOf(description))) as ArrayBuffer;
  }

  async floats(name: string): Promise<Float32Array> {
    return (await this.get(name)) as Float32Array;
  }

  /** One row of an array with two axes. */
  async row(name: string, place: number): Promise<Float32Array> {
    const width = this.shape(name)[1];
    return (await this.floats(name)).subarray(place * width, (place + 1) * width);
  }

  private described(name: string): ArrayDescription {
    const description = this.descriptions[name];
    if (!description) throw new Problem(`This bundle has no array ${name}. Recreate it with detoklens explore.`);
    return description;
  }

  private bytesOf(description: ArrayDescription): Promise<ArrayBuffer> {
    return fetchBytes(description.file, size(description.shape) * BYTES[description.dtype]);
  }

  private remembered(name: string, bytes: number, read: () => Promise<Numbers | ArrayBuffer>): Kept["content"] {
    const content = this.kept.get(name)?.content ?? read();
    content.catch(() => this.kept.delete(name));
    this.kept.delete(name);
    this.kept.set(name, { content, bytes });
    this.makeRoom();
    return content;
  }

  private makeRoom(): void {
    const largest = [...this.kept].filter(([, each]) => each.bytes > this.capacity / 4).slice(-2);
    const spared = new Set(largest.map(([name]) => name)); // a head's queries and keys stay together, however large
    const limit = Math.max(this.capacity, largest.reduce((sum, [, each]) => sum + each.bytes, 0) + this.capacity / 4);
    let used = [...this.kept.values()].reduce((sum, each) => sum + each.bytes, 0);
    for (const [name, each] of this.kept) {
      if (used <= limit) return;
      if (spared.has(name)) continue;
      this.kept.delete(name);
      used -= each.bytes;
    }
  }
}

export function decoded(bytes: ArrayBuffer, description: ArrayDescription): Numbers {
  switch (description.dtype) {
    case "float16":
      return decodeFloat16(new Uint16Array(bytes), description.multiplier);
    case "float32":
      return times(new Float32Array(bytes), description.multiplier);
    case "float64":
      return new Float64Array(bytes);
    case "uint32":
      return new Uint32Array(bytes);
  }
}

function times(numbers: Float32Array, multiplier: number): Float32Array {
  return multiplier === 1 ? numbers : numbers.map((number) => number * multiplier);
}

function size(shape: number[]): number {
  return shape.reduce((product, axis) => product * axis, 1);
}
