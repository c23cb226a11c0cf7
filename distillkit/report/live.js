
// ---- the page's own part: type a text, see the answer ----
{
  const part = document.getElementById("live");
  const [first, second] = ["first", "second"].map((name) => part.querySelector(`[name=${name}]`));
  const [answered, words] = [part.querySelector("output"), part.querySelector(".words")];
  const bytes = Uint8Array.from(atob(document.getElementById("bundle").textContent.trim()), (sign) => sign.charCodeAt(0));
  const said = (found) =>
    found.score !== undefined ? found.score.toFixed(2)
    : found.labels ? found.labels.join(", ") || "no label"
    : `${found.label}, confidence ${(100 * found.confidence).toFixed(1)} %`;
  let student, timer;

  const answer = () => {
    const began = performance.now();
    const found = student.predict(first.value, second?.value);
    answered.textContent = `${said(found)}, in ${(performance.now() - began).toFixed(1)} ms`;
    clearTimeout(timer);
    if (!second && student.task === "classification") timer = setTimeout(explain, 150);
  };

  // Each word is the darker, the more the answer's probability falls without it.
  const explain = () => {
    const text = first.value;
    const found = student.tokenizer.spans(text).length > 100 ? [] : student.explain(text);
    const most = Math.max(0.01, ...found.map(({ weight }) => Math.abs(weight)));
    const nodes = found.flatMap(({ word, start, end, weight }, i) => {
      const shown = document.createElement("span");
      shown.textContent = word;
      shown.className = weight < 0 ? "against" : "for";
      shown.style.setProperty("--share", (Math.abs(weight) / most).toFixed(3));
      shown.title = `${weight < 0 ? "−" : "+"}${(100 * Math.abs(weight)).toFixed(1)} points`;
      return [shown, text.slice(end, found[i + 1]?.start)];
    });
    words.replaceChildren(...nodes);
  };

  load(bytes).then((loaded) => {
    student = loaded;
    for (const field of [first, second]) field?.addEventListener("input", answer);
    answer();
  });
}
