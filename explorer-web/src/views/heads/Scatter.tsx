/** Heads as points: one column against another; each point opens its head. */

import type { HeadCards, HeadColumn } from "../../data/contract";
import { extent } from "../../math/histogram";
import { Axes } from "../../parts/Axes";
import { headName } from "../../parts/HeadPicker";
import { brief, linear, roomy, ticks } from "../../parts/numbers";
import { addressAfter, change } from "../../state/store";

const HEIGHT = 340;

interface Props {
  cards: HeadCards;
  x: HeadColumn;
  y: HeadColumn;
  width: number;
}

export function Scatter({ cards, x: across, y: up, width }: Props) {
  const points = cards.rows
    .map((row) => ({ head: Number(row.head), across: row[across.name], up: row[up.name] }))
    .filter((point): point is { head: number; across: number; up: number } => typeof point.across === "number" && typeof point.up === "number");
  const box = { left: 52, right: width - 28, top: 24, bottom: HEIGHT - 40 };
  const xRange = roomy(extent(points.map((point) => point.across)), 0.08);
  const yRange = roomy(extent(points.map((point) => point.up)), 0.08);
  const x = linear(xRange, [box.left, box.right]);
  const y = linear(yRange, [box.bottom, box.top]);
  const name = (column: HeadColumn) => column.name.replaceAll("_", " ");
  return (
    <svg class="chart" role="group" aria-label={`${points.length} heads by ${name(across)} and ${name(up)}`} width={width} height={HEIGHT}>
      <Axes {...box} x={x} y={y} xTicks={ticks(...xRange, Math.max(3, width / 110))} yTicks={ticks(...yRange, 6)} xName={name(across)} yName={name(up)} />
      {points.map((point) => (
        <a
          key={point.head}
          class="point"
          href={addressAfter({ view: "token", heads: [point.head] })}
          aria-label={`${headName(point.head)}: ${name(across)} ${brief(point.across)}, ${name(up)} ${brief(point.up)}`}
          onClick={(event: MouseEvent) => {
            event.preventDefault();
            change({ view: "token", heads: [point.head] }, true);
          }}
        >
          <circle cx={x(point.across)} cy={y(point.up)} r={6} />
          <text x={x(point.across) + 9} y={y(point.up)} dy="0.32em">
            {headName(point.head)}
          </text>
        </a>
      ))}
    </svg>
  );
}
