/** Colours for numbers: blue is positive, orange negative, as everywhere in the package. */

import type { Scheme } from "../state/scheme";

export type Colour = [number, number, number];

const MORE: Record<Scheme, Colour[]> = {
  light: [
    [255, 255, 255],
    [166, 206, 236],
    [0, 114, 178],
    [6, 43, 88],
  ],
  dark: [
    [27, 32, 38],
    [24, 84, 130],
    [86, 180, 233],
    [226, 243, 255],
  ],
};
const LESS: Record<Scheme, Colour[]> = {
  light: [
    [255, 255, 255],
    [250, 200, 160],
    [213, 94, 0],
    [96, 36, 0],
  ],
  dark: [
    [27, 32, 38],
    [134, 66, 12],
    [240, 140, 60],
    [255, 236, 216],
  ],
};
const UNSEEN: Record<Scheme, Colour> = { light: [240, 242, 244], dark: [20, 23, 26] };

const LEVELS = 255; // on each side of nothing
const palettes = new Map<Scheme, Colour[]>();

/** The colours from −1 to 1, computed once. */
function palette(scheme: Scheme): Colour[] {
  const made = palettes.get(scheme);
  if (made) return made;
  const colours = Array.from({ length: 2 * LEVELS + 1 }, (_, place) => {
    const value = place / LEVELS - 1;
    return along(value < 0 ? LESS[scheme] : MORE[scheme], Math.abs(value));
  });
  palettes.set(scheme, colours);
  return colours;
}

/** A share from 0 to 1; its square root is drawn, so that 0.01 is visible. */
export function shareColour(share: number, scheme: Scheme): Colour {
  return signedColour(Math.sqrt(Math.max(0, share)), scheme);
}

/** A signed number from −1 to 1. */
export function signedColour(value: number, scheme: Scheme): Colour {
  const kept = value > 1 ? 1 : value < -1 ? -1 : value || 0;
  return palette(scheme)[Math.round((kept + 1) * LEVELS)];
}

export function unseenColour(scheme: Scheme): Colour {
  return UNSEEN[scheme];
}

function along(stops: Colour[], share: number): Colour {
  if (!(share > 0)) return stops[0];
  const place = Math.min(1, share) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(place));
  const [from, to] = [stops[low], stops[low + 1]];
  return from.map((value, each) => Math.round(value + (to[each] - value) * (place - low))) as Colour;
}

export function css([red, green, blue]: Colour): string {
  return `rgb(${red} ${green} ${blue})`;
}

/** Hexadecimal notation, for SVG files. */
export function hex(colour: Colour): string {
  return `#${colour.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** Black or white, whichever is readable on a colour. */
export function inkOn([red, green, blue]: Colour): string {
  const linear = [red, green, blue].map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return luminance > 0.179 ? "#000000" : "#ffffff";
}
