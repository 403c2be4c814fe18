/** The one state of the page, tied to the address: each change is in the bar, and Back goes back. */

import { signal } from "@preact/signals";
import type { Explorer } from "../explorer";
import { moved, parsed, written, type State } from "./address";
import { begin } from "./timing";

const PAUSE = 200; // milliseconds between two replaced addresses: browsers stop a page that does it more often

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

/** Change some of it. A step is something to go back from; the rest (typing, dragging) replaces the address. */
export function change(changed: Partial<State>, step = false): void {
  begin(changed);
  if (step && waiting !== null) replaceAddress();
  state.value = { ...state.value, ...changed };
  const address = addressAfter({});
  if (address === location.hash) return;
  if (step) history.pushState(null, "", address);
  else replaceSoon();
}

/** At once where the last time was a while ago, else after a pause. */
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

/** The address that the page would have after a change; who shows it says when it is drawn again. */
export function addressAfter(changed: Partial<State>): string {
  return written({ ...state.peek(), ...changed }, explorer.bundle);
}
