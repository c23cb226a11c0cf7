
// ---- the page's own part: type a text, see the answer ----
const part = document.getElementById("live");
const [first, second] = ["first", "second"].map((name) => part.querySelector(`[name=${name}]`));
const words = part.querySelector(".words");
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const show = (place, found) => {
  part.querySelector(place).textContent = `${said(found)}\nin ${found.ms.toFixed(1)} ms`;
};
const said = (found) =>
  found.score !== undefined ? String(Number(found.score.toPrecision(4)))
  : found.labels ? found.labels.join(", ") || "no label"
  : `${found.label}, confidence ${percent(found.probabilities[found.label])}`;
let student, pause;

const answer = () => {
  const began = performance.now();
  const found = student.predict(first.value, second?.value);
  found.ms = performance.now() - began;
  show(".student", found);
  part.dispatchEvent(new CustomEvent("answered", { detail: found }));
  clearTimeout(pause);
  if (!second && student.task === "classification") pause = setTimeout(explain, 150);
};

// Each word is the darker, the more the answer's probability falls without it.
const explain = () => {
  const typed = first.value;
  const found = student.tokenizer.spans(typed).length > 100 ? [] : student.explain(typed);
  const most = Math.max(0.01, ...found.map(({ weight }) => Math.abs(weight)));
  const nodes = found.flatMap(({ word, start, end, weight }, i) => {
    const shown = document.createElement("span");
    shown.textContent = word;
    shown.className = weight < 0 ? "against" : "for";
    shown.style.setProperty("--share", (Math.abs(weight) / most).toFixed(3));
    shown.title = `${weight < 0 ? "−" : "+"}${(100 * Math.abs(weight)).toFixed(1)} points`;
    return [shown, typed.slice(end, found[i + 1]?.start)];
  });
  words.replaceChildren(...nodes);
};

const bundle = document.getElementById("bundle")?.textContent.trim();
if (bundle) {
  load(Uint8Array.from(atob(bundle), (sign) => sign.charCodeAt(0))).then((loaded) => {
    student = loaded;
    if (part.dataset.temperature) student.manifest.temperature = Number(part.dataset.temperature);
    for (const field of [first, second]) field?.addEventListener("input", answer);
    answer();
  }).catch((error) => {
    part.querySelector(".student").textContent = error.message;
  });
}
