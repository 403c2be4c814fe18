/** Attention, its change, the score or one term as a matrix: rows are queries, columns are keys. */

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { sees } from "../../math/attention";
import { useExplorer, useWidth } from "../../parts/hooks";
import { share, signed } from "../../parts/numbers";
import { scheme } from "../../state/scheme";
import type { Seen } from "./answer";
import { MatrixLabels } from "./MatrixLabels";
import { layoutOf, paint, type Coloured } from "./matrix";

interface Props {
  seen: Seen;
  matrix: Coloured;
  what: string; // what is drawn
  cell: [number, number];
  hover: (cell: [number, number] | null) => void;
  choose: (cell: [number, number]) => void;
}

const STEPS: Record<string, [number, number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

export function Matrix(props: Props) {
  const [holder, width] = useWidth<HTMLDivElement>();
  return (
    <div ref={holder} class="matrix">
      {width > 0 && <Drawn {...props} width={width} />}
    </div>
  );
}

function Drawn({ seen, matrix, what, cell, hover, choose, width }: Props & { width: number }) {
  const { sight, vocabulary } = useExplorer();
  const canvas = useRef<HTMLCanvasElement>(null);
  const length = seen.ids.length;
  const layout = useMemo(
    () =>
      layoutOf(
        seen.ids.map((id) => vocabulary.shown(id)),
        width,
      ),
    [seen.ids, width],
  );
  const theme = scheme.value;
  useLayoutEffect(() => {
    if (canvas.current) paint(canvas.current, matrix, theme);
  }, [matrix, theme]);
  const cellAt = (event: MouseEvent): [number, number] | null => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const key = Math.floor((event.clientX - box.left) / layout.cell);
    const query = Math.floor((event.clientY - box.top) / layout.cell);
    const inside = key >= 0 && query >= 0 && key < length && query < length;
    return inside && sees(sight, query, key) ? [query, key] : null;
  };
  const move = (event: KeyboardEvent) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const next: [number, number] = [cell[0] + step[0], cell[1] + step[1]];
    if (next[0] < 0 || next[0] >= length || next[1] < 0 || next[1] >= length) return;
    if (step[0] && !sees(sight, ...next)) next[1] = Math.min(next[1], next[0]);
    if (sees(sight, ...next)) choose(next);
  };
  const value = matrix.values[cell[0] * length + cell[1]];
  const said = `query ${vocabulary.shown(seen.ids[cell[0]])} at ${cell[0]}, key ${vocabulary.shown(seen.ids[cell[1]])} at ${cell[1]}: ${matrix.isShare ? share(value) : signed(value)}`;
  return (
    <div class="matrix-scroll">
      <div
        class="cells"
        role="application"
        tabindex={0}
        aria-roledescription="matrix"
        aria-label={`${what}, ${length} query tokens by ${length} key tokens. Use the arrow keys to move. Selected: ${said}`}
        style={{
          left: `${layout.left}px`,
          top: `${layout.top}px`,
          width: `${layout.size}px`,
          height: `${layout.size}px`,
        }}
        onPointerMove={(event) => hover(cellAt(event))}
        onPointerLeave={() => hover(null)}
        onClick={(event) => {
          const found = cellAt(event);
          if (found) choose(found);
        }}
        onKeyDown={move}
      >
        <canvas ref={canvas} aria-hidden="true" />
      </div>
      <svg aria-hidden="true" width={layout.left + layout.size + 2} height={layout.top + layout.size + 2}>
        <MatrixLabels layout={layout} cell={cell} />
      </svg>
    </div>
  );
}
