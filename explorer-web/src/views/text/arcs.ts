/** The layout of the arc drawing: which links are drawn, and where. */

import { sees } from "../../math/attention";
import type { Coloured } from "./matrix";

export const LEAST = 0.05; // weaker links are not drawn; a share of the whole, or of the largest number
const MOST = 600; // links
const LETTER = 7.2; // pixels
const LINE = 24;

export interface Link {
  query: number;
  key: number;
  size: number; // from 0 to 1
  isNegative: boolean;
}

/** The links between different tokens, weakest first, so that the strongest are drawn on top. */
export function linksOf(matrix: Coloured): Link[] {
  const links: Link[] = [];
  for (let query = 0; query < matrix.length; query++) {
    for (let key = 0; key < matrix.length; key++) {
      if (key === query || !sees(matrix.sight, query, key)) continue;
      const value = matrix.values[query * matrix.length + key] / matrix.most;
      if (Math.abs(value) >= LEAST) links.push({ query, key, size: Math.abs(value), isNegative: value < 0 });
    }
  }
  return links.sort((one, other) => one.size - other.size).slice(-MOST);
}

/** Tokens stand in a row if they fit, else in a column. Arcs to later keys are on the other side. */
export interface ArcLayout {
  isRow: boolean;
  width: number;
  height: number;
  middles: number[]; // of the tokens, along the text
  sizes: number[]; // of the tokens, along the text
  band: [number, number]; // where the tokens stand, across the text
  depth: number; // of the arcs, on each side
  farthest: number; // tokens
}

export function arcLayout(labels: string[], width: number, links: Link[]): ArcLayout {
  const lengths = labels.map((label) => Math.max(20, [...label].length * LETTER + 10));
  const total = lengths.reduce((sum, each) => sum + each, 0);
  const isRow = total <= width;
  const sizes = isRow ? lengths : labels.map(() => LINE);
  const middles: number[] = [];
  let end = 0;
  for (const size of sizes) {
    middles.push(end + size / 2);
    end += size;
  }
  const [isBefore, isAfter] = [links.some(({ query, key }) => key < query), links.some(({ query, key }) => key > query)];
  const across = isRow ? LINE : Math.min(Math.max(...lengths), width / 3);
  const free = isRow ? 40 + total / 5 : (width - across - 16) / (isAfter ? 2 : 1);
  const depth = Math.max(20, Math.min(isRow ? 190 : 220, free));
  const begin = (isRow ? isBefore : isAfter) ? depth + 6 : 4;
  const whole = begin + across + ((isRow ? isAfter : isBefore) ? depth + 6 : 4);
  const farthest = Math.max(1, ...links.map(({ query, key }) => Math.abs(query - key)));
  const [wide, high] = isRow ? [end, whole] : [whole, end];
  return { isRow, width: wide, height: high, middles, sizes, band: [begin, begin + across], depth, farthest };
}

/** The path of a link, and its farthest point from the tokens. */
export function arcOf(layout: ArcLayout, { query, key }: Link): { path: string; apex: [number, number] } {
  const { isRow, middles, band } = layout;
  const towardsStart = isRow ? key < query : key > query; // above a row, left of a column
  const side = towardsStart ? band[0] : band[1];
  const bulge = layout.depth * Math.sqrt(Math.abs(query - key) / layout.farthest) * (towardsStart ? -1 : 1);
  const [from, to] = [middles[query], middles[key]];
  const at = (along: number, across: number) => (isRow ? [along, across] : [across, along]) as [number, number];
  const point = (along: number, across: number) => at(along, across).map((each) => each.toFixed(1)).join(" ");
  const control = side + (bulge * 4) / 3;
  const path = `M${point(from, side)}C${point(from, control)} ${point(to, control)} ${point(to, side)}`;
  return { path, apex: at((from + to) / 2, side + bulge) };
}
