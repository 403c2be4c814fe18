/** A text in one head: ids, terms, and attention with all terms and with the active ones. */

import type { Explorer } from "../../explorer";
import { sees } from "../../math/attention";
import { scoreOf, type Terms } from "../../math/terms";
import type { Table } from "../../parts/Downloads";

export interface TextAnswer {
  head: number;
  ids: number[];
  terms: Terms;
  whole: Float32Array; // attention with all terms
}

export interface Seen extends TextAnswer {
  off: string[];
  score: Float32Array; // without terms that are switched off
  attention: Float32Array;
}

export async function answerOf(
  explorer: Explorer,
  head: number,
  ids: number[],
  split: "biases" | "vocabulary",
): Promise<TextAnswer> {
  const terms = await explorer.terms(head, ids, split);
  return { head, ids, terms, whole: explorer.attention(terms) };
}

export function without(explorer: Explorer, answer: TextAnswer, off: string[]): Seen {
  const missing = off.filter((name) => answer.terms.names.includes(name));
  const attention = missing.length ? explorer.attention(answer.terms, missing) : answer.whole;
  return { ...answer, off: missing, score: scoreOf(answer.terms, missing), attention };
}

/** The numbers in the matrix, and whether they are shares or signed. */
export function shownValues(seen: Seen, show: string): { values: Float32Array; isShare: boolean } {
  if (show === "score") return { values: seen.score, isShare: false };
  if (show === "change")
    return { values: seen.attention.map((value, place) => value - seen.whole[place]), isShare: false };
  const part = seen.terms.parts[show];
  return part ? { values: part, isShare: false } : { values: seen.attention, isShare: true };
}

/** The cell selected first: the strongest attention to another token, except the first token. */
export function firstCell({ ids, attention }: Seen): [number, number] {
  const length = ids.length;
  let best: [number, number] = [length - 1, Math.max(0, length - 2)];
  for (let query = 1; query < length; query++) {
    for (let key = 1; key < length; key++) {
      const isStronger = attention[query * length + key] > attention[best[0] * length + best[1]];
      if (key !== query && isStronger) best = [query, key];
    }
  }
  return best;
}

export function mostAttended(seen: Seen, query: number): number {
  const row = seen.attention.subarray(query * seen.ids.length, (query + 1) * seen.ids.length);
  return row.reduce((best, value, key) => (value > row[best] ? key : best), 0);
}

/** Every unmasked pair with its terms, for export. */
export function textTable(explorer: Explorer, seen: Seen): Table {
  const { names, parts } = seen.terms;
  const length = seen.ids.length;
  const left = seen.off.length ? [`attention_without_${seen.off.join("_")}`] : [];
  const columns = [
    "head",
    "query_position",
    "query_token_id",
    "query_token",
    "key_position",
    "key_token_id",
    "key_token",
    ...names,
    "score",
    "attention",
    ...left,
  ];
  const total = scoreOf(seen.terms);
  const rows = [];
  for (let query = 0; query < length; query++) {
    for (let key = 0; key < length; key++) {
      if (!sees(explorer.sight, query, key)) continue;
      const place = query * length + key;
      rows.push([
        seen.head,
        query,
        seen.ids[query],
        explorer.vocabulary.text(seen.ids[query]),
        key,
        seen.ids[key],
        explorer.vocabulary.text(seen.ids[key]),
        ...names.map((name) => parts[name][place]),
        total[place],
        seen.whole[place],
        ...(left.length ? [seen.attention[place]] : []),
      ]);
    }
  }
  return { columns, rows };
}

export interface Difference {
  query: number; // token ids
  key: number;
  cells: [[number, number], [number, number]];
  shares: [number, number];
}

const LISTED = 8;

/** The most different links: cell by cell in the same text, by pair of tokens (its strongest link) in two texts. */
export function differences(one: Seen, other: Seen): Difference[] {
  const isSameText = one.ids.join() === other.ids.join();
  const [first, second] = [one, other].map((seen) => strongestLinks(seen, isSameText));
  const found: Difference[] = [];
  for (const [name, link] of first) {
    const match = second.get(name);
    if (!match) continue;
    const [query, key] = [one.ids[link.cell[0]], one.ids[link.cell[1]]];
    found.push({ query, key, cells: [link.cell, match.cell], shares: [link.share, match.share] });
  }
  const size = ({ shares }: Difference) => Math.abs(shares[1] - shares[0]);
  return found.sort((a, b) => size(b) - size(a)).slice(0, LISTED);
}

function strongestLinks({ ids, attention }: Seen, byPlace: boolean) {
  const found = new Map<string, { cell: [number, number]; share: number }>();
  for (let place = 0; place < attention.length; place++) {
    const cell: [number, number] = [Math.floor(place / ids.length), place % ids.length];
    if (!attention[place]) continue;
    const name = byPlace ? cell.join() : `${ids[cell[0]]},${ids[cell[1]]}`;
    if (attention[place] > (found.get(name)?.share ?? -1)) found.set(name, { cell, share: attention[place] });
  }
  return found;
}
