/** Browser features that the page needs. */

const NEEDED: Record<string, (scope: typeof globalThis) => boolean> = {
  "web workers": (scope) => "Worker" in scope,
  "typed arrays": (scope) => "Float32Array" in scope && "BigUint64Array" in scope,
  "the canvas": (scope) => "HTMLCanvasElement" in scope,
  fetch: (scope) => "fetch" in scope,
  "size observers": (scope) => "ResizeObserver" in scope,
  "text encoding": (scope) => "TextDecoder" in scope && "TextEncoder" in scope,
};

/** The names of missing features. */
export function missingFeatures(scope: typeof globalThis): string[] {
  return Object.keys(NEEDED).filter((name) => !NEEDED[name](scope));
}
