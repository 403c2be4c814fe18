/** Entry point: check the browser, read the bundle, show the view named by the address. */

import { render } from "preact";
import { fetchBundle } from "./data/fetching";
import { Problem, sentenceOf } from "./data/problem";
import { Explorer } from "./explorer";
import { missingFeatures } from "./features";
import { Footer, Header, View } from "./Page";
import { ExplorerContext, failFirstView } from "./parts/hooks";
import { startScheme } from "./state/scheme";
import { connect } from "./state/store";
import { expose, exposeReady } from "./testing";

async function start(): Promise<void> {
  startScheme();
  exposeReady();
  const missing = missingFeatures(globalThis);
  if (missing.length) {
    throw new Problem(
      `This browser lacks ${missing.join(" and ")}, which the explorer needs. Use a current browser.`,
    );
  }
  const explorer = await Explorer.of(await fetchBundle());
  expose(explorer);
  connect(explorer);
  show("top", explorer, <Header />);
  show("view", explorer, <View />);
  show("end", explorer, <Footer />);
}

function show(id: string, explorer: Explorer, content: preact.ComponentChildren): void {
  const element = document.getElementById(id) as HTMLElement;
  element.replaceChildren();
  render(<ExplorerContext.Provider value={explorer}>{content}</ExplorerContext.Provider>, element);
}

function tell(error: unknown): void {
  failFirstView(error);
  const problem =
    document.getElementById("problem") ?? document.querySelector("main")?.appendChild(document.createElement("p"));
  if (!problem) return;
  problem.id = "problem";
  problem.className = "problem now";
  problem.textContent = sentenceOf(error);
}

/** The part of the address after # is the state, so the link must not change it. */
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("view")?.focus();
});

start().catch(tell);
