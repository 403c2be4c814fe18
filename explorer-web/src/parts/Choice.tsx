/** Radio buttons that look like a row of buttons. */

interface Option<Value> {
  value: Value;
  label: string;
  title?: string;
}

interface Props<Value> {
  legend: string;
  name: string;
  options: Option<Value>[];
  chosen: Value;
  choose: (value: Value) => void;
}

export function Choice<Value extends string | number>({ legend, name, options, chosen, choose }: Props<Value>) {
  return (
    <fieldset class="choice">
      <legend>{legend}</legend>
      <div class="row">
        {options.map(({ value, label, title }) => (
          <label key={value} title={title} class={value === chosen ? "on" : ""}>
            <input type="radio" name={name} checked={value === chosen} onChange={() => choose(value)} />
            {label}
          </label>
        ))}
      </div>
    </fieldset>
  );
}

interface SwitchProps {
  label: string;
  on: boolean;
  turn: (on: boolean) => void;
  disabled?: boolean;
  title?: string;
}

export function Switch({ label, on, turn, disabled, title }: SwitchProps) {
  return (
    <label class="switch" title={title}>
      <input type="checkbox" checked={on} disabled={disabled} onChange={(event) => turn(event.currentTarget.checked)} />
      {label}
    </label>
  );
}
