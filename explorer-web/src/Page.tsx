/** The frame around the views: title, facts, navigation, footer. */

import { useLayoutEffect, useRef } from "preact/hooks";
import type { ViewName } from "./data/contract";
import { useExplorer, useReady } from "./parts/hooks";
import { whole } from "./parts/numbers";
import { VIEWS } from "./state/address";
import { scheme, toggleScheme } from "./state/scheme";
import { addressAfter, change, state } from "./state/store";
import { HeadsView } from "./views/heads/HeadsView";
import { PositionsView } from "./views/positions/PositionsView";
import { TextView } from "./views/text/TextView";
import { TokenView } from "./views/token/TokenView";

const COMPONENTS = { token: TokenView, text: TextView, positions: PositionsView, heads: HeadsView };
const TITLES: Record<ViewName, string> = { token: "Token", text: "Text", positions: "Positions", heads: "Heads" };
const POSITIONS = { learned: "learned", rotary: "rotary", alibi: "ALiBi" };

export function Header() {
  const { bundle } = useExplorer();
  const { model } = bundle;
  const isDark = scheme.value === "dark";
  return (
    <>
      <div class="head-line">
        <h1>
          The first attention layer of <bdi>{model.name}</bdi>
        </h1>
        <button type="button" id="scheme" aria-pressed={isDark} onClick={toggleScheme}>
          Dark
        </button>
      </div>
      <p class="facts">
        {model.n_heads} heads of {model.d_head} dimensions · {whole(model.vocab_size)} tokens ·{" "}
        {whole(model.n_positions)} {POSITIONS[model.positions]} positions ·{" "}
        {model.is_causal ? "causal attention" : "bidirectional attention"}
      </p>
      <nav aria-label="Views">
        {VIEWS.map((view) => (
          <a
            key={view}
            href={addressAfter({ view })}
            aria-current={state.value.view === view ? "page" : undefined}
            onClick={(event) => go(event, view)}
          >
            {TITLES[view]}
          </a>
        ))}
      </nav>
    </>
  );
}

function go(event: MouseEvent, view: ViewName): void {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  change({ view }, true);
}

export function View() {
  const { bundle } = useExplorer();
  const { view } = state.value;
  const wasShown = useRef(false);
  useLayoutEffect(() => {
    document.title = `${TITLES[view]} · ${bundle.model.name} · detoklens`;
    const main = document.querySelector("main");
    if (main) main.dataset.view = view;
    if (main && wasShown.current && document.activeElement === document.body) main.focus({ preventScroll: true });
    wasShown.current = true; // the focused element may have vanished with the old view
  }, [view]);
  const reason = bundle.views[view];
  if (reason !== null && view !== "heads") return <Unavailable view={view} reason={reason} />;
  const Shown = COMPONENTS[view];
  return <Shown key={view} />;
}

function Unavailable({ view, reason }: { view: ViewName; reason: string }) {
  useReady(true);
  return (
    <section aria-labelledby="view-title">
      <h2 id="view-title">{TITLES[view]}</h2>
      <p class="notice">{reason}</p>
    </section>
  );
}

export function Footer() {
  const { bundle } = useExplorer();
  return (
    <p>
      Made by detoklens {bundle.detoklens}, an implementation of Kamoda et al., “Weight-based Analysis of Detokenization
      in Language Models” (arXiv 2501.15754). Except for the heads' measures, this page computes all numbers from the
      layer's weights, in half precision; no data leaves it.
    </p>
  );
}
