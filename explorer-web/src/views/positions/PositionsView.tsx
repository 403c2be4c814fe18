/** Position terms and the attention they would give alone, from a query position that can be dragged. */

import { fileName } from "../../exports/download";
import { Choice, Switch } from "../../parts/Choice";
import { Downloads } from "../../parts/Downloads";
import { HeadPicker, headName } from "../../parts/HeadPicker";
import { CurveNames } from "../../parts/LineChart";
import { Titled } from "../../parts/Titled";
import { useAnswer, useExplorer, useReady, useWidth } from "../../parts/hooks";
import { share } from "../../parts/numbers";
import { change, state } from "../../state/store";
import { AttentionChart, curvesOf, TermChart } from "./charts";
import { positionsOf, positionTable, type PositionAnswer } from "./curves";

export function PositionsView() {
  const explorer = useExplorer();
  const { bundle } = explorer;
  const asked = state.value;
  const split = asked.split ?? bundle.splits[0].name;
  const head = asked.heads[0];
  const answer = useAnswer(() => positionsOf(explorer, head, asked.query, split), [head, asked.query, split]);
  useReady(!answer.waiting);
  const hasKernel =
    bundle.model.positions === "learned" || explorer.split(split).terms.some((term) => term.name === "p");
  return (
    <section aria-labelledby="view-title">
      <h2 id="view-title">Position terms</h2>
      <p class="note">The part of the score that depends on positions only, and the attention it would give alone.</p>
      <PositionControls split={split} />
      {answer.problem && <p class="problem">{answer.problem}</p>}
      {!hasKernel && (
        <p class="notice">
          Queries and keys of this model have no biases, so nothing depends on the position alone. Split off the
          vocabulary's mean to see the kernel.
        </p>
      )}
      {answer.value && hasKernel && <PositionResult answer={answer.value} />}
      {bundle.reasons.layer_norm && <p class="note">No “without LN”: {bundle.reasons.layer_norm}</p>}
    </section>
  );
}

function PositionControls({ split }: { split: string }) {
  const { bundle } = useExplorer();
  const { query, norm } = state.value;
  const last = bundle.model.n_positions - 1;
  const turn = (value: number) => {
    if (Number.isInteger(value) && value >= 0 && value <= last) change({ query: value });
  };
  return (
    <div class="controls">
      <HeadPicker />
      <div class="field wide">
        <label for="query-range">Query position</label>
        <div class="row">
          <input
            id="query-range"
            type="range"
            min={0}
            max={last}
            value={query}
            onInput={(event) => turn(event.currentTarget.valueAsNumber)}
          />
          <input
            type="number"
            aria-label="Query position as a number"
            min={0}
            max={last}
            value={query}
            onInput={(event) => turn(event.currentTarget.valueAsNumber)}
          />
        </div>
      </div>
      {!bundle.reasons.layer_norm && (
        <Choice
          legend="LayerNorm"
          name="ln"
          options={[
            { value: "with", label: "with LN", title: "divided by σ, averaged over the vocabulary" },
            { value: "without", label: "without LN", title: "not divided" },
          ]}
          chosen={norm ? "with" : "without"}
          choose={(value) => change({ norm: value === "with" })}
        />
      )}
      {bundle.splits.length > 1 && bundle.model.positions === "rotary" && (
        <Switch
          label="split off the vocabulary's mean"
          title={bundle.splits.find((each) => each.name === "vocabulary")?.meaning}
          on={split === "vocabulary"}
          turn={(on) => change({ split: on ? "vocabulary" : "biases" }, true)}
        />
      )}
    </div>
  );
}

function PositionResult({ answer }: { answer: PositionAnswer }) {
  const explorer = useExplorer();
  const { norm } = state.value;
  const [holder, width] = useWidth<HTMLDivElement>();
  const drag = (query: number) => change({ query });
  const name = headName(answer.head);
  return (
    <div ref={holder}>
      {width > 0 && (
        <>
          <figure>
            <figcaption>
              <strong>
                {answer.kernel
                  ? `${name}: position kernel by offset.`
                  : `${name}: position terms${norm ? "" : ", without LN"}.`}
              </strong>{" "}
              {answer.kernel
                ? "What the offset i − j adds to the score."
                : "Drag the line or the slider to move the query."}
            </figcaption>
            <CurveNames curves={curvesOf(answer, norm)} />
            <TermChart answer={answer} norm={norm} width={width} drag={answer.kernel ? undefined : drag} />
          </figure>
          <figure>
            <figcaption>
              <strong>{name}: attention by position alone.</strong> {peak(answer, norm)}
            </figcaption>
            <AttentionChart answer={answer} norm={norm} width={width} drag={drag} />
          </figure>
          <Downloads
            name={fileName(explorer.bundle.model.name, "positions", name, answer.query)}
            title={`${explorer.bundle.model.name} ${name}: positions alone, from position ${answer.query}`}
            picture={() => (
              <Titled
                title={`${name}: positions alone${norm ? "" : ", without LN"}`}
                width={760}
                curves={curvesOf(answer, norm)}
              >
                <TermChart answer={answer} norm={norm} width={760} />
                <AttentionChart answer={answer} norm={norm} width={760} />
              </Titled>
            )}
            tables={{ CSV: () => positionTable(answer) }}
          />
        </>
      )}
    </div>
  );
}

/** The key with the largest attention. */
function peak(answer: PositionAnswer, norm: boolean): string {
  const { first, attention } = norm || !answer.undivided ? answer.normed : answer.undivided;
  const best = attention.reduce((most, value, place) => (value > attention[most] ? place : most), 0);
  return `From position ${answer.query}, key ${first + best} receives the most attention (${share(attention[best])}).`;
}
