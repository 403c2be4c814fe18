/** A title above an exported drawing. */

import type { ComponentChildren } from "preact";

interface Props {
  title: string;
  width: number;
  curves?: { name: string; kind: string }[];
  children: ComponentChildren;
}

const CURVE_NAME = 96; // pixels for a line and its name

export function Titled({ title, width, curves = [], children }: Props) {
  return (
    <>
      <svg width={width} height={curves.length ? 36 : 18}>
        <text class="title" x={0} y={14}>
          {title}
        </text>
        {curves.map(({ name, kind }, place) => (
          <g key={name} transform={`translate(${place * CURVE_NAME} 30)`}>
            <path class={`curve ${kind}`} d="M0 -4H24" />
            <text x={30}>{name}</text>
          </g>
        ))}
      </svg>
      {children}
    </>
  );
}
