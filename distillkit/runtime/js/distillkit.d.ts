/** A label of a classification. */
export interface Labelled { label: string; confidence: number; probabilities: Record<string, number>; logits: ArrayLike<number>; }
/** All labels of a multi-label task with a probability above 0.5. */
export interface MultiLabelled { labels: string[]; probabilities: Record<string, number>; logits: ArrayLike<number>; }
/** The score of a regression. */
export interface Scored { score: number; logits: ArrayLike<number>; }
/** A word, its place in the text, and by how much the answer's probability (or score) falls without it. */
export interface WordWeight { word: string; start: number; end: number; weight: number; }

export class Student {
  readonly labels: string[];
  readonly task: "classification" | "multi-label" | "regression";
  /** What `manifest.json` holds. */
  readonly manifest: Record<string, unknown>;
  /** Answer a text, or a pair. */
  predict(text: string, pair?: string): Labelled | MultiLabelled | Scored;
  /** Logits in the order of `labels`. */
  logits(text: string, pair?: string): ArrayLike<number>;
  /** Leave each word of a text out in turn. */
  explain(text: string): WordWeight[];
}

/** Load a bundle: an address, the bytes of a .zip, or a Blob. */
export function load(source: string | URL | ArrayBuffer | Uint8Array | Blob): Promise<Student>;
