/** Shared hooks: the explorer, asynchronous answers, the available width. */

import { createContext } from "preact";
import { useContext, useLayoutEffect, useRef, useState } from "preact/hooks";
import { sentenceOf } from "../data/problem";
import type { Explorer } from "../explorer";
import { drawn } from "../state/timing";

export const ExplorerContext = createContext<Explorer>(null as unknown as Explorer);

export function useExplorer(): Explorer {
  return useContext(ExplorerContext);
}

export interface Answer<Value> {
  value: Value | null; // the latest; the previous one while waiting
  problem: string | null;
  waiting: boolean;
}

/** Ask again whenever an input changes; outdated answers are dropped. */
export function useAnswer<Value>(ask: () => Promise<Value>, inputs: unknown[]): Answer<Value> {
  const [answer, setAnswer] = useState<Answer<Value> & { of: string }>({
    value: null,
    problem: null,
    waiting: true,
    of: "",
  });
  const of = JSON.stringify(inputs);
  const latest = useRef(of);
  latest.current = of;
  useLayoutEffect(() => {
    const settle = (found: Partial<Answer<Value>>) => {
      if (latest.current !== of) return;
      setAnswer((before) => ({ ...before, problem: null, ...found, waiting: false, of }));
    };
    new Promise<Value>((resolve) => resolve(ask())).then(
      (value) => settle({ value }),
      (error: unknown) => settle({ problem: sentenceOf(error) }),
    );
  }, [of]);
  return answer.of === of ? answer : { ...answer, waiting: true };
}

let onFirstView: () => void;
let onFailure: (error: unknown) => void;
/** Resolves when the first view is drawn with its data. */
export const firstView = new Promise<void>((resolve, reject) => {
  onFirstView = resolve;
  onFailure = reject;
});
firstView.catch(() => undefined); // a rejection is not an error if nothing awaits it

export function failFirstView(error: unknown): void {
  onFailure(error);
}

/** Set data-ready on <main>: whether the view is drawn with its data. */
export function useReady(isReady: boolean): void {
  useLayoutEffect(() => {
    const main = document.querySelector("main");
    if (main) main.dataset.ready = String(isReady);
    if (isReady) void drawn().then(() => onFirstView());
  });
}

/** The current width of an element. */
export function useWidth<Kind extends HTMLElement>(): [{ current: Kind | null }, number] {
  const element = useRef<Kind>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    if (!element.current) return;
    const measure = () => setWidth(Math.floor(element.current?.clientWidth ?? 0));
    const observer = new ResizeObserver(measure);
    observer.observe(element.current);
    measure();
    return () => observer.disconnect();
  }, []);
  return [element, width];
}
