/** The colours and layout of the matrix, on the canvas and for export. */

import { sees, type Sight } from "../../math/attention";
import { extent } from "../../math/histogram";
import { shareColour, signedColour, unseenColour, type Colour } from "../../parts/colours";
import { share, signed } from "../../parts/numbers";
import type { Scheme } from "../../state/scheme";
import type { Vocabulary } from "../../data/vocabulary";
import type { Seen } from "./answer";

export interface Coloured {
  length: number;
  values: Float32Array;
  isShare: boolean;
  most: number; // the largest absolute value of an unmasked cell
  sight: Sight;
}

export function coloured(values: Float32Array, length: number, isShare: boolean, sight: Sight): Coloured {
  if (isShare) return { length, values, isShare, most: 1, sight };
  const seen = values.filter((_, place) => sees(sight, Math.floor(place / length), place % length));
  const [low, high] = extent(seen);
  return { length, values, isShare, most: Math.max(Math.abs(low), Math.abs(high)) || 1, sight };
}

export function cellColour(matrix: Coloured, query: number, key: number, scheme: Scheme): Colour {
  if (!sees(matrix.sight, query, key)) return unseenColour(scheme);
  const value = matrix.values[query * matrix.length + key];
  return matrix.isShare ? shareColour(value, scheme) : signedColour(value / matrix.most, scheme);
}

/** One pixel per cell; the page scales it. */
export function paint(canvas: HTMLCanvasElement, matrix: Coloured, scheme: Scheme): void {
  const { length } = matrix;
  canvas.width = length;
  canvas.height = length;
  const context = canvas.getContext("2d");
  if (!context) return;
  const image = context.createImageData(length, length);
  for (let query = 0, place = 0; query < length; query++) {
    for (let key = 0; key < length; key++, place += 4) {
      const [red, green, blue] = cellColour(matrix, query, key, scheme);
      image.data[place] = red;
      image.data[place + 1] = green;
      image.data[place + 2] = blue;
      image.data[place + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
}

export interface Layout {
  labels: string[]; // one per token, truncated to fit
  left: number; // of the cells
  top: number;
  cell: number; // size of a cell
  size: number; // of all cells together
  every: number; // every n-th label is shown
}

const LINE = 12; // pixels of a line of labels
const LETTER = 7; // pixels of a letter
const AXIS_NAME = 24;

/** The layout for these token labels. */
export function layoutOf(shown: string[], width: number): Layout {
  const labels = shown.map((text) => cut(text, width < 520 ? 9 : 14));
  const labelWidth = AXIS_NAME + 8 + LETTER * Math.max(2, ...labels.map((label) => [...label].length));
  const cell = Math.max(2, Math.min(30, (width - labelWidth - 4) / shown.length));
  return {
    labels,
    left: labelWidth,
    top: labelWidth,
    cell,
    size: cell * shown.length,
    every: Math.max(1, Math.ceil(LINE / cell)),
  };
}

export function cut(text: string, longest: number): string {
  const characters = [...text];
  return characters.length <= longest ? text : `${characters.slice(0, longest - 1).join("")}…`;
}

const STEPS: Record<string, [number, number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

/** The cell that an arrow key leads to, if it is unmasked: up and down change the query, left and right the key. */
export function stepped(cell: [number, number], key: string, length: number, sight: Sight): [number, number] | null {
  const step = STEPS[key];
  if (!step) return null;
  const next: [number, number] = [cell[0] + step[0], cell[1] + step[1]];
  if (next[0] < 0 || next[0] >= length || next[1] < 0 || next[1] >= length) return null;
  if (step[0] && !sees(sight, ...next)) next[1] = Math.min(next[1], next[0]);
  return sees(sight, ...next) ? next : null;
}

/** A cell in words. */
export function cellText(vocabulary: Vocabulary, seen: Seen, matrix: Coloured, [query, key]: [number, number]): string {
  const value = matrix.values[query * seen.ids.length + key];
  const token = (place: number) => `${vocabulary.shown(seen.ids[place])} at ${place}`;
  return `query ${token(query)}, key ${token(key)}: ${matrix.isShare ? share(value) : signed(value)}`;
}
