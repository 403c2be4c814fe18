/** The position terms of one head from one query position. */

import type { SplitName } from "../../data/contract";
import type { Explorer } from "../../explorer";
import type { PositionCurves } from "../../math/positions";
import type { Table } from "../../parts/Downloads";

const FARTHEST = 4096; // offsets of the kernel in the chart

export interface PositionAnswer {
  head: number;
  query: number;
  normed: PositionCurves;
  undivided: PositionCurves | null; // null without a division
  kernel: { first: number; values: Float64Array } | null; // by offset
}

export async function positionsOf(
  explorer: Explorer,
  head: number,
  query: number,
  split: SplitName,
): Promise<PositionAnswer> {
  const isLearned = explorer.bundle.model.positions === "learned";
  return {
    head,
    query,
    normed: await explorer.positions(head, query, true, split),
    undivided: isLearned ? await explorer.positions(head, query, false, split) : null,
    kernel: isLearned ? null : await kernelOf(explorer, head, split),
  };
}

/** The kernel at all offsets, or at the nearest ones. */
async function kernelOf(
  explorer: Explorer,
  head: number,
  split: SplitName,
): Promise<{ first: number; values: Float64Array }> {
  const { model } = explorer.bundle;
  const kernel = await explorer.kernel(head, split);
  const reach = Math.min(model.n_positions, model.window ?? Infinity, FARTHEST);
  const first = model.is_causal ? 0 : 1 - reach;
  return { first, values: Float64Array.from({ length: reach - first }, (_, place) => kernel(first + place)) };
}

export function positionTable(answer: PositionAnswer): Table {
  const { kernel, normed, undivided } = answer;
  if (kernel) {
    const columns = ["head", "query_position", "key_position", "offset", "kernel", "attention"];
    const rows = Array.from(normed.sum, (value, place) => {
      const key = normed.first + place;
      return [answer.head, answer.query, key, answer.query - key, value, normed.attention[place]];
    });
    return { columns, rows };
  }
  const columns = ["head", "query_position", "key_position", "layer_norm", "p", "pp", "p+pp", "attention"];
  return {
    columns,
    rows: [...learnedRows(answer, normed, true), ...(undivided ? learnedRows(answer, undivided, false) : [])],
  };
}

function learnedRows(answer: PositionAnswer, curves: PositionCurves, isNormed: boolean) {
  return Array.from(curves.sum, (sum, place) => [
    answer.head,
    answer.query,
    curves.first + place,
    isNormed,
    curves.p?.[place] ?? null,
    curves.pp?.[place] ?? null,
    sum,
    curves.attention[place],
  ]);
}
