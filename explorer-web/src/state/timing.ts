/** How long does a change take, from the input until it is painted? Read by the benchmark. */

import type { State } from "./address";

export const timings: Record<"first_view" | "token" | "head" | "text", number | null> = {
  first_view: null,
  token: null,
  head: null,
  text: null,
};

type Kind = "token" | "head" | "text";
const TOKEN = ["token", "way", "centred", "offset", "split", "top"];
const TEXT = ["text", "ids", "other", "draw", "bos", "off", "show"];

let running: { kind: Kind; since: number } | null = null;
let first = true;

export function begin(changed: Partial<State>): void {
  const names = Object.keys(changed);
  const kind = names.includes("heads") ? "head" : names.some((name) => TEXT.includes(name)) ? "text" : null;
  const found: Kind | null = kind ?? (names.some((name) => TOKEN.includes(name)) ? "token" : null);
  running = found && { kind: found, since: performance.now() };
}

/** The view is drawn: what began ends with the next paint. */
export function drawn(): Promise<void> {
  const ended = running;
  running = null;
  const wasFirst = first;
  first = false;
  return new Promise((resolve) => {
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {
        if (wasFirst) timings.first_view = performance.now();
        else if (ended) timings[ended.kind] = performance.now() - ended.since;
        resolve();
      };
      channel.port2.postMessage(null);
    });
  });
}
