// The embedding's section: its controls, pointer and keyboard, and the same in a table.

function listen(map) {
  const { canvas } = map, fingers = new Map();
  const where = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const focused = () => document.activeElement === canvas;
  canvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, where(event));
    if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
  });
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) {
    canvas.addEventListener(end, (event) => fingers.delete(event.pointerId));
  }
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = where(event), before = fingers.get(event.pointerId);
    if (before && event.pointerType === "mouse") {
      fingers.set(event.pointerId, [x, y]);
      map.move(x - before[0], y - before[1]);
      map.point(null);
    } else if (before && fingers.size === 2) {
      const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      const distance = (place) => Math.hypot(place[0] - other[0], place[1] - other[1]);
      map.zoom(distance([x, y]) / Math.max(1, distance(before)), (x + other[0]) / 2, (y + other[1]) / 2);
      fingers.set(event.pointerId, [x, y]);
    } else {
      const found = map.nearest(x, y, 14);
      if (found !== map.at) map.point(found);
    }
  });
  canvas.addEventListener("click", (event) => map.point(map.nearest(...where(event), 24)));
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse" && !focused()) map.point(null); });
  canvas.addEventListener("dblclick", (event) => map.zoom(2, ...where(event)));
  canvas.addEventListener("wheel", (event) => {
    // The wheel scrolls the page until the embedding has been clicked, or Ctrl is held.
    if (!event.ctrlKey && !focused()) return;
    event.preventDefault();
    map.zoom(Math.exp(-event.deltaY * 0.0022), ...where(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => { if (pressKey(map, event)) event.preventDefault(); });
  canvas.addEventListener("blur", () => map.point(null));
  canvas.addEventListener("focus", () => { if (map.at === null && canvas.matches(":focus-visible")) map.step(0, 0); });
}

// Do what a key stands for; false if it stands for nothing.
function pressKey(map, event) {
  const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  const centre = map.at === null ? [] : map.place(map.at);
  if (move && event.shiftKey) {
    map.move(-60 * move[0], -60 * move[1]);
    if (map.at !== null) map.point(map.at);
  } else if (move) map.step(...move);
  else if (event.key === "+" || event.key === "=") map.zoom(1.5, ...centre);
  else if (event.key === "-") map.zoom(1 / 1.5, ...centre);
  else if (event.key === "0") map.reset();
  else if (event.key === "Escape") map.point(null);
  else return false;
  return true;
}

function embedding(run) {
  const question = "Which images look alike to the network?";
  if (!run.embedding) {
    const first = values.runs[values.groups[groupOf(state.chosen)].runs[0]];
    return section("embedding", "Embedding", question, paragraph("quiet", first.embedding
      ? `Of runs that differ only in the seed, the first has an embedding: ${first.name}.`
      : "There is no embedding of this run."));
  }
  const map = new EmbeddingCanvas(run), m = run.embedding, drawn = map.n - m.labelled;
  const of = drawn < m.unlabelled ? `${whole(drawn)} of ${whole(m.unlabelled)}` : whole(drawn);
  const button = (text, label, act) => h("button", { type: "button", "aria-label": label, onclick: act }, text);
  const controls = embeddingControls(map);
  state.repaint = controls.update;
  const box = section("embedding", "Embedding", question,
    h("p", {}, `t‑SNE of the features of ${plural(m.labelled, "labelled image")} (ringed) and ${of} unlabelled ones. `,
      map.sheet ? "Point at one to see it; zoom in and the images appear." : "Point at one to see what is known of it."),
    controls.elements,
    h("div", { class: "embedding-box" }, map.canvas,
      h("div", { class: "zoom" },
        button("+", "zoom in", () => map.zoom(1.6)),
        button("−", "zoom out", () => map.zoom(1 / 1.6)),
        button("⤢", "show the whole embedding", () => map.reset())),
      map.halo, map.tip, map.live),
    h("p", { class: "note", id: "embedding-help" },
      "Drag to move, double-click or pinch to zoom, click into the embedding to zoom with the wheel. ",
      "Keyboard: arrows go from image to image, with Shift they move the embedding, + and − zoom, 0 shows all."),
    embeddingTable(run));
  controls.update();
  return box;
}

// Choices of colour, images and classes.
function embeddingControls(map) {
  const { data, run, known } = map;
  const count = h("span", { class: "note", id: "embedding-count" }), key = h("span", { class: "note" });
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Classes shown" });
  const colours = [
    known && ["true", "true class"], ["predicted", "predicted class"],
    ["confidence", "confidence"], known && ["answer", "right or wrong"],
  ];
  const limits = [
    ["all", "all images"], ["labelled", "labelled only"],
    known && ["wrong", "misclassified"], ["unsure", "confidence below 80 %"],
  ];
  const select = (id, field, pairs) => h("select", { id, onchange: (event) => { map[field] = event.target.value; update(); } },
    pairs.filter(Boolean).map(([value, text]) => h("option", { value, selected: value === map[field] }, text)));
  const all = () => { map.hiddenClasses.clear(); update(); };
  const none = () => { for (let k = -1; k < run.classes.length; k++) map.hiddenClasses.add(k); update(); };
  const toggle = (k) => {
    if (!map.hiddenClasses.delete(k)) map.hiddenClasses.add(k);
    update();
    const same = chips.querySelector(`[data-class="${k}"]`); // the chips are new
    if (same) same.focus();
  };
  const chipColour = (k) => {
    if (k < 0) return "var(--line)";
    return map.by === "true" || map.by === "predicted" ? classColour(k) : "var(--soft)";
  };
  const chip = (k) => h("button", {
    type: "button", class: "chip", "aria-pressed": String(!map.hiddenClasses.has(k)), "data-class": k,
    onclick: () => toggle(k),
  }, h("i", { vars: { background: chipColour(k) } }), map.className(k));
  function update() {
    count.textContent = `${whole(map.update())} of ${whole(map.n)} images shown`;
    key.replaceChildren();
    if (map.by === "confidence") {
      const ends = [map.guessing, 1].map((confidence) => confidenceColour(confidence, map.guessing));
      const ramp = { background: `linear-gradient(to right in oklab, ${ends.join(", ")})` };
      fill(key, {}, [percent(100 * map.guessing, 0), " ", h("span", { class: "ramp", vars: ramp }), " 100\u00a0%"]);
    }
    if (map.by === "answer") fill(key, {}, [h("span", { class: "bad" }, "wrong"), ", right, and unknown in grey"]);
    const present = new Set(data.points.map((_, i) => map.classOf(i)));
    chips.replaceChildren(...[...run.classes.keys(), -1].filter((k) => present.has(k)).map(chip));
  }
  const tools = h("div", { class: "tools" },
    h("label", { for: "colour" }, "Colour by"), select("colour", "by", colours),
    h("label", { for: "show" }, "Show"), select("show", "show", limits),
    h("button", { type: "button", "aria-label": "show all classes", onclick: all }, "All classes"),
    h("button", { type: "button", "aria-label": "hide all classes", onclick: none }, "None"), key, count);
  return { elements: [tools, chips], update };
}

function embeddingTable(run) {
  const m = run.embedding, known = m.true.some((k) => k >= 0);
  const share = (part, of) => (of.length ? percent((100 * part) / of.length, 1) : "–");
  const rows = run.classes.map((name, k) => {
    const members = m.predicted.flatMap((p, i) => (p === k ? [i] : [])), checked = members.filter((i) => m.true[i] >= 0);
    const labelled = members.filter((i) => i < m.labelled).length, wrong = checked.filter((i) => m.true[i] !== k).length;
    const confidence = members.reduce((sum, i) => sum + m.confidence[i], 0);
    const cells = [name, whole(members.length), whole(labelled), share(confidence, members)];
    return known ? [...cells, share(wrong, checked)] : cells;
  });
  const head = ["predicted class", "images", "of them labelled", "mean confidence", ...(known ? ["of them wrong"] : [])];
  return h("details", {}, h("summary", {}, "The embedding as a table"), h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell))))))));
}
