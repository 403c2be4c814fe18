/** Tokenize text with the model's tokenizer, in a worker started on first use. */

import { fetchJson } from "./fetching";
import { Problem } from "./problem";
import type { Answered, Asked } from "./tokenizer.worker";

export class TextTokenizer {
  private worker: Promise<Worker> | null = null;
  private readonly waiting = new Map<number, (answer: Answered) => void>();
  private asked = 0;

  constructor(
    private readonly has: boolean,
    private readonly special: boolean,
  ) {}

  /** The ids of a text; an encoder's with the special tokens that it always reads ([CLS] and [SEP]). */
  async encode(text: string): Promise<number[]> {
    if (!this.has)
      throw new Problem("This model has no tokenizer: type token ids, separated by spaces or commas.");
    this.worker ??= this.start().catch((problem: unknown) => {
      this.worker = null; // the next text tries again
      throw problem;
    });
    const whole = text.replace(/\p{Surrogate}/gu, "\uFFFD");
    return this.ask(await this.worker, { number: ++this.asked, text: whole, special: this.special && whole !== "" });
  }

  private async start(): Promise<Worker> {
    const file = await fetchJson<object>("tokenizer.json");
    const worker = new Worker(new URL("./tokenizer.worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = (event: MessageEvent<Answered>) => {
      this.waiting.get(event.data.number)?.(event.data);
      this.waiting.delete(event.data.number);
    };
    await this.ask(worker, { number: ++this.asked, file });
    return worker;
  }

  private ask(worker: Worker, asked: Asked): Promise<number[]> {
    return new Promise((resolve, reject) => {
      this.waiting.set(asked.number, (answer) => {
        if (answer.ids) resolve(answer.ids);
        else reject(new Problem(`The tokenizer can't read this (${answer.failed}). Type token ids instead.`));
      });
      worker.onerror = () => reject(new Problem("The tokenizer could not be started. Type token ids instead."));
      worker.postMessage(asked);
    });
  }
}
