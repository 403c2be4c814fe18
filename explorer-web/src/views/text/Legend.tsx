/** The colour legend of the matrix. */

import { css, shareColour, signedColour } from "../../parts/colours";
import { brief } from "../../parts/numbers";
import { scheme, type Scheme } from "../../state/scheme";
import type { Coloured } from "./matrix";

const STEPS = 40;
const WIDTH = 200;

export function Legend({ matrix }: { matrix: Coloured }) {
  return (
    <svg class="legend" width={WIDTH + 40} height={34} role="img" aria-label={said(matrix)}>
      <LegendDrawing matrix={matrix} theme={scheme.value} />
    </svg>
  );
}

export function LegendDrawing({ matrix, theme }: { matrix: Coloured; theme: Scheme }) {
  const step = WIDTH / STEPS;
  const marks = matrix.isShare ? [0, 0.01, 0.1, 0.5, 1] : [-matrix.most, 0, matrix.most];
  const at = (value: number) => 20 + (matrix.isShare ? Math.sqrt(value) : (value / matrix.most + 1) / 2) * WIDTH;
  return (
    <g class="axes">
      {Array.from({ length: STEPS }, (_, place) => {
        const part = (place + 0.5) / STEPS;
        const colour = matrix.isShare ? shareColour(part ** 2, theme) : signedColour(2 * part - 1, theme);
        return <rect key={place} x={20 + place * step} y={2} width={step + 0.3} height={12} fill={css(colour)} />;
      })}
      <rect class="frame" x={20} y={2} width={WIDTH} height={12} />
      {marks.map((mark) => (
        <text key={mark} x={at(mark)} y={28} text-anchor="middle">
          {brief(Number(mark.toPrecision(3)))}
        </text>
      ))}
    </g>
  );
}

function said(matrix: Coloured): string {
  if (matrix.isShare) return "Colours from 0 to 1: darker means more attention (lighter in dark mode)";
  return `Colours: orange is negative, blue positive, up to ${brief(matrix.most)}`;
}
