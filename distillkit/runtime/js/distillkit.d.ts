/** Of every answer: the logits, and with `reject` whether the text is unlike the training text. Then the answer is null. */
interface Answer { logits: ArrayLike<number>; rejected?: boolean; }
/** A label of a classification; with `coverage` also a set of labels. */
export interface Labelled extends Answer { label: string | null; labels?: string[] | null; confidence: number; probabilities: Record<string, number>; }
/** All labels of a multi-label task with a probability above 0.5. */
export interface MultiLabelled extends Answer { labels: string[] | null; probabilities: Record<string, number>; }
/** The score of a regression. */
export interface Scored extends Answer { score: number | null; }
/** A word, its place in the text, and by how much the answer's probability (or score) falls without it. */
export interface WordWeight { word: string; start: number; end: number; weight: number; }

export class Student {
  readonly labels: string[];
  readonly task: "classification" | "multi-label" | "regression";
  /** What `manifest.json` holds. */
  readonly manifest: Record<string, unknown>;
  /** Answer a text, or a pair. */
  predict(text: string, pair?: string, options?: { reject?: boolean; coverage?: number }): Labelled | MultiLabelled | Scored;
  /** Logits in the order of `labels`. */
  logits(text: string, pair?: string): ArrayLike<number>;
  /** Leave each word of a text out in turn. */
  explain(text: string): WordWeight[];
}

/** Load a bundle: an address, the bytes of a .zip, or a Blob. */
export function load(source: string | URL | ArrayBuffer | Uint8Array | Blob): Promise<Student>;
