/** Head cards for export: the scatter plot and the table below it. */

import type { Cell, HeadCards, HeadColumn } from "../../data/contract";
import { headName } from "../../parts/HeadPicker";
import { Titled } from "../../parts/Titled";
import { shownCell } from "./cards";
import { Scatter } from "./Scatter";

const WIDTH = 760;
const LINE = 18;

interface Props {
  cards: HeadCards;
  axes: [HeadColumn, HeadColumn] | null;
  columns: HeadColumn[];
  rows: Record<string, Cell>[];
  title: string;
}

export function CardsDrawing({ cards, axes, columns, rows, title }: Props) {
  const step = WIDTH / columns.length;
  return (
    <Titled title={title} width={WIDTH}>
      {axes && <Scatter cards={cards} x={axes[0]} y={axes[1]} width={WIDTH} />}
      <svg width={WIDTH} height={LINE * (rows.length + 1)}>
        {columns.map(({ name }, column) => (
          <g key={name} transform={`translate(${column * step} 0)`}>
            <text class="name" y={LINE - 5}>
              {name.replaceAll("_", " ")}
            </text>
            {rows.map((row, place) => (
              <text key={place} y={(place + 2) * LINE - 5}>
                {name === "head" ? headName(Number(row.head)) : shownCell(row[name])}
              </text>
            ))}
          </g>
        ))}
      </svg>
    </Titled>
  );
}
