
// ---- the demo's part: the service's answers, and the cascade of both ----
const slider = part.querySelector("[type=range]");
let ours, theirs, asked, turn;

const cascade = () => {
  if (!slider) return;
  part.querySelector(".threshold").textContent = Number(slider.value).toFixed(3);
  const sure = ours && ours.probabilities[ours.label];
  const alone = ours && sure >= slider.value;
  const place = part.querySelector(".cascade");
  if (alone) place.textContent = `${ours.label}\nby the student alone, in ${ours.ms.toFixed(1)} ms`;
  else if (!ours || !theirs) place.textContent = "…";
  else place.textContent = `${theirs.label}\nby the teacher, in ${(ours.ms + theirs.ms).toFixed(1)} ms: the student's confidence, ${percent(sure)}, is below the threshold`;
};

const ask = async () => {
  asked = new AbortController();
  const body = JSON.stringify({ texts: [first.value], ...(second && { text_pairs: [second.value] }) });
  try {
    const reply = await fetch("predict", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal: asked.signal });
    const { answers, error } = await reply.json();
    if (error) throw new Error(error);
    theirs = answers[0].teacher;
    show(".teacher", theirs);
    if (answers[0].student) show(".student", (ours = answers[0].student));
    cascade();
  } catch (error) {
    const places = part.querySelectorAll(bundle ? ".teacher" : ".teacher, .student");
    if (error.name !== "AbortError") for (const place of places) place.textContent = `no answer: ${error.message}`;
  }
};

const heard = () => {
  theirs = undefined;
  if (!bundle) ours = undefined;
  asked?.abort();
  clearTimeout(turn);
  turn = setTimeout(ask, 100); // typing goes on
};

part.addEventListener("answered", ({ detail }) => {
  ours = detail;
  cascade();
});
for (const field of [first, second]) field?.addEventListener("input", heard, true); // before the student
slider?.addEventListener("input", cascade);
heard();
