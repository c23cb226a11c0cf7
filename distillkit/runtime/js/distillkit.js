// Answers of a distillkit bundle in a browser or in Node, without dependencies.
//
//   import { load } from "./distillkit.js";
//   const student = await load("bundle.zip");
//   student.predict("I would go again tomorrow.");
//
// From top to bottom: the student, its tokenizer, its graph, the graph's operators, the files.

/** Load a bundle: an address, the bytes of a .zip, or a Blob. */
export async function load(source) {
  const bytes = await bytesOf(source);
  try {
    const files = await unzip(bytes);
    for (const name of ["manifest.json", "tokenizer.json"]) {
      if (!files[name]) throw new Error(`no ${name}: expected a .zip that distillkit export wrote`);
    }
    return new Student(files);
  } catch (error) {
    throw inBundle(error);
  }
}

/** Say what is wrong with a bundle in one printable line: names in it are anybody's, errors the engine's. */
function inBundle({ constructor, message }) {
  const said = constructor === Error ? message : `not a bundle that this runtime can read (${message}); export it again`;
  return new Error(said.replace(/\p{C}+/gu, " ").slice(0, 500));
}

export class Student {
  constructor(files) {
    const json = (name) => JSON.parse(text(files[name]));
    this.manifest = json("manifest.json");
    if (this.manifest.format !== 1) throw new Error(`a bundle of format ${this.manifest.format}: expected 1`);
    this.labels = this.manifest.labels;
    this.task = this.manifest.task;
    this.weights = new Map(Object.entries(this.manifest.rejection?.weights ?? {}));
    this.tokenizer = new Tokenizer(json("tokenizer.json"), this.manifest.max_tokens);
    const names = files["model.onnx"] ? ["model.onnx"] : ["encoder.onnx", "head.onnx"];
    this.graphs = names.map((name) => new Graph(files[name]));
    if (!this.graphs[0].inputs.includes("lengths")) refuse("a transformer");
  }

  /** Return the logits of a text, or of a pair, in the order of `labels`. */
  logits(text, pair) {
    if (Boolean(this.manifest.pairs) !== (pair !== undefined)) {
      throw new Error(this.manifest.pairs ? "this student answers pairs: give a second text" : "this student answers single texts");
    }
    for (const side of pair === undefined ? [text] : [text, pair]) {
      if (typeof side !== "string") throw new Error(`expected a text, found ${typeof side}`);
    }
    try {
      return this.#logits(text, pair);
    } catch (error) {
      throw inBundle(error);
    }
  }

  #logits(text, pair) {
    const { ids, types } = this.tokenizer.encode(text, pair);
    const sides = this.manifest.pairs ? [0, 1].map((side) => ids.filter((_, i) => types[i] === side)) : [ids];
    const [first, second] = this.graphs[1] ? sides.map((side) => this.#read(side)) : [];
    const { data } = second ? this.graphs[1].run({ first, second }) : this.#read(...sides);
    if (data.length !== this.labels.length || !data.every(Number.isFinite)) throw new Error(`logits ${data}: expected ${this.labels.length} finite numbers; export the bundle again`);
    return data;
  }

  /** Answer a text, or a pair; say what is unlike the training text, add a set of `labels`. */
  predict(text, pair, { reject = false, coverage = 0 } = {}) {
    const { rejection: rule, coverage: floors = {} } = this.manifest;
    const answer = this.#answer(text, pair);
    if (coverage) {
      const floor = floors[Object.keys(floors).sort().find((known) => known >= coverage - 1e-9)];
      if (!(coverage > 0 && floor >= 0)) throw new Error(`coverage ${coverage}: the bundle has no such label sets`);
      answer.labels = this.labels.filter((label) => answer.probabilities[label] >= floor || label === answer.label);
    }
    if (reject) {
      if (!rule) throw new Error("no rejection rule in the bundle");
      const words = [text, pair ?? ""].flatMap((side) => this.tokenizer.words(side));
      const sum = words.reduce((total, word) => total + (this.weights.get(word) ?? rule.rare), 0);
      answer.rejected = !(sum / Math.sqrt(words.length) >= rule.threshold);
      if (answer.rejected) for (const key of ["label", "labels", "score"]) if (key in answer) answer[key] = null;
    }
    return answer;
  }

  #answer(text, pair) {
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
      const without = this.predict(`${text.slice(0, start)} ${text.slice(end)}`);
      return { word: text.slice(start, end), start, end, weight: value(whole) - value(without) };
    });
  }

  #read(...rows) {
    const lengths = vector(rows.map((row) => row.length));
    const size = Math.max(1, ...lengths.data);
    const input_ids = tensor([rows.length, size], new Float64Array(rows.length * size).fill(this.manifest.pad_id));
    rows.forEach((row, i) => input_ids.data.set(row, i * size));
    return this.graphs[0].run({ input_ids, lengths });
  }
}

const softmax = (values) => Array.from(OPERATORS.Softmax([vector(values)], {}).data);

// ---- texts to token ids ----

// What \w, \s and \b mean to Oniguruma, the tokenizer's; \b has ²³¹¼½¾.
const WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
const SPACE = "\\t-\\r\\x85\\p{Z}";

class Tokenizer {
  constructor(state, maxTokens) {
    const { model, pre_tokenizer: split, normalizer } = state;
    const steps = (normalizer?.normalizers ?? []).map((step) => step.type).join();
    if (split?.type !== "Split" || !split.invert || steps !== "NFC,Lowercase" || !["WordLevel", "WordPiece"].includes(model.type)) {
      refuse("another tokenizer");
    }
    const pattern = split.pattern.Regex.replaceAll("\\w", WORD).replaceAll("\\s", SPACE).replaceAll("\\b", `(?![${WORD}\u00b2\u00b3\u00b9\u00bc-\u00be])`);
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
    return this.#split(text).flatMap((word) => this.#word(word));
  }

  #split(text) {
    // Character by character: the whole string's toLowerCase gives a final sigma its own form.
    const lower = Array.from(text.normalize("NFC"), (character) => character.toLowerCase()).join("");
    return lower.match(this.pattern) ?? [];
  }

  /** Return a text's words; of scripts without spaces every character is one. */
  words(text) {
    return this.#split(text).flatMap((word) => word.match(/[^\u2e80-\u{10ffff}]+|[\u2e80-\u{10ffff}]/gu));
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
const vector = (values) => tensor([values.length], Float64Array.from(values));
const sizeOf = (dims) => dims.reduce((a, b) => a * b, 1);

class Graph {
  constructor(bytes) {
    if (!bytes) throw new Error("no graph in the bundle: export it again");
    const [graph] = message(bytes, { 7: ["graph", (part) => message(part, GRAPH)] }).graph;
    this.values = new Map((graph.initializer ?? []).map(({ name, ...value }) => [name, value]));
    this.inputs = graph.input.map((found) => found.name[0]).filter((name) => !this.values.has(name));
    this.output = graph.output[0].name[0];
    // What depends on no input, such as weights stored in fewer bits, is computed once.
    this.nodes = graph.node.filter((node) => {
      if (!OPERATORS[node.type]) refuse(`operator ${node.type}`);
      const waits = node.inputs.some((name) => name && !this.values.has(name));
      if (!waits) step(node, this.values);
      return waits;
    });
    const needed = new Set(this.nodes.flatMap((node) => node.inputs));
    for (const name of this.values.keys()) if (!needed.has(name)) this.values.delete(name);
  }

  run(feeds) {
    const values = new Map(this.values);
    for (const name of this.inputs) values.set(name, feeds[name]);
    for (const node of this.nodes) step(node, values);
    return values.get(this.output);
  }
}

function step({ type, inputs, outputs, attributes }, values) {
  const found = OPERATORS[type](inputs.map((name) => values.get(name)), attributes);
  [found].flat().forEach((value, i) => values.set(outputs[i], value));
}

function refuse(what) {
  throw new Error(`${what}: this runtime answers for static, textcnn, bilstm, interaction-bilstm and decomposable students of words, characters or subwords`);
}

// ---- operators: tensors and attributes to a tensor, or several ----

const each = (f, type) => (tensors) => zip(f, tensors, type);
const add = each((a, b) => a + b);

const OPERATORS = {
  Abs: each(Math.abs),
  Add: add,
  BitShift: each((a, b) => a >> b),
  BitwiseAnd: each((a, b) => a & b),
  Cast: ([x], { to }) => {
    const data = new TYPES[to](x.data);
    return tensor(x.dims, to === 6 || to === 7 ? data.map(Math.trunc) : data);
  },
  Clip: each((x, low = -Infinity, high = Infinity) => Math.min(Math.max(x, low), high)),
  Concat: (parts, { axis }) => {
    const dims = [...parts[0].dims];
    const along = axis < 0 ? axis + dims.length : axis;
    dims[along] = parts.reduce((sum, part) => sum + part.dims[along], 0);
    const out = new parts[0].data.constructor(sizeOf(dims));
    const outer = sizeOf(dims.slice(0, along));
    for (let row = 0, at = 0; row < outer; row++) {
      for (const { data } of parts) {
        const width = data.length / outer;
        out.set(data.subarray(row * width, (row + 1) * width), at);
        at += width;
      }
    }
    return tensor(dims, out);
  },
  Conv: conv,
  Div: each((a, b) => a / b),
  Gather: ([x, rows], { axis = 0 }) => {
    if (axis) refuse(`Gather on axis ${axis}`);
    const [count, ...rest] = x.dims;
    const width = sizeOf(rest);
    const out = new x.data.constructor(rows.data.length * width);
    for (let i = 0, at = 0; i < rows.data.length; i++) {
      const row = rows.data[i] < 0 ? rows.data[i] + count : rows.data[i];
      for (let k = row * width; k < (row + 1) * width; k++) out[at++] = x.data[k];
    }
    return tensor([...rows.dims, ...rest], out);
  },
  Gemm: ([a, b, c], { alpha = 1, beta = 1, transA = 0, transB = 0 }) => {
    if (transA || !transB || alpha !== 1 || beta !== 1) refuse("Gemm of another form");
    return add([product(a, b), c]);
  },
  Greater: each((a, b) => a > b, Uint8Array),
  GreaterOrEqual: each((a, b) => a >= b, Uint8Array),
  LSTM: lstm,
  MatMul: ([a, b]) => {
    const [columns, depth, batches = 1] = [...b.dims].reverse();
    const turned = take(b, [batches, columns, depth], [columns * depth, 1, columns]).data;
    const parts = Array.from({ length: batches }, (_, i) => {
      const [rows, matrix] = [a.data, turned].map((data) => data.subarray((i * data.length) / batches, ((i + 1) * data.length) / batches));
      return product(tensor([rows.length / depth, depth], rows), tensor([columns, depth], matrix));
    });
    return tensor([...a.dims.slice(0, -1), columns], OPERATORS.Concat(parts, { axis: 0 }).data);
  },
  Mul: each((a, b) => a * b),
  Range: (bounds) => {
    const [start, limit, by] = bounds.map(({ data }) => data[0]);
    return vector(Array.from({ length: Math.max(0, Math.ceil((limit - start) / by)) }, (_, i) => start + i * by));
  },
  ReduceMax: (inputs, how) => reduce(inputs, how, -Infinity, Math.max),
  ReduceSum: (inputs, how) => reduce(inputs, how, 0, (a, b) => a + b),
  Relu: each((x) => Math.max(x, 0)),
  Reshape: ([x, shape]) => {
    const dims = Array.from(shape.data, (size, i) => (size === 0 ? x.dims[i] : size));
    if (dims.includes(-1)) dims[dims.indexOf(-1)] = x.data.length / -sizeOf(dims);
    return tensor(dims, x.data);
  },
  Shape: ([x], { start, end }) => vector(x.dims.slice(start, end)),
  Slice: ([x, starts, ends, axes, by]) => {
    if (by?.data.some((size) => size !== 1)) refuse("Slice in steps");
    const [dims, own] = [[...x.dims], steps(x)];
    let start = 0;
    for (const [i, axis] of (axes ? axesOf(axes, dims.length) : [...starts.data.keys()]).entries()) {
      const [from, to] = [starts, ends].map(({ data }) => Math.min(Math.max(data[i] < 0 ? data[i] + x.dims[axis] : data[i], 0), x.dims[axis]));
      dims[axis] = Math.max(to - from, 0);
      start += from * own[axis];
    }
    return take(x, dims, own, start);
  },
  Softmax: ([x], { axis = -1 }) => {
    const powers = zip((v, top) => Math.exp(v - top), [x, OPERATORS.ReduceMax([x, vector([axis])], {})]);
    return OPERATORS.Div([powers, OPERATORS.ReduceSum([powers, vector([axis])], {})]);
  },
  Sqrt: each(Math.sqrt),
  Squeeze: ([x, axes]) => {
    const gone = axes && axesOf(axes, x.dims.length);
    return tensor(x.dims.filter((size, i) => (gone ? !gone.includes(i) : size !== 1)), x.data);
  },
  Sub: each((a, b) => a - b),
  Tanh: each(Math.tanh),
  Transpose: ([x], { perm = [...x.dims.keys()].reverse() }) => take(x, perm.map((i) => x.dims[i]), perm.map((i) => steps(x)[i])),
  Unsqueeze: ([x, axes]) => {
    const dims = [...x.dims];
    for (const axis of axesOf(axes, dims.length + axes.data.length).sort((a, b) => a - b)) dims.splice(axis, 0, 1);
    return tensor(dims, x.data);
  },
  Where: each((which, a, b) => (which ? a : b)),
};

const axesOf = (axes, rank) => Array.from(axes.data, (axis) => (axis < 0 ? axis + rank : axis));

/** Return how far apart in a tensor's data its neighbours along each of `dims` are; 0: it is repeated. */
const steps = (x, dims = x.dims) => {
  const shift = dims.length - x.dims.length;
  return dims.map((_, i) => ((x.dims[i - shift] ?? 1) === 1 ? 0 : sizeOf(x.dims.slice(i - shift + 1))));
};

/** Return where in the data the numbers of a view lie. */
function places(dims, steps, start = 0) {
  let found = Int32Array.of(start);
  dims.forEach((size, i) => {
    const next = new Int32Array(found.length * size);
    for (let p = 0, n = 0; p < found.length; p++) for (let k = 0; k < size; k++) next[n++] = found[p] + k * steps[i];
    found = next;
  });
  return found;
}

function take(x, dims, steps, start) {
  const where = places(dims, steps, start);
  const out = new x.data.constructor(where.length);
  for (let i = 0; i < out.length; i++) out[i] = x.data[where[i]];
  return tensor(dims, out);
}

/** Apply a function number by number to tensors that broadcast to one shape. */
function zip(f, tensors, type = tensors.at(-1).data.constructor) {
  const rank = Math.max(...tensors.map((x) => x.dims.length));
  const dims = Array.from({ length: rank }, (_, i) => tensors.map((x) => x.dims[i - rank + x.dims.length] ?? 1).find((size) => size !== 1) ?? 1);
  const out = new type(sizeOf(dims));
  const [a, b, c] = tensors.map((x) => (x.data.length === out.length ? x : take(x, dims, steps(x, dims))).data);
  if (c) for (let i = 0; i < out.length; i++) out[i] = f(a[i], b[i], c[i]);
  else if (b) for (let i = 0; i < out.length; i++) out[i] = f(a[i], b[i]);
  else for (let i = 0; i < out.length; i++) out[i] = f(a[i]);
  return tensor(dims, out);
}

function reduce([x, axes], { keepdims = 1 }, start, f) {
  const gone = axesOf(axes, x.dims.length);
  const kept = x.dims.map((size, i) => (gone.includes(i) ? 1 : size));
  const out = new x.data.constructor(sizeOf(kept)).fill(start);
  places(x.dims, steps({ dims: kept }, x.dims)).forEach((to, i) => (out[to] = f(out[to], x.data[i])));
  return tensor(keepdims ? kept : x.dims.filter((_, i) => !gone.includes(i)), out);
}

/** Multiply each row by each row of a matrix. */
function product(x, matrix) {
  const [columns, depth] = matrix.dims;
  const rows = x.data.length / depth;
  const out = new Float32Array(rows * columns);
  for (let i = 0; i < rows; i++) addProduct(out.subarray(i * columns, (i + 1) * columns), matrix.data, x.data.subarray(i * depth, (i + 1) * depth));
  return tensor([...x.dims.slice(0, -1), columns], out);
}

/** Convolution over one dimension: (1, C, L) by (M, C, K). */
function conv([x, weights, bias], { pads: [before, after], strides = [1], dilations = [1], group = 1 }) {
  if ([...strides, ...dilations, group].some((size) => size !== 1)) refuse("Conv of another form");
  const [, channels, length] = x.dims;
  const [filters, , width] = weights.dims;
  const count = length + before + after - width + 1;
  const out = new Float32Array(filters * count);
  const seen = new Float32Array(channels * width);
  for (let p = 0; p < count; p++) {
    for (let i = 0; i < seen.length; i++) {
      const at = p - before + (i % width);
      seen[i] = at < 0 || at >= length ? 0 : x.data[Math.floor(i / width) * length + at];
    }
    const sums = Float32Array.from(bias.data);
    addProduct(sums, weights.data, seen);
    for (let m = 0; m < filters; m++) out[m * count + p] = sums[m];
  }
  return tensor([1, filters, count], out);
}

/** LSTM, in one direction or both; gates in ONNX's order: input, output, forget, cell. */
function lstm([x, weights, recurrent, bias, lengths], { hidden_size: units }) {
  const [time, rows, width] = x.dims;
  const [directions] = weights.dims;
  const states = new Float32Array(time * directions * rows * units);
  const last = new Float32Array(directions * rows * units);
  for (let d = 0; d < directions; d++) {
    const [fromInput, fromHidden, biases] = [weights, recurrent, bias].map(({ data }) => data.subarray((d * data.length) / directions, ((d + 1) * data.length) / directions));
    const start = Float32Array.from({ length: 4 * units }, (_, g) => biases[g] + biases[4 * units + g]);
    const gates = new Float32Array(4 * units);
    for (let row = 0; row < rows; row++) {
      const cell = new Float32Array(units);
      const hidden = last.subarray((d * rows + row) * units, (d * rows + row + 1) * units);
      for (let read = 0; read < lengths.data[row]; read++) {
        const t = d ? lengths.data[row] - 1 - read : read;
        gates.set(start);
        addProduct(gates, fromInput, x.data.subarray((t * rows + row) * width, (t * rows + row + 1) * width));
        addProduct(gates, fromHidden, hidden);
        for (let u = 0; u < units; u++) {
          cell[u] = sigmoid(gates[2 * units + u]) * cell[u] + sigmoid(gates[u]) * Math.tanh(gates[3 * units + u]);
          hidden[u] = sigmoid(gates[units + u]) * Math.tanh(cell[u]);
        }
        states.set(hidden, ((t * directions + d) * rows + row) * units);
      }
    }
  }
  return [tensor([time, directions, rows, units], states), tensor([directions, rows, units], last)];
}

/** Add a matrix times a vector to `sums`: where nearly all the time goes. */
function addProduct(sums, matrix, vector) {
  const size = vector.length;
  let row = 0;
  for (let at = 0; row + 4 <= sums.length; row += 4, at += 4 * size) {
    const [second, third, fourth] = [at + size, at + 2 * size, at + 3 * size];
    let a = 0, b = 0, c = 0, d = 0; // four rows that share each number of the vector
    for (let k = 0; k < size; k++) {
      const value = vector[k];
      a += matrix[at + k] * value;
      b += matrix[second + k] * value;
      c += matrix[third + k] * value;
      d += matrix[fourth + k] * value;
    }
    sums[row] += a;
    sums[row + 1] += b;
    sums[row + 2] += c;
    sums[row + 3] += d;
  }
  for (; row < sums.length; row++) {
    let sum = 0;
    for (let k = 0; k < size; k++) sum += matrix[row * size + k] * vector[k];
    sums[row] += sum;
  }
}

const sigmoid = (value) => 1 / (1 + Math.exp(-value));

// ---- files: zip, and ONNX's protocol buffers ----

async function bytesOf(source) {
  const address = typeof source === "string" || source instanceof URL;
  const answer = address ? await fetch(source) : source instanceof Response ? source : new Response(source);
  if (!answer.ok) throw new Error(`${answer.url || source}: ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}

async function unzip(bytes) {
  const view = new DataView(bytes.buffer);
  const [short, long] = [(at) => view.getUint16(at, true), (at) => view.getUint32(at, true)];
  let end = bytes.length - 22;
  while (end >= 0 && long(end) !== 0x06054b50) end--;
  if (end < 0) throw new Error("no bundle, or one that was cut short: expected a .zip that distillkit export wrote");
  const files = {};
  let place = long(end + 16);
  for (let left = short(end + 10); left > 0; left--) {
    const nameEnd = place + 46 + short(place + 28);
    const start = long(place + 42);
    const data = start + 30 + short(start + 26) + short(start + 28);
    const packed = bytes.subarray(data, data + long(place + 20));
    const name = text(bytes.subarray(place + 46, nameEnd));
    files[name] = short(place + 10) ? await inflate(packed) : packed;
    if (crc32(files[name]) !== long(place + 16)) throw new Error(`${name}: changed or cut short since distillkit export wrote it`);
    place = nameEnd + short(place + 30) + short(place + 32);
  }
  return files;
}

const CRC = Int32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = (byte >>> 1) ^ (byte & 1 && 0xedb88320);
  return byte;
});
const crc32 = (bytes) => ~bytes.reduce((sum, byte) => CRC[(sum ^ byte) & 255] ^ (sum >>> 8), -1) >>> 0;

function inflate(packed) {
  return bytesOf(new Response(new Response(packed).body.pipeThrough(new DecompressionStream("deflate-raw"))));
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
      if (!(size >= 0 && next + size <= bytes.length)) throw new RangeError("a field beyond its message");
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
    if (!(byte >= 128)) return [Number(BigInt.asIntN(64, value)), at];
  }
}

const text = (bytes) => new TextDecoder().decode(bytes);
const float = (bytes) => new DataView(bytes.buffer, bytes.byteOffset).getFloat32(0, true);
const varints = (value) => {
  if (typeof value === "number") return [value];
  const found = [];
  for (let at = 0; at < value.length; ) {
    const [one, next] = varint(value, at);
    found.push(one);
    at = next;
  }
  return found;
};

// The fields that are read, by number: name, and what turns bytes into a value.
const TENSOR = { 1: ["dims", varints], 2: ["type"], 8: ["name", text], 9: ["raw"] };
const ATTRIBUTE = { 1: ["name", text], 2: ["f", float], 3: ["i"], 4: ["s", text], 8: ["ints", varints] };
const NODE = { 1: ["inputs", text], 2: ["outputs", text], 4: ["type", text], 5: ["attributes", attributeOf] };
const named = (bytes) => message(bytes, { 1: ["name", text] });
const GRAPH = { 1: ["node", nodeOf], 5: ["initializer", tensorOf], 11: ["input", named], 12: ["output", named] };

function nodeOf(bytes) {
  const { inputs = [], outputs, type, attributes = [] } = message(bytes, NODE);
  return { inputs, outputs, type: type[0], attributes: Object.fromEntries(attributes) };
}

function attributeOf(bytes) {
  const { name, f = [], i = [], s = [], ints } = message(bytes, ATTRIBUTE);
  return [name[0], ints ? ints.flat() : [...f, ...i, ...s][0]];
}

function tensorOf(bytes) {
  const { dims = [], type, name, raw = [new Uint8Array()] } = message(bytes, TENSOR);
  const data = numbers(raw[0].slice().buffer, type[0]); // a copy, and so aligned
  if (data.length !== sizeOf(dims.flat())) refuse("numbers that are not stored as bytes");
  return { name: name[0], dims: dims.flat(), data };
}

/** Turn little-endian bytes into numbers of an ONNX type. */
function numbers(buffer, type) {
  if (type === 7) return Float64Array.from(new BigInt64Array(buffer), Number);
  if (type === 6) return Float64Array.from(new Int32Array(buffer));
  if (type === 10) return Float32Array.from(new Uint16Array(buffer), half);
  if (!TYPES[type]) refuse(`numbers of ONNX's type ${type}`);
  return new TYPES[type](buffer);
}

function half(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, (bits & 1023) / 1024];
  const size = exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction;
  return bits >> 15 ? -size : size;
}
