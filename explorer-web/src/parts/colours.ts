/** Which colour stands for a number? Blue is more, orange is less than nothing, as everywhere in the package. */

import type { Scheme } from "../state/scheme";

export type Colour = [number, number, number];

const MORE: Record<Scheme, Colour[]> = {
  light: [[255, 255, 255], [166, 206, 236], [0, 114, 178], [6, 43, 88]],
  dark: [[27, 32, 38], [24, 84, 130], [86, 180, 233], [226, 243, 255]],
};
const LESS: Record<Scheme, Colour[]> = {
  light: [[255, 255, 255], [250, 200, 160], [213, 94, 0], [96, 36, 0]],
  dark: [[27, 32, 38], [134, 66, 12], [240, 140, 60], [255, 236, 216]],
};
const UNSEEN: Record<Scheme, Colour> = { light: [240, 242, 244], dark: [20, 23, 26] };

/** A share from 0 to 1; its root is drawn, so that a hundredth can be seen. */
export function shareColour(share: number, scheme: Scheme): Colour {
  return along(MORE[scheme], Math.sqrt(Math.max(0, share)));
}

/** A signed number from −1 to 1. */
export function signedColour(value: number, scheme: Scheme): Colour {
  return along(value < 0 ? LESS[scheme] : MORE[scheme], Math.abs(value));
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

/** As drawing programs write it. */
export function hex(colour: Colour): string {
  return `#${colour.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** Black or white, whichever can be read on a colour. */
export function inkOn([red, green, blue]: Colour): string {
  const linear = [red, green, blue].map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return luminance > 0.179 ? "#000000" : "#ffffff";
}
