/** Attention, its change, the score or one term as a matrix: rows are queries, columns are keys. */

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { sees } from "../../math/attention";
import { useExplorer, useWidth } from "../../parts/hooks";
import { scheme } from "../../state/scheme";
import type { Seen } from "./answer";
import { MatrixLabels } from "./MatrixLabels";
import { cellText, layoutOf, paint, stepped, type Coloured } from "./matrix";

interface Props {
  seen: Seen;
  matrix: Coloured;
  what: string; // what is drawn
  cell: [number, number];
  hover: (cell: [number, number] | null) => void;
  choose: (cell: [number, number]) => void;
}

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
    const next = stepped(cell, event.key, length, sight);
    if (!next) return;
    event.preventDefault();
    choose(next);
  };
  const said = cellText(vocabulary, seen, matrix, cell);
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
