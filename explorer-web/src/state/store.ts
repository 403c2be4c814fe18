/** The state of the page, kept in sync with the address and the history. */

import { signal } from "@preact/signals";
import type { Explorer } from "../explorer";
import { moved, parsed, written, type State } from "./address";
import { begin } from "./timing";

const PAUSE = 200; // milliseconds between address updates: browsers throttle more frequent ones

export const state = signal<State>(null as unknown as State);
let explorer: Pick<Explorer, "bundle">;
let replacedAt = -Infinity;
let waiting: ReturnType<typeof setTimeout> | null = null;

export function connect(to: Pick<Explorer, "bundle">): void {
  explorer = to;
  state.value = parsed(location.hash, to.bundle);
  window.addEventListener("popstate", () => {
    state.value = moved(state.peek(), location.hash, to.bundle);
  });
}

/** Change the state. A step adds a history entry; typing and dragging replace the address. */
export function change(changed: Partial<State>, step = false): void {
  begin(changed);
  if (step && waiting !== null) replaceAddress();
  state.value = { ...state.value, ...changed };
  const address = addressAfter({});
  if (address === location.hash) return;
  if (step) history.pushState(null, "", address);
  else replaceSoon();
}

/** Update at once, or after a pause if the last update was recent. */
function replaceSoon(): void {
  if (waiting !== null) return;
  const pause = replacedAt + PAUSE - performance.now();
  if (pause <= 0) replaceAddress();
  else waiting = setTimeout(replaceAddress, pause);
}

function replaceAddress(): void {
  forget();
  replacedAt = performance.now();
  history.replaceState(null, "", addressAfter({}));
}

function forget(): void {
  if (waiting !== null) clearTimeout(waiting);
  waiting = null;
}

/** The address after a change. */
export function addressAfter(changed: Partial<State>): string {
  return written({ ...state.peek(), ...changed }, explorer.bundle);
}
