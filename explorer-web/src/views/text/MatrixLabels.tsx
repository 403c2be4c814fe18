/** Axis names, token labels, and a frame around the selected cell. */

import type { Layout } from "./matrix";

interface Props {
  layout: Layout;
  cell: [number, number] | null;
}

export function MatrixLabels({ layout, cell }: Props) {
  const { left, top, size } = layout;
  return (
    <g class="labels">
      <text class="name" x={left} y={11}>
        key (attended to) →
      </text>
      <text
        class="name"
        transform={`translate(11 ${top + Math.min(size, 200)}) rotate(-90)`}
        x={Math.min(size, 200)}
        text-anchor="end"
      >
        ← query (attends)
      </text>
      {withRoom(layout, cell?.[0]).map((place) => (
        <Label key={`q${place}`} place={place} layout={layout} isRow isChosen={cell?.[0] === place} />
      ))}
      {withRoom(layout, cell?.[1]).map((place) => (
        <Label key={`k${place}`} place={place} layout={layout} isRow={false} isChosen={cell?.[1] === place} />
      ))}
      <rect class="frame" x={left} y={top} width={size} height={size} />
      {cell && (
        <rect
          class="cell-frame"
          x={left + cell[1] * layout.cell}
          y={top + cell[0] * layout.cell}
          width={layout.cell}
          height={layout.cell}
        />
      )}
    </g>
  );
}

/** Positions whose labels fit, always including the selected one. */
function withRoom(layout: Layout, chosen: number | undefined): number[] {
  const places = layout.labels.map((_, place) => place);
  return places.filter((place) => {
    if (place === chosen) return true;
    const isCrowded = chosen !== undefined && Math.abs(chosen - place) < layout.every;
    return place % layout.every === 0 && !isCrowded;
  });
}

/** The label of a row or column. */
function Label({
  place,
  layout,
  isRow,
  isChosen,
}: {
  place: number;
  layout: Layout;
  isRow: boolean;
  isChosen: boolean;
}) {
  const middle = (place + 0.5) * layout.cell;
  const at = isRow
    ? `translate(${layout.left - 5} ${layout.top + middle})`
    : `translate(${layout.left + middle} ${layout.top - 5}) rotate(-90)`;
  return (
    <text
      class={`token ${isChosen ? "chosen-label" : ""}`}
      transform={at}
      dy="0.32em"
      text-anchor={isRow ? "end" : "start"}
    >
      {layout.labels[place]}
    </text>
  );
}
