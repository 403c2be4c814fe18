/** A scatter plot of heads by two columns; each point opens its head. */

import type { HeadCards, HeadColumn } from "../../data/contract";
import { extent } from "../../math/histogram";
import { Axes } from "../../parts/Axes";
import { headName } from "../../parts/HeadPicker";
import { brief, linear, padded, ticks } from "../../parts/numbers";
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
    .filter(
      (point): point is { head: number; across: number; up: number } =>
        typeof point.across === "number" && typeof point.up === "number",
    );
  const box = { left: 52, right: width - 28, top: 24, bottom: HEIGHT - 40 };
  const xRange = padded(extent(points.map((point) => point.across)), 0.08);
  const yRange = padded(extent(points.map((point) => point.up)), 0.08);
  const x = linear(xRange, [box.left, box.right]);
  const y = linear(yRange, [box.bottom, box.top]);
  const labels = placed(
    points.map((point) => [x(point.across), y(point.up)]),
    width,
  );
  const name = (column: HeadColumn) => column.name.replaceAll("_", " ");
  return (
    <svg
      class="chart"
      role="group"
      aria-label={`${points.length} heads by ${name(across)} and ${name(up)}`}
      width={width}
      height={HEIGHT}
    >
      <Axes
        {...box}
        x={x}
        y={y}
        xTicks={ticks(...xRange, Math.max(3, width / 110))}
        yTicks={ticks(...yRange, 6)}
        xName={name(across)}
        yName={name(up)}
      />
      {points.map((point, place) => (
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
          {labels[place] && (
            <text x={labels[place].x} y={labels[place].y} dy="0.32em" text-anchor={labels[place].anchor}>
              {headName(point.head)}
            </text>
          )}
        </a>
      ))}
    </svg>
  );
}

interface Label {
  x: number;
  y: number;
  anchor: "start" | "middle" | "end";
}

const LABEL_WIDTH = 40;
const LABEL_HEIGHT = 13;
const SIDES: { dx: number; dy: number; anchor: Label["anchor"] }[] = [
  { dx: 9, dy: 0, anchor: "start" },
  { dx: -9, dy: 0, anchor: "end" },
  { dx: 0, dy: -14, anchor: "middle" },
  { dx: 0, dy: 15, anchor: "middle" },
];

/** Place each label on the first side where it covers nothing; omit it if there is none. */
function placed(points: number[][], width: number): (Label | null)[] {
  const taken: Box[] = points.map(([x, y]) => ({ left: x - 6, right: x + 6, top: y - 6, bottom: y + 6 }));
  return points.map(([x, y]) => {
    for (const { dx, dy, anchor } of SIDES) {
      const box = boxOf(x + dx, y + dy, anchor);
      if (box.left < 0 || box.right > width || taken.some((other) => overlaps(box, other))) continue;
      taken.push(box);
      return { x: x + dx, y: y + dy, anchor };
    }
    return null;
  });
}

interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

function boxOf(x: number, y: number, anchor: Label["anchor"]): Box {
  const left = x - { start: 0, middle: 0.5, end: 1 }[anchor] * LABEL_WIDTH;
  return { left, right: left + LABEL_WIDTH, top: y - LABEL_HEIGHT / 2, bottom: y + LABEL_HEIGHT / 2 };
}

function overlaps(one: Box, other: Box): boolean {
  return one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;
}
