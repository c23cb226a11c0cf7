// Answers of a distillkit bundle in a browser or in Node, without dependencies.
//
//   import { load } from "./distillkit.js";
//   const student = await load("bundle.zip");
//   student.predict("I would go again tomorrow.");
//
// From top to bottom: the student, its tokenizer, its graph, the graph's operators, the files.

/** Load a bundle: an address, the bytes of a .zip, or a Blob. */
export async function load(source) {
  const files = await unzip(await bytesOf(source));
  for (const name of ["manifest.json", "tokenizer.json"]) {
    if (!files[name]) throw new Error(`no ${name}: expected a .zip that distillkit export wrote`);
  }
  return new Student(files);
}

export class Student {
  constructor(files) {
    const json = (name) => JSON.parse(new TextDecoder().decode(files[name]));
    this.manifest = json("manifest.json");
    if (this.manifest.format !== 1) throw new Error(`a bundle of format ${this.manifest.format}: expected 1`);
    this.labels = this.manifest.labels;
    this.task = this.manifest.task;
    this.tokenizer = new Tokenizer(json("tokenizer.json"), this.manifest.max_tokens);
    const names = this.manifest.pairs ? ["encoder.onnx", "head.onnx"] : ["model.onnx"];
    this.graphs = names.map((name) => new Graph(files[name]));
    if (!this.graphs[0].inputs.includes("lengths")) {
      throw new Error("a transformer: this runtime answers for static, textcnn and bilstm students");
    }
  }

  /** Return the logits of a text, or of a pair, in the order of `labels`. */
  logits(text, pair) {
    if (Boolean(this.manifest.pairs) !== (pair !== undefined)) {
      throw new Error(this.manifest.pairs ? "this student answers pairs: give a second text" : "this student answers single texts");
    }
    const { ids, types } = this.tokenizer.encode(text, pair);
    if (!this.manifest.pairs) return this.#read(ids);
    const [first, second] = [0, 1].map((side) => {
      const vector = this.#read(ids.filter((_, i) => types[i] === side));
      return tensor([1, vector.length], vector);
    });
    return this.graphs[1].run({ first, second }).data;
  }

  /** Answer a text, or a pair. */
  predict(text, pair) {
    const logits = this.logits(text, pair);
    if (this.task === "regression") return { score: logits[0], logits };
    const scaled = Array.from(logits, (value) => value / (this.manifest.temperature ?? 1));
    const several = this.task === "multi-label";
    const shares = several ? scaled.map((value) => 1 / (1 + Math.exp(-value))) : softmax(scaled);
    const probabilities = Object.fromEntries(this.labels.map((label, i) => [label, shares[i]]));
    if (several) {
      return { labels: this.labels.filter((_, i) => shares[i] > 0.5), probabilities, logits };
    }
    const best = shares.indexOf(Math.max(...shares));
    return { label: this.labels[best], confidence: shares[best], probabilities, logits };
  }

  /** Leave each word out in turn: by how much the probability of the answer (or the score) falls. */
  explain(text) {
    const whole = this.predict(text);
    const value = (answer) => (this.task === "regression" ? answer.score : answer.probabilities[whole.label]);
    if (this.task === "multi-label") throw new Error("explain: of one label or score, not of several labels");
    return this.tokenizer.spans(text).map(([start, end]) => {
      const without = this.predict(text.slice(0, start) + text.slice(end));
      return { word: text.slice(start, end), start, end, weight: value(whole) - value(without) };
    });
  }

  #read(ids) {
    const row = ids.length ? ids : [this.manifest.pad_id];
    const input_ids = tensor([1, row.length], Float64Array.from(row));
    return this.graphs[0].run({ input_ids, lengths: tensor([1], Float64Array.of(ids.length)) }).data;
  }
}

function softmax(values) {
  const top = Math.max(...values);
  const powers = values.map((value) => Math.exp(value - top));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

// ---- texts to token ids ----

// Oniguruma's \w, \s and \b, which the tokenizer's pattern means.
const WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
const SPACE = "\\t-\\r\\x85\\p{Z}";

class Tokenizer {
  constructor(state, maxTokens) {
    const { model, pre_tokenizer: split, normalizer } = state;
    const steps = (normalizer?.normalizers ?? []).map((step) => step.type).join();
    if (split?.type !== "Split" || !split.invert || steps !== "NFC,Lowercase" || !["WordLevel", "WordPiece"].includes(model.type)) {
      throw new Error("a tokenizer that this runtime does not know: expected one of words, characters or subwords");
    }
    const pattern = split.pattern.Regex.replaceAll("\\w", WORD).replaceAll("\\s", SPACE).replaceAll("\\b", `(?![${WORD}])`);
    this.pattern = new RegExp(pattern, "gu");
    this.vocabulary = new Map(Object.entries(model.vocab));
    this.unknown = this.vocabulary.get(model.unk_token);
    this.model = model;
    this.maxTokens = maxTokens;
    this.special = new Map(state.added_tokens.map((token) => [token.content, token.id]));
    const escaped = [...this.special.keys()].map((name) => name.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"));
    this.specials = new RegExp(`(${escaped.join("|")})`);
  }

  /** Return token ids and types: 0 for the first text's tokens, 1 for the second's. */
  encode(text, pair) {
    let first = this.#ids(text);
    let second = pair === undefined ? [] : this.#ids(pair);
    if (first.length + second.length > this.maxTokens) {
      const [a, b] = pair === undefined ? [this.maxTokens, 0] : this.#rooms(first.length, second.length);
      [first, second] = [first.slice(0, a), second.slice(0, b)];
    }
    return { ids: [...first, ...second], types: [...first.map(() => 0), ...second.map(() => 1)] };
  }

  /** Return the places, [start, end], of a text's words, before anything is normalised. */
  spans(text) {
    return Array.from(text.matchAll(this.pattern), (found) => [found.index, found.index + found[0].length]);
  }

  /** Truncate the longer side first, as the tokenizers package does. */
  #rooms(a, b) {
    let [few, many] = a < b ? [a, b] : [b, a];
    many = few > this.maxTokens ? few : Math.max(few, this.maxTokens - few);
    if (few + many > this.maxTokens) {
      few = Math.floor(this.maxTokens / 2);
      many = few + (this.maxTokens % 2);
    }
    return a > b ? [many, few] : [few, many];
  }

  #ids(text) {
    return text.split(this.specials).flatMap((part, i) => (i % 2 ? [this.special.get(part)] : this.#plain(part)));
  }

  #plain(text) {
    // Character by character: the whole string's toLowerCase gives a final sigma its own form.
    const lower = Array.from(text.normalize("NFC"), (character) => character.toLowerCase()).join("");
    return (lower.match(this.pattern) ?? []).flatMap((word) => this.#word(word));
  }

  #word(word) {
    const { type, max_input_chars_per_word: longest, continuing_subword_prefix: prefix } = this.model;
    if (type === "WordLevel") return [this.vocabulary.get(word) ?? this.unknown];
    const characters = Array.from(word);
    if (characters.length > longest) return [this.unknown];
    const found = [];
    for (let start = 0, stop; start < characters.length; start = stop) {
      let id;
      for (stop = characters.length; stop > start; stop--) {
        id = this.vocabulary.get((start ? prefix : "") + characters.slice(start, stop).join(""));
        if (id !== undefined) break;
      }
      if (id === undefined) return [this.unknown];
      found.push(id);
    }
    return found;
  }
}

// ---- an ONNX graph, for one row at a time ----

const tensor = (dims, data) => ({ dims, data });
const sizeOf = (dims) => dims.reduce((a, b) => a * b, 1);

class Graph {
  constructor(bytes) {
    if (!bytes) throw new Error("no graph in the bundle: export it again");
    const graph = message(bytes, { 7: ["graph", (part) => message(part, GRAPH)] }).graph[0];
    this.values = new Map((graph.initializer ?? []).map((found) => [found.name, found.tensor]));
    this.inputs = (graph.input ?? []).map((found) => found.name[0]).filter((name) => !this.values.has(name));
    this.output = graph.output[0].name[0];
    // What depends on no input, such as weights stored in fewer bits, is computed once.
    this.nodes = [];
    for (const node of graph.node ?? []) {
      const run = OPERATORS[node.type];
      if (!run) throw new Error(`operator ${node.type}: this runtime answers for static, textcnn and bilstm students of words or subwords`);
      if (node.inputs.every((name) => name === "" || this.values.has(name))) this.#step(node, this.values);
      else this.nodes.push(node);
    }
    const needed = new Set(this.nodes.flatMap((node) => node.inputs));
    for (const name of this.values.keys()) if (!needed.has(name)) this.values.delete(name);
  }

  run(feeds) {
    const values = new Map(this.values);
    for (const name of this.inputs) values.set(name, feeds[name]);
    for (const node of this.nodes) this.#step(node, values);
    return values.get(this.output);
  }

  #step(node, values) {
    const found = OPERATORS[node.type](node.inputs.map((name) => values.get(name)), node.attributes);
    (Array.isArray(found) ? found : [found]).forEach((value, i) => values.set(node.outputs[i], value));
  }
}

// ---- operators: tensors and attributes to a tensor, or several ----

const OPERATORS = {
  Abs: ([x]) => map(x, Math.abs),
  Add: ([a, b]) => zip(a, b, (x, y) => x + y),
  BitShift: ([a, b], { direction }) => zip(a, b, direction === "LEFT" ? (x, y) => (x << y) & 255 : (x, y) => x >> y),
  BitwiseAnd: ([a, b]) => zip(a, b, (x, y) => x & y),
  Cast: ([x], { to }) => tensor(x.dims, TYPES[to].from(x.data, to === 7 || to === 6 ? Math.trunc : undefined)),
  Clip: ([x, low, high]) => map(x, (v) => Math.min(Math.max(v, low?.data[0] ?? -Infinity), high?.data[0] ?? Infinity)),
  Concat: (parts, { axis }) => concat(parts, axis),
  Conv: conv,
  Div: ([a, b]) => zip(a, b, (x, y) => x / y),
  Gather: gather,
  Gemm: gemm,
  Greater: ([a, b]) => zip(a, b, (x, y) => x > y, Uint8Array),
  GreaterOrEqual: ([a, b]) => zip(a, b, (x, y) => x >= y, Uint8Array),
  LSTM: lstm,
  MatMul: matmul,
  Mul: ([a, b]) => zip(a, b, (x, y) => x * y),
  Range: ([start, limit, step]) => {
    const count = Math.max(0, Math.ceil((limit.data[0] - start.data[0]) / step.data[0]));
    return tensor([count], Float64Array.from({ length: count }, (_, i) => start.data[0] + i * step.data[0]));
  },
  ReduceMax: ([x, axes], { keepdims = 1 }) => reduce(x, axes, keepdims, -Infinity, Math.max),
  ReduceSum: ([x, axes], { keepdims = 1 }) => reduce(x, axes, keepdims, 0, (a, b) => a + b),
  Relu: ([x]) => map(x, (v) => Math.max(v, 0)),
  Reshape: ([x, shape]) => {
    const dims = Array.from(shape.data, (size, i) => (size === 0 ? x.dims[i] : size));
    if (dims.includes(-1)) dims[dims.indexOf(-1)] = x.data.length / -sizeOf(dims);
    return tensor(dims, x.data);
  },
  Shape: ([x], { start = 0, end }) => {
    const dims = x.dims.slice(start, end);
    return tensor([dims.length], Float64Array.from(dims));
  },
  Slice: slice,
  Softmax: ([x], { axis = -1 }) => {
    const along = tensor([1], Float64Array.of(axis));
    const powers = zip(x, reduce(x, along, 1, -Infinity, Math.max), (v, top) => Math.exp(v - top));
    return zip(powers, reduce(powers, along, 1, 0, (a, b) => a + b), (v, sum) => v / sum);
  },
  Squeeze: ([x, axes]) => {
    const gone = axes && placesOf(axes, x.dims.length);
    return tensor(x.dims.filter((size, i) => (gone ? !gone.includes(i) : size !== 1)), x.data);
  },
  Sub: ([a, b]) => zip(a, b, (x, y) => x - y),
  Tanh: ([x]) => map(x, Math.tanh),
  Transpose: ([x], { perm }) => transpose(x, perm ?? x.dims.map((_, i) => i).reverse()),
  Unsqueeze: ([x, axes]) => {
    const dims = [...x.dims];
    for (const place of placesOf(axes, dims.length + axes.data.length).sort((a, b) => a - b)) dims.splice(place, 0, 1);
    return tensor(dims, x.data);
  },
  Where: ([which, a, b]) => pick(which, a, b),
};

function map(x, f) {
  return tensor(x.dims, x.data.map(f));
}

function placesOf(axes, rank) {
  return Array.from(axes.data, (axis) => (axis < 0 ? axis + rank : axis));
}

function strides(dims) {
  const found = new Array(dims.length);
  for (let i = dims.length - 1, step = 1; i >= 0; step *= dims[i--]) found[i] = step;
  return found;
}

/** Return the dimensions that tensors broadcast to. */
function broadcast(...all) {
  const rank = Math.max(...all.map((x) => x.dims.length));
  return Array.from({ length: rank }, (_, i) => {
    const sizes = all.map((x) => x.dims[i - rank + x.dims.length] ?? 1);
    return sizes.find((size) => size !== 1) ?? 1;
  });
}

/** Return where each number of a broadcast result is found in a tensor. */
function placesIn(x, dims) {
  const steps = strides(x.dims);
  const shift = dims.length - x.dims.length;
  let places = Int32Array.of(0);
  dims.forEach((size, i) => {
    const step = i < shift || x.dims[i - shift] === 1 ? 0 : steps[i - shift];
    const next = new Int32Array(places.length * size);
    for (let p = 0, n = 0; p < places.length; p++) for (let k = 0; k < size; k++) next[n++] = places[p] + k * step;
    places = next;
  });
  return places;
}

function zip(a, b, f, type = a.data.constructor) {
  const dims = broadcast(a, b);
  const out = new type(sizeOf(dims));
  if (a.data.length === out.length && b.data.length === out.length) {
    for (let i = 0; i < out.length; i++) out[i] = f(a.data[i], b.data[i]);
  } else {
    const [left, right] = [placesIn(a, dims), placesIn(b, dims)];
    for (let i = 0; i < out.length; i++) out[i] = f(a.data[left[i]], b.data[right[i]]);
  }
  return tensor(dims, out);
}

function pick(which, a, b) {
  const dims = broadcast(which, a, b);
  const [w, left, right] = [which, a, b].map((x) => placesIn(x, dims));
  const out = new a.data.constructor(left.length);
  for (let i = 0; i < out.length; i++) out[i] = which.data[w[i]] ? a.data[left[i]] : b.data[right[i]];
  return tensor(dims, out);
}

function transpose(x, perm) {
  const steps = strides(x.dims);
  const dims = perm.map((i) => x.dims[i]);
  let places = Int32Array.of(0);
  perm.forEach((from, i) => {
    const next = new Int32Array(places.length * dims[i]);
    for (let p = 0, n = 0; p < places.length; p++) for (let k = 0; k < dims[i]; k++) next[n++] = places[p] + k * steps[from];
    places = next;
  });
  const out = new x.data.constructor(places.length);
  for (let i = 0; i < out.length; i++) out[i] = x.data[places[i]];
  return tensor(dims, out);
}

function reduce(x, axes, keep, start, f) {
  const gone = axes ? placesOf(axes, x.dims.length) : x.dims.map((_, i) => i);
  const kept = x.dims.map((size, i) => (gone.includes(i) ? 1 : size));
  const out = new x.data.constructor(sizeOf(kept)).fill(start);
  const places = placesIn(tensor(kept, out), x.dims);
  for (let i = 0; i < places.length; i++) out[places[i]] = f(out[places[i]], x.data[i]);
  return tensor(keep ? kept : x.dims.filter((_, i) => !gone.includes(i)), out);
}

function concat(parts, axis) {
  const rank = parts[0].dims.length;
  const along = axis < 0 ? axis + rank : axis;
  const dims = [...parts[0].dims];
  dims[along] = parts.reduce((sum, part) => sum + part.dims[along], 0);
  const out = new parts[0].data.constructor(sizeOf(dims));
  const outer = sizeOf(dims.slice(0, along));
  let at = 0;
  for (let row = 0; row < outer; row++) {
    for (const part of parts) {
      const width = part.data.length / outer;
      out.set(part.data.subarray(row * width, (row + 1) * width), at);
      at += width;
    }
  }
  return tensor(dims, out);
}

function gather([x, indices], { axis = 0 }) {
  const along = axis < 0 ? axis + x.dims.length : axis;
  const outer = sizeOf(x.dims.slice(0, along));
  const inner = sizeOf(x.dims.slice(along + 1));
  const count = x.dims[along];
  const out = new x.data.constructor(outer * indices.data.length * inner);
  let at = 0;
  for (let row = 0; row < outer; row++) {
    for (const index of indices.data) {
      const from = (row * count + (index < 0 ? index + count : index)) * inner;
      if (inner === 1) out[at++] = x.data[from];
      else {
        out.set(x.data.subarray(from, from + inner), at);
        at += inner;
      }
    }
  }
  return tensor([...x.dims.slice(0, along), ...indices.dims, ...x.dims.slice(along + 1)], out);
}

function slice([x, starts, ends, axes, steps]) {
  let found = x;
  Array.from(starts.data).forEach((from, i) => {
    const axis = axes ? placesOf(axes, x.dims.length)[i] : i;
    const size = found.dims[axis];
    const bound = (value) => Math.min(Math.max(value < 0 ? value + size : value, 0), size);
    const step = steps?.data[i] ?? 1;
    if (step < 1) throw new Error("Slice backwards: this runtime has no such operator");
    const chosen = [];
    for (let k = bound(from); k < bound(ends.data[i]); k += step) chosen.push(k);
    found = gather([found, tensor([chosen.length], Float64Array.from(chosen))], { axis });
  });
  return found;
}

function gemm([a, b, c], { alpha = 1, beta = 1, transA = 0, transB = 0 }) {
  const left = transA ? transpose(a, [1, 0]) : a;
  const right = transB ? b : transpose(b, [1, 0]); // rows of weights, read in order
  const [rows, depth] = left.dims;
  const columns = right.dims[0];
  const out = new Float32Array(rows * columns);
  for (let i = 0; i < rows; i++) {
    addProduct(out.subarray(i * columns, (i + 1) * columns), right.data, left.data.subarray(i * depth, (i + 1) * depth));
  }
  const product = tensor([rows, columns], out);
  return c ? zip(product, c, (x, y) => alpha * x + beta * y) : map(product, (x) => alpha * x);
}

function matmul([a, b]) {
  if (b.dims.length !== 2) throw new Error("MatMul of two batches: this runtime has no such operator");
  const depth = b.dims[0];
  const flat = tensor([a.data.length / depth, depth], a.data);
  return tensor([...a.dims.slice(0, -1), b.dims[1]], gemm([flat, b], {}).data);
}

/** Convolution over one dimension: (N, C, L) by (M, C, K). */
function conv([x, weights, bias], { pads = [0, 0], strides: [stride] = [1] }) {
  const [rows, channels, length] = x.dims;
  const [filters, , width] = weights.dims;
  const places = Math.floor((length + pads[0] + pads[1] - width) / stride) + 1;
  const out = new Float32Array(rows * filters * Math.max(places, 0));
  let at = 0;
  for (let n = 0; n < rows; n++) {
    for (let m = 0; m < filters; m++) {
      for (let p = 0; p < places; p++) {
        let sum = bias ? bias.data[m] : 0;
        const begin = p * stride - pads[0];
        for (let c = 0; c < channels; c++) {
          const from = (n * channels + c) * length + begin;
          const own = (m * channels + c) * width;
          for (let k = Math.max(0, -begin); k < width && begin + k < length; k++) sum += x.data[from + k] * weights.data[own + k];
        }
        out[at++] = sum;
      }
    }
  }
  return tensor([rows, filters, Math.max(places, 0)], out);
}

/** LSTM of one row, both directions; gates in ONNX's order: input, output, forget, cell. */
function lstm([x, weights, recurrent, bias, lengths], { hidden_size: units }) {
  const [time, rows, width] = x.dims;
  if (rows !== 1) throw new Error(`LSTM of ${rows} rows: this runtime answers one at a time`);
  const directions = weights.dims[0];
  const steps = lengths ? lengths.data[0] : time;
  const states = new Float32Array(time * directions * units);
  const last = new Float32Array(directions * units);
  const gates = new Float64Array(4 * units);
  for (let d = 0; d < directions; d++) {
    const fromInput = weights.data.subarray(d * 4 * units * width, (d + 1) * 4 * units * width);
    const fromHidden = recurrent.data.subarray(d * 4 * units * units, (d + 1) * 4 * units * units);
    const hidden = new Float32Array(units);
    const cell = new Float32Array(units);
    for (let step = 0; step < steps; step++) {
      const t = d ? steps - 1 - step : step;
      for (let g = 0; g < 4 * units; g++) {
        gates[g] = bias ? bias.data[d * 8 * units + g] + bias.data[(d * 8 + 4) * units + g] : 0;
      }
      addProduct(gates, fromInput, x.data.subarray(t * width, (t + 1) * width));
      addProduct(gates, fromHidden, hidden);
      for (let u = 0; u < units; u++) {
        cell[u] = sigmoid(gates[2 * units + u]) * cell[u] + sigmoid(gates[u]) * Math.tanh(gates[3 * units + u]);
        hidden[u] = sigmoid(gates[units + u]) * Math.tanh(cell[u]);
      }
      states.set(hidden, (t * directions + d) * units);
    }
    last.set(hidden, d * units);
  }
  return [tensor([time, directions, 1, units], states), tensor([directions, 1, units], last)];
}

/** Add a matrix, row by row, times a vector to `sums`: where nearly all the time goes. */
function addProduct(sums, matrix, vector) {
  const size = vector.length;
  const whole = size - (size % 4);
  for (let row = 0, at = 0; row < sums.length; row++) {
    let [a, b, c, d] = [0, 0, 0, 0]; // four sums that do not wait for each other
    let k = 0;
    for (; k < whole; k += 4, at += 4) {
      a += matrix[at] * vector[k];
      b += matrix[at + 1] * vector[k + 1];
      c += matrix[at + 2] * vector[k + 2];
      d += matrix[at + 3] * vector[k + 3];
    }
    for (; k < size; k++, at++) a += matrix[at] * vector[k];
    sums[row] += a + b + c + d;
  }
}

const sigmoid = (value) => 1 / (1 + Math.exp(-value));

// ---- files: zip, and ONNX's protocol buffers ----

async function bytesOf(source) {
  if (source instanceof Uint8Array) return new Uint8Array(source.buffer, source.byteOffset, source.length); // Node's Buffer, too
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (typeof source?.arrayBuffer === "function") return new Uint8Array(await source.arrayBuffer());
  const answer = await fetch(source);
  if (!answer.ok) throw new Error(`${source}: ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}

async function unzip(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0) throw new Error("no bundle, or one that was cut short: expected a .zip that distillkit export wrote");
  const files = {};
  let place = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left--) {
    const [nameSize, extra, comment] = [28, 30, 32].map((at) => view.getUint16(place + at, true));
    const name = new TextDecoder().decode(bytes.subarray(place + 46, place + 46 + nameSize));
    const start = view.getUint32(place + 42, true);
    const data = start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
    const packed = bytes.subarray(data, data + view.getUint32(place + 20, true));
    files[name] = view.getUint16(place + 10, true) ? await inflate(packed) : packed;
    place += 46 + nameSize + extra + comment;
  }
  return files;
}

async function inflate(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// ONNX's types of numbers, by their code; whole numbers of 64 bits fit in doubles here.
const TYPES = { 1: Float32Array, 2: Uint8Array, 3: Int8Array, 6: Float64Array, 7: Float64Array, 9: Uint8Array, 10: Float32Array, 11: Float64Array };

/** Read a message: of each field that `wanted` names, by number, a list of its values. */
function message(bytes, wanted) {
  const found = {};
  for (let at = 0; at < bytes.length; ) {
    let [key, next] = varint(bytes, at);
    let value;
    if (key % 8 === 0) [value, next] = varint(bytes, next);
    else {
      let size = key % 8 === 1 ? 8 : 4;
      if (key % 8 === 2) [size, next] = varint(bytes, next);
      value = bytes.subarray(next, (next += size));
    }
    const [name, read] = wanted[Math.floor(key / 8)] ?? [];
    if (name) (found[name] ??= []).push(read ? read(value) : value);
    at = next;
  }
  return found;
}

function varint(bytes, at) {
  let value = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = bytes[at++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return [Number(BigInt.asIntN(64, value)), at];
  }
}

const text = (bytes) => new TextDecoder().decode(bytes);
const float = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, 4).getFloat32(0, true);
const varints = (value) => {
  if (typeof value === "number") return [value];
  const found = [];
  for (let at = 0, next; at < value.length; at = next) {
    const [one, after] = varint(value, at);
    found.push(one);
    next = after;
  }
  return found;
};

const NAME = { 1: ["name", text] };
const TENSOR = { 1: ["dims", varints], 2: ["type"], 4: ["floats"], 5: ["ints", varints], 7: ["ints", varints], 8: ["name", text], 9: ["raw"] };
const ATTRIBUTE = { 1: ["name", text], 2: ["f", float], 3: ["i"], 4: ["s", text], 5: ["t", tensorOf], 7: ["floats"], 8: ["ints", varints], 20: ["type"] };
const NODE = { 1: ["inputs", text], 2: ["outputs", text], 4: ["type", text], 5: ["attributes", attributeOf] };
const GRAPH = { 1: ["node", nodeOf], 5: ["initializer", (bytes) => ({ name: message(bytes, TENSOR).name?.[0], tensor: tensorOf(bytes) })], 11: ["input", (bytes) => message(bytes, NAME)], 12: ["output", (bytes) => message(bytes, NAME)] };

function nodeOf(bytes) {
  const { inputs = [], outputs, type, attributes = [] } = message(bytes, NODE);
  return { inputs, outputs, type: type[0], attributes: Object.fromEntries(attributes) };
}

function attributeOf(bytes) {
  const found = message(bytes, ATTRIBUTE);
  const value = { 1: found.f?.[0], 2: found.i?.[0], 3: found.s?.[0], 4: found.t?.[0], 7: found.ints?.flat() }[found.type[0]];
  return [found.name[0], value];
}

function tensorOf(bytes) {
  const { dims = [], type, raw, floats, ints } = message(bytes, TENSOR);
  const data = raw ? numbers(raw[0], type[0]) : floats ? numbers(joined(floats), 1) : TYPES[type[0]].from((ints ?? []).flat());
  return tensor(dims.flat(), data);
}

function joined(parts) {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => (out.set(part, at), at + part.length), 0);
  return out;
}

/** Turn little-endian bytes into numbers of an ONNX type. */
function numbers(raw, type) {
  const bytes = raw.slice(); // aligned
  if (type === 7) return Float64Array.from(new BigInt64Array(bytes.buffer), Number);
  if (type === 6) return Float64Array.from(new Int32Array(bytes.buffer));
  if (type === 10) return Float32Array.from(new Uint16Array(bytes.buffer), half);
  if (!TYPES[type]) throw new Error(`numbers of ONNX's type ${type}: this runtime does not know them`);
  return new TYPES[type](bytes.buffer);
}

function half(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}
