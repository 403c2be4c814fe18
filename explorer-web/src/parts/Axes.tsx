/** The axes of a chart: line, ticks, grid, names. */

import { tickText, type Scale } from "./numbers";

interface Props {
  left: number;
  right: number;
  top: number;
  bottom: number;
  x: Scale;
  y: Scale;
  xTicks: number[];
  yTicks: number[];
  xName: string;
  yName: string;
}

export function Axes({ left, right, top, bottom, x, y, xTicks, yTicks, xName, yName }: Props) {
  return (
    <g class="axes">
      {yTicks.map((tick) => (
        <g key={`y${tick}`}>
          <line class="grid" x1={left} x2={right} y1={y(tick)} y2={y(tick)} />
          <text x={left - 6} y={y(tick)} dy="0.32em" text-anchor="end">
            {tickText(tick)}
          </text>
        </g>
      ))}
      {xTicks.map((tick) => (
        <g key={`x${tick}`}>
          <line class="tick" x1={x(tick)} x2={x(tick)} y1={bottom} y2={bottom + 4} />
          <text x={x(tick)} y={bottom + 16} text-anchor="middle">
            {tickText(tick)}
          </text>
        </g>
      ))}
      <line class="axis" x1={left} x2={right} y1={bottom} y2={bottom} />
      <text class="name" x={right} y={bottom + 32} text-anchor="end">
        {xName}
      </text>
      <text class="name" x={left} y={top - 8} text-anchor="start">
        {yName}
      </text>
    </g>
  );
}
