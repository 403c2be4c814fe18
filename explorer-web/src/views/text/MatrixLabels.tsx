/** What stands beside the cells: names of the axes, tokens, a frame around the chosen cell. */

import { useExplorer } from "../../parts/hooks";
import type { Layout } from "./matrix";

const LONGEST = 14;

interface Props {
  ids: number[];
  layout: Layout;
  cell: [number, number] | null;
}

export function MatrixLabels({ ids, layout, cell }: Props) {
  const { left, top, size } = layout;
  return (
    <g class="labels">
      <text class="name" x={left} y={11}>
        key: is attended to →
      </text>
      <text class="name" transform={`translate(11 ${top + Math.min(size, 200)}) rotate(-90)`} x={Math.min(size, 200)} text-anchor="end">
        ← query: attends
      </text>
      {ids.map((id, place) => (
        <Label key={`q${place}`} id={id} place={place} layout={layout} isRow isChosen={cell?.[0] === place} chosen={cell?.[0]} />
      ))}
      {ids.map((id, place) => (
        <Label key={`k${place}`} id={id} place={place} layout={layout} isRow={false} isChosen={cell?.[1] === place} chosen={cell?.[1]} />
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

interface LabelProps {
  id: number;
  place: number;
  layout: Layout;
  isRow: boolean;
  isChosen: boolean;
  chosen: number | undefined;
}

/** A token beside its row or above its column; where there is no room for all, some, and always the chosen one. */
function Label({ id, place, layout, isRow, isChosen, chosen }: LabelProps) {
  const { vocabulary } = useExplorer();
  const isCrowded = chosen !== undefined && !isChosen && Math.abs(chosen - place) < layout.every;
  if (!isChosen && (place % layout.every !== 0 || isCrowded)) return null;
  const middle = (place + 0.5) * layout.cell;
  const at = isRow ? `translate(${layout.left - 5} ${layout.top + middle})` : `translate(${layout.left + middle} ${layout.top - 5}) rotate(-90)`;
  return (
    <text class={`token ${isChosen ? "chosen-label" : ""}`} transform={at} dy="0.32em" text-anchor={isRow ? "end" : "start"}>
      {cut(vocabulary.shown(id), layout.left < 100 ? 9 : LONGEST)}
    </text>
  );
}

function cut(text: string, longest: number): string {
  const characters = [...text];
  return characters.length <= longest ? text : `${characters.slice(0, longest - 1).join("")}…`;
}
