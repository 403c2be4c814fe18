/** The one state of the page, tied to the address: each change is in the bar, and Back goes back. */

import { signal } from "@preact/signals";
import type { Explorer } from "../explorer";
import { moved, parsed, written, type State } from "./address";
import { begin } from "./timing";

export const state = signal<State>(null as unknown as State);
let explorer: Explorer;

export function connect(to: Explorer): void {
  explorer = to;
  state.value = parsed(location.hash, to.bundle);
  window.addEventListener("popstate", () => {
    state.value = moved(state.peek(), location.hash, to.bundle);
  });
}

/** Change some of it. A step is something to go back from; the rest (typing, dragging) replaces the address. */
export function change(changed: Partial<State>, step = false): void {
  begin(changed);
  state.value = { ...state.value, ...changed };
  const address = written(state.value, explorer.bundle);
  if (address === location.hash) return;
  if (step) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

/** The address that the page would have after a change; who shows it says when it is drawn again. */
export function addressAfter(changed: Partial<State>): string {
  return written({ ...state.peek(), ...changed }, explorer.bundle);
}
